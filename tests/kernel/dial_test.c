/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_test.c - what becomes of dials that a listener does not take at once: refused with a text,
 * told to come back, one address of a name after the other. What the dialer is told, how often it
 * tried, and that nothing is left. events_test.c has what the network refuses.
 */
#include "support/guest.h"
#include "support/usage.h"

#define ALSO_HOST "10.77.0.3" /* a second address of ours, while a test needs it */
#define TWO_HOST "two.kernel-test"
#define FAR_HOST "198.51.100.7" /* no route leads there */

/* One try: each test is about what the event of that try becomes. */
static void dial_host(struct side *side, const char *host, int port, uint64_t timeout_ns) {
    guest_dial(side, host, port,
               &(sluice_link_options){.timeout_ns = timeout_ns, .flags = SLUICE_ONCE});
}

/* ---- refused ------------------------------------------------------------------------------------- */

static const char longest[] = "0123456789012345678901234567890123456789"
                              "0123456789012345678901234567890123456789"
                              "0123456789012345678901234567890123456789"; /* 120 bytes */

/* Refused with a code and a text: both arrive as they are, and nothing is tried again. */
static struct note refuse(struct couple *c, const sluice_link_options *dialing, uint16_t code,
                          const char *text) {
    c->at_b = side_dial(&c->b, c->port, dialing);
    c->at_a = side_expect(&c->a, SLUICE_CONNECT).event.session;
    assert_int_equal(sluice_refuse(c->at_a, code, text), 0);
    struct note note = side_expect(&c->b, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_REFUSED);
    assert_int_equal(note.event.vendor, code);
    assert_string_equal(note.info.close_text, text);
    assert_int_equal(note.info.close_code, code);
    assert_int_equal(note.info.tries, 1);
    side_expect_closed(&c->a, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_nothing(&c->b);
    return note;
}

LEVEL_BOTH(rejected_28_is_a_refusal) {
    struct couple c;
    if (it_iwarp())
        skip(); /* whoever is asked has been greeted there: as in a_refusal_after_a_greeting_rejects_nothing */
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &c.listener);
    for (unsigned i = 0; i < 2; i++) {
        struct note note = refuse(&c, NULL, i ? 65535 : 4711, i ? longest : "no");
        assert_int_equal(note.info.cm_event, RDMA_CM_EVENT_REJECTED);
        assert_int_equal(note.info.cm_status, 28);
    }
    assert_int_equal(cm_events("REJECTED"), 2);
    couple_close(&c);
}

/* Two that greet each other are connected when the application decides, so a frame says no. What
 * the stack says of it is that the listener hung up, if it has said so by then. */
LEVEL_BOTH(a_refusal_after_a_greeting_rejects_nothing) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &c.listener);
    const sluice_link_options dialing = {.private_data = "who", .private_bytes = 3};
    for (unsigned i = 0; i < 2; i++) {
        struct note note = refuse(&c, &dialing, i ? 65535 : 4711, i ? longest : "no");
        assert_true(note.info.cm_event == -1 ||
                    (note.info.cm_event == RDMA_CM_EVENT_DISCONNECTED && note.info.cm_status == 0));
    }
    assert_int_equal(cm_events("REJECTED"), 0);
    couple_close(&c);
}

/* ---- tried again --------------------------------------------------------------------------------- */

/* Rejected in the listener's own words, which both kinds of device call by a number of theirs. */
static struct note expect_busy(struct side *side) {
    if (it_iwarp())
        return guest_expect_end(side, SLUICE_REASON_BUSY, ECONNRESET, RDMA_CM_EVENT_REJECTED,
                                -ECONNRESET);
    return guest_expect_end(side, SLUICE_REASON_BUSY, 28, RDMA_CM_EVENT_REJECTED, 28);
}

LEVEL_BOTH(a_full_listener_is_busy_until_it_has_room) {
    struct couple c;
    struct side third;
    couple_open(&c, handlers_of(state), SLUICE_NODE(.sessions_max = 1));
    couple_connect(&c, NULL);
    side_open(&third, handlers_of(state), NULL);
    third.partner = &c.a;
    uint64_t start = sluice_now();
    guest_dial(&third, it_host(), c.port, &(sluice_link_options){.flags = SLUICE_ONCE});
    assert_int_equal(expect_busy(&third).info.tries, 1);
    guest_dial(&third, it_host(), c.port, &(sluice_link_options){.timeout_ns = 1000 * MS});
    struct note note = expect_busy(&third);
    assert_uint_in_range(sluice_now() - start, 900 * MS, 20000 * MS);
    assert_uint_in_range(note.info.tries, 2, 12); /* pauses of 10 ms at least, and they double */
    /* And one that waits is let in as soon as the other is gone. */
    sluice_session waiting =
        side_dial(&third, c.port, &(sluice_link_options){.timeout_ns = LIMIT_NS});
    sluice_session_info info = {.size = sizeof info};
    while (info.tries < 2) {
        must(!side_next(&third, &note, MS) && sluice_now() < start + LIMIT_NS);
        must(sluice_session_get_info(waiting, &info) == 0);
    }
    sluice_hangup(c.at_b, 0);
    side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    side_expect(&third, SLUICE_UP);
    side_expect(&c.a, SLUICE_UP);
    side_close(&third, 0);
    couple_close(&c);
}

/* Whether the device answers for this address: the kernel enters it some time after `ip addr add`. */
static bool device_has(const char *host) {
    struct side side;
    struct note note;
    side_open(&side, false, NULL);
    dial_host(&side, host, 9, 0);
    must(side_next(&side, &note, LIMIT_NS));
    side_close(&side, 0);
    return note.event.reason == SLUICE_REASON_NO_LISTENER;
}

/* A name with two addresses of the device. */
static int two_addresses(void **state) {
    (void)state;
    FILE *hosts = fopen("/etc/hosts", "a"); /* the guest's own */
    must(hosts && guest_setting("KERNEL_NET_A"));
    must(fprintf(hosts, "%s %s\n%s %s\n", it_host(), TWO_HOST, ALSO_HOST, TWO_HOST) > 0);
    must(fclose(hosts) == 0);
    must(command("ip", "addr", "add", ALSO_HOST "/24", "dev", guest_setting("KERNEL_NET_A")) == 0);
    uint64_t until = sluice_now() + LIMIT_NS;
    while (!device_has(ALSO_HOST))
        must(sluice_now() < until);
    return guest_remember(state);
}

static int one_address(void **state) {
    must(command("ip", "addr", "del", ALSO_HOST "/24", "dev", guest_setting("KERNEL_NET_A")) == 0);
    must(command("sed", "-i", "/ " TWO_HOST "$/d", "/etc/hosts") == 0);
    return guest_compare(state); /* the last, for it ends where it fails */
}

#define NAME_CASE(name, mode, handlers)                                                            \
    { #name "/" mode, name, two_addresses, one_address, (void *)(uintptr_t)(handlers) }
#define NAME_BOTH(name)                                                                            \
    TEST_EACH(name, NAME_CASE(name, "polled", 0), NAME_CASE(name, "handlers", 1))

NAME_BOTH(every_address_of_a_name_is_asked_before_nobody_listens) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    guest_dial(&side, TWO_HOST, 9, NULL);
    struct note note = guest_expect_nobody(&side);
    assert_int_equal(note.info.tries, 2); /* once each: nobody waits for a listener to come */
    assert_int_equal(cm_events("REJECTED"), it_iwarp() ? 0 : 2);
    side_close(&side, 0);
}

NAME_BOTH(the_second_address_of_a_name_is_as_good) {
    struct couple c;
    sluice_error e = {0};
    couple_open(&c, handlers_of(state), NULL);
    sluice_link_options link = side_link(&c.a, NULL);
    must(sluice_listen(c.a.node, ALSO_HOST ":7471", &link, &c.listener, &e) == 0);
    guest_dial(&c.b, TWO_HOST, 7471, NULL);
    struct note note = side_expect(&c.b, SLUICE_UP);
    side_expect(&c.a, SLUICE_UP);
    sluice_session_info info = {.size = sizeof info};
    must(sluice_session_get_info(note.event.session, &info) == 0);
    assert_int_equal(info.tries, 2);
    assert_string_equal(info.peer, ALSO_HOST ":7471");
    couple_close(&c);
}

/* ---- nothing is left ----------------------------------------------------------------------------- */

/* What a dial that ends in vain takes is given back: memory too. */
LEVEL_BOTH(dials_in_vain_leave_no_memory) {
    struct couple c;
    size_t before = 0;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &c.listener);
    for (unsigned i = 0; i < 60; i++) {
        dial_host(&c.b, it_host(), 9, 0);
        side_expect_closed(&c.b, SLUICE_REASON_NO_LISTENER);
        dial_host(&c.b, FAR_HOST, 9, 0);
        side_expect_closed(&c.b, SLUICE_REASON_UNREACHABLE);
        refuse(&c, NULL, 1, longest);
        if (i == 9)
            before = usage_resident();
    }
    size_t now = usage_resident();
    print_message("%zd KiB more\n", ((ssize_t)now - (ssize_t)before) / 1024);
    /* An id is a kilobyte and a session eight: one of 150 dials would show. */
    assert_uint_in_range(now, 0, before + (128u << 10));
    couple_close(&c);
}

int main(void) {
    return tests_run(guest_warm_up, NULL);
}
