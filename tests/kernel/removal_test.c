/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * removal_test.c - `rdma link del` under live nodes: it returns in time whatever the application
 * does or does not do, every session says why it ended, and a device that comes back can be used.
 *
 * The command waits in the kernel until every context of the device is closed, so its end proves
 * that the node let go of all it had.
 */
#include "support/guest.h"
#include "support/peer.h"

enum { SESSIONS = 20, HUNDRED = 100 };
#define REMOVAL_NS (5000 * MS)

static const char *device, *interface;

/* Waits for the command, which must not take longer; meanwhile polls what is given. */
static void removed_in_time(pid_t removal, struct side *polled, unsigned *closed) {
    uint64_t start = sluice_now();
    while (!command_ended(removal)) {
        struct note note;
        must(sluice_now() - start < REMOVAL_NS);
        if (!polled) {
            poll(NULL, 0, 5); /* nothing to wait on: the kernel tells by the command's end only */
        } else if (side_next(polled, &note, 5 * MS)) {
            must(note.event.type == SLUICE_CLOSED);
            must(note.event.reason == SLUICE_REASON_DEVICE_REMOVED);
            ++*closed;
        }
    }
    print_message("removed in %llu ms\n", (unsigned long long)((sluice_now() - start) / MS));
    assert_int_equal(command_status(removal), 0);
    assert_false(device_exists(device));
}

static void expect_all_closed(struct side *side, unsigned left) {
    for (; left > 0; left--)
        side_expect_closed(side, SLUICE_REASON_DEVICE_REMOVED);
    side_expect_nothing(side);
}

static void connect_many(struct couple *c, bool handlers, unsigned count) {
    couple_open(c, handlers, NULL);
    for (unsigned i = 0; i < count; i++) {
        couple_connect(c, &(sluice_link_options){.credits = 8});
        must(side_send(&c->b, c->at_b, 100, i, 0) == 0);
        struct note note = side_expect(&c->a, SLUICE_MESSAGE);
        note_free(&note);
    }
}

/* The node is good for nothing any more, and says so. */
static void expect_dead_node(struct side *side) {
    sluice_link_options link = side_link(side, NULL);
    sluice_listener listener;
    sluice_loop *loop;
    sluice_error e = {0};
    assert_int_equal(sluice_listen(side->node, it_address(0), &link, &listener, &e),
                     SLUICE_EDEVICE);
    assert_int_equal(e.reason, SLUICE_REASON_DEVICE_REMOVED);
    must(strstr(e.text, "the node must be closed and opened again"));
    assert_int_equal(sluice_loop_open(side->node, &loop, &e), SLUICE_EDEVICE);
    side_dial(side, 7471, NULL);
    struct note note = side_expect(side, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_DEVICE_REMOVED);
    must(strstr(note.info.close_text, "the node must be closed and opened again"));
}

static int device_back(void **state) {
    (void)state;
    device_add(device, interface);
    return 0;
}

/* ---- sessions ------------------------------------------------------------------------------------ */

#define REMOVAL_CASE(name, mode, handlers)                                                         \
    { #name "/" mode, name, device_back, device_back, (void *)(uintptr_t)(handlers) }
#define BOTH(name)                                                                                 \
    TEST_EACH(name, REMOVAL_CASE(name, "polled", 0), REMOVAL_CASE(name, "handlers", 1))

BOTH(a_hundred_sessions_end_and_the_device_goes) {
    struct couple c;
    unsigned closed = 0;
    connect_many(&c, handlers_of(state), HUNDRED);
    sluice_msg *kept;
    must(sluice_alloc(c.b.node, 1000, &kept) == 0);
    removed_in_time(device_removal(device), &c.b, &closed);
    expect_all_closed(&c.b, HUNDRED - closed);
    expect_all_closed(&c.a, HUNDRED);
    side_expect_listeners_lost(&c.a, 1);
    assert_int_equal(sluice_listener_port(c.listener), SLUICE_EDEVICE);
    it_fill(kept, 1); /* messages outlive the device, not their node */
    must(it_matches(kept, 1000, 1));
    sluice_free(kept);
    expect_dead_node(&c.b);
    couple_close(&c);
}

/* Nobody polls until the device is gone: the events are there afterwards, and once. */
TEST_EACH(nobody_polls_and_the_device_goes_all_the_same,
          REMOVAL_CASE(nobody_polls_and_the_device_goes_all_the_same, "polled", 0)) {
    struct couple c;
    connect_many(&c, false, SESSIONS);
    /* Sends whose outcome nobody has fetched, and a message that is still borrowed. */
    must(side_send(&c.b, c.at_b, 5000, 7, 77) == 0);
    removed_in_time(device_removal(device), NULL, NULL);
    side_expect_removed(&c.b, SESSIONS, 77);
    couple_close(&c); /* with a's events never fetched */
}

BOTH(traffic_ends_and_the_device_goes) {
    struct peer peer;
    struct side side;
    struct note note;
    uint64_t sent = 0, outcomes = 0;
    peer_run(&peer, "session_peer", "listen", "echo", handlers_of(state) ? "polled" : "handlers");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    sluice_session session = side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    pid_t removal = 0;
    bool closed = false;
    uint64_t start = sluice_now();
    while (!closed) {
        while (side_send(&side, session, it_mixed(sent), sent, sent + 1) == 0)
            sent++;
        if (!removal && outcomes > 50) {
            removal = device_removal(device); /* in the middle of it */
            start = sluice_now();
        }
        if (side_next(&side, &note, 100 * MS)) {
            outcomes += note.event.type == SLUICE_SENT;
            closed = note.event.type == SLUICE_CLOSED;
            note_free(&note);
        }
        must(sluice_now() - start < LIMIT_NS);
    }
    must_data_equal(outcomes, sent);
    removed_in_time(removal, &side, NULL);
    assert_uint_in_range(sluice_now() - start, 0, REMOVAL_NS);
    side_close(&side, 0);
    peer_quit(&peer);
}

/* ---- not (yet) connected ------------------------------------------------------------------------- */

BOTH(an_idle_node_lets_go) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    removed_in_time(device_removal(device), NULL, NULL);
    expect_dead_node(&side);
    side_close(&side, 0);
}

/* Its GIDs are addresses of one link, which do not say of which. */
BOTH(a_device_without_an_ip_address_lets_go) {
    struct side side;
    char address[32];
    snprintf(address, sizeof address, "%s/24", it_host());
    must(command("ip", "addr", "del", address, "dev", interface) == 0);
    side_open(&side, handlers_of(state), NULL);
    sluice_link_options link = side_link(&side, NULL);
    sluice_listener anywhere;
    sluice_error e;
    assert_int_equal(sluice_listen(side.node, "*:0", &link, &anywhere, &e), 0);
    removed_in_time(device_removal(device), NULL, NULL);
    side_expect_listeners_lost(&side, 1);
    side_close(&side, 0);
    must(command("ip", "addr", "add", address, "dev", interface) == 0);
}

BOTH(listeners_let_go_and_are_told_of) {
    struct side side;
    sluice_listener listener, anywhere;
    side_open(&side, handlers_of(state), NULL);
    sluice_link_options link = side_link(&side, NULL);
    sluice_error e;
    side_listen(&side, NULL, &listener);
    assert_int_equal(sluice_listen(side.node, "*:0", &link, &anywhere, &e), 0);
    removed_in_time(device_removal(device), NULL, NULL);
    side_expect_listeners_lost(&side, 2);
    assert_int_equal(sluice_listener_port(listener), SLUICE_EDEVICE);
    assert_int_equal(sluice_listener_port(anywhere), SLUICE_EDEVICE);
    sluice_unlisten(listener);
    assert_int_equal(sluice_listener_port(listener), SLUICE_ECLOSED);
    device_add(device, interface);
    expect_dead_node(&side); /* though the device is back */
    side_close(&side, 0);
}

BOTH(an_undecided_request_and_a_dial_under_way_let_go) {
    struct couple c;
    unsigned closed = 0;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &c.listener);
    c.at_b = side_dial(&c.b, c.port, NULL);
    side_expect(&c.a, SLUICE_CONNECT);
    removed_in_time(device_removal(device), &c.b, &closed);
    expect_all_closed(&c.b, 1 - closed);
    expect_all_closed(&c.a, 1);
    couple_close(&c);
}

/* ---- what librdmacm keeps ------------------------------------------------------------------------ */

/* Without another device librdmacm cannot even learn that this one is gone. */
BOTH(the_only_device_goes_too) {
    struct couple c;
    unsigned closed = 0;
    const char *other = guest_setting("SLUICE_DEVICE_2");
    must(command("rdma", "link", "del", other) == 0);
    connect_many(&c, handlers_of(state), SESSIONS);
    removed_in_time(device_removal(device), &c.b, &closed);
    expect_all_closed(&c.b, SESSIONS - closed);
    expect_all_closed(&c.a, SESSIONS);
    couple_close(&c);
    device_add(device, interface);
    device_add(other, guest_setting("KERNEL_NET_B"));
}

/* ---- again and again ----------------------------------------------------------------------------- */

BOTH(a_device_that_comes_back_is_used_and_nothing_is_left) {
    struct guest_level before = {0};
    for (unsigned i = 0; i < 6; i++) {
        struct couple c;
        unsigned closed = 0;
        device_add(device, interface);
        connect_many(&c, handlers_of(state), SESSIONS);
        removed_in_time(device_removal(device), &c.b, &closed);
        expect_all_closed(&c.b, SESSIONS - closed);
        expect_all_closed(&c.a, SESSIONS);
        couple_close(&c);
        if (i == 2)
            before = guest_level();
    }
    struct guest_level now = guest_level_back_at(&before);
    assert_int_equal(now.fds, before.fds);
    assert_int_equal(now.threads, before.threads);
    assert_uint_in_range(now.resident, 0, before.resident + (2u << 20));
}

int main(void) {
    device = guest_setting("SLUICE_DEVICE");
    interface = guest_setting("KERNEL_NET_A");
    return tests_run(NULL, NULL);
}
