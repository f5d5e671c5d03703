/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * events_test.c - the rdma_cm events that rxe and siw can give, provoked against live nodes: what the
 * application sees, and that nothing is left behind.
 *
 * Each test also asks whether the event came, so that none passes because something else did. Two
 * are missing for a reason: CONNECT_ERROR comes from librdmacm only when a QP is on the id, which
 * this library never does; ROUTE_ERROR needs an InfiniBand path query.
 */
#include "support/guest.h"
#include "support/peer.h"

#include <arpa/inet.h>

#define GONE_HOST "10.77.0.99"  /* of the subnet, and nobody has it */
#define MUTE_HOST "10.77.0.50"  /* likewise; gets a neighbour entry */
#define FAR_HOST "198.51.100.7" /* no route leads there */
#define MAC_ONE "02:00:00:00:00:50"
#define MAC_TWO "02:00:00:00:00:51"

/* One try: each test is about what the event of that try becomes. */
static void dial_host(struct side *side, const char *host, int port, uint64_t timeout_ns) {
    guest_dial(side, host, port,
               &(sluice_link_options){.timeout_ns = timeout_ns, .flags = SLUICE_ONCE});
}

static void neighbour(const char *host, const char *mac) {
    must(command("ip", "neigh", "replace", host, "lladdr", mac, "dev",
                 guest_setting("KERNEL_NET_A"), "nud", "permanent") == 0);
}

static void neighbour_gone(const char *host) {
    command("ip", "neigh", "del", host, "dev", guest_setting("KERNEL_NET_A"));
}

/* Connections that TCP has begun to MUTE_HOST: the second address of a line is its, state 2 is SYN_SENT. */
static unsigned long syns_to_mute_host(void) {
    struct in_addr host;
    char line[512];
    unsigned long n = 0;
    unsigned address, state;
    must(inet_pton(AF_INET, MUTE_HOST, &host) == 1);
    FILE *file = fopen("/proc/net/tcp", "re");
    must(file);
    while (fgets(line, sizeof line, file))
        n += sscanf(line, " %*u: %*x:%*x %x:%*x %x", &address, &state) == 2 &&
             address == host.s_addr && state == 2;
    fclose(file);
    return n;
}

/*
 * Packets that the device has sent, none but those of the request while this test dials. (The kernel counts a request
 * itself when it is answered or given up.) On iWARP: connections that were begun and not answered.
 */
static unsigned long requests_sent(void) {
    char path[128];
    unsigned long n = 0;
    if (it_iwarp())
        return syns_to_mute_host();
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/sent_pkts",
             guest_setting("SLUICE_DEVICE"));
    FILE *file = fopen(path, "re");
    must(file && fscanf(file, "%lu", &n) == 1);
    fclose(file);
    return n;
}

/* Until a request of this side is on its way; nothing else happens meanwhile. */
static void await_request(struct side *side, unsigned long sent_before) {
    uint64_t until = sluice_now() + LIMIT_NS;
    struct note note;
    while (requests_sent() == sent_before)
        must(!side_next(side, &note, 10 * MS) && sluice_now() < until);
}

/* ---- on the way up ------------------------------------------------------------------------------- */

LEVEL_BOTH(the_node_is_on_the_kernels_device) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    sluice_node_info info = {.size = sizeof info};
    assert_int_equal(sluice_node_get_info(side.node, &info), 0);
    assert_string_equal(info.device, guest_setting("SLUICE_DEVICE"));
    assert_int_equal(info.software, 0);
    side_close(&side, 0);
}

LEVEL_BOTH(a_session_comes_up_and_ends) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, NULL);
    assert_int_equal(cm_events("ADDR_RESOLVED"), 1);
    assert_int_equal(cm_events("ROUTE_RESOLVED"), 1);
    assert_int_equal(cm_events("CONNECT_REQUEST"), 1);
    /* The dialer's QP is not on the id, so the answer is an event of its own; but on iWARP, where the kernel
     * drives the QP, the connection is up with it. The listener's ESTABLISHED comes in any case. */
    assert_int_equal(cm_events("CONNECT_RESPONSE"), it_iwarp() ? 0 : 1);
    assert_int_equal(cm_events("ESTABLISHED"), it_iwarp() ? 2 : 1);
    must(side_send(&c.b, c.at_b, 70000, 1, 0) == 0);
    struct note note = side_expect(&c.a, SLUICE_MESSAGE);
    must(it_matches(note.msg, 70000, 1));
    note_free(&note);
    sluice_hangup(c.at_b, 0);
    side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    couple_close(&c);
}

LEVEL_BOTH(a_killed_peer_is_a_disconnect) {
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "idle");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    peer_expect(&peer, "up "); /* else its kernel may reject what was not confirmed yet */
    peer_kill(&peer);
    struct note note = side_expect(&side, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_PEER_LOST);
    /* The kernel's word; or, should it come late, that of a frame nobody acknowledged. */
    if (note.info.wc_status <= 0)
        assert_true(cm_events("DISCONNECTED") >= 1);
    side_close(&side, 0);
}

/*
 * TIMEWAIT_EXIT comes half a second after a disconnect, if the id still lives. It does while nobody
 * polls: the QP's end needs the loop, and the id waits for that. Single turns, so that the loop is
 * left alone exactly then.
 */
LEVEL_TEST(the_end_of_timewait_changes_nothing, "polled", 0) {
    struct side a, b;
    if (it_iwarp())
        skip(); /* TCP has its own, and the kernel tells nobody of it */
    side_open(&a, true, NULL);
    side_open(&b, false, NULL);
    sluice_session at_b = side_dial(&b, side_listen(&a, NULL, NULL), NULL);
    uint64_t until = sluice_now() + LIMIT_NS;
    sluice_event event = {0};
    while (event.type != SLUICE_UP) {
        must(sluice_poll(b.loop, &event, 1, 10 * MS) >= 0);
        must(sluice_now() < until);
    }
    side_expect(&a, SLUICE_UP);
    sluice_hangup(at_b, 0);
    must(sluice_poll(b.loop, NULL, 0, 0) == 0); /* the farewell is posted */
    side_expect_closed(&a, SLUICE_REASON_PEER_CLOSE);
    unsigned long seen = 0;
    for (unsigned turn = 0; turn < 8 && seen == 0; turn++) {
        if (turn > 0)
            must(sluice_poll(b.loop, NULL, 0, 0) == 0);
        uint64_t wait = sluice_now() + 4000 * MS; /* timewait is two seconds */
        while ((seen = cm_events("TIMEWAIT_EXIT")) == 0 && sluice_now() < wait)
            ;
    }
    assert_uint_in_range(seen, 1, 2);
    side_expect_closed(&b, SLUICE_REASON_LOCAL_CLOSE);
    side_close(&b, 0);
    side_close(&a, 0);
}

/* ---- refusals ------------------------------------------------------------------------------------ */

LEVEL_BOTH(rejected_8_is_nobody_listening) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    dial_host(&side, it_host(), 9, 0);
    guest_expect_nobody(&side);
    assert_int_equal(cm_events("REJECTED"), it_iwarp() ? 0 : 1);
    side_close(&side, 0);
}

/* ---- nobody there -------------------------------------------------------------------------------- */

LEVEL_BOTH(an_address_nobody_has_is_unreachable) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    uint64_t start = sluice_now();
    dial_host(&side, GONE_HOST, 7471, 2000 * MS);
    struct note note = side_expect(&side, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_UNREACHABLE);
    assert_true(note.event.vendor == ETIMEDOUT || note.event.vendor == EHOSTUNREACH);
    assert_int_equal(note.info.cm_event, RDMA_CM_EVENT_ADDR_ERROR);
    assert_int_equal(note.info.cm_status, -(int)note.event.vendor);
    assert_uint_in_range(sluice_now() - start, 0, 10000 * MS);
    assert_uint_in_range(cm_events("ADDR_ERROR"), 1, 16); /* one for each slice of the time */
    side_close(&side, 0);
}

LEVEL_BOTH(a_network_without_a_route_is_unreachable_at_once) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    uint64_t start = sluice_now();
    dial_host(&side, FAR_HOST, 7471, 30000 * MS);
    guest_expect_end(&side, SLUICE_REASON_UNREACHABLE, ENETUNREACH, -1, -1);
    assert_uint_in_range(sluice_now() - start, 0, 10000 * MS);
    side_close(&side, 0);
}

/* The request is on its way to a host that does not answer when the kernel learns that it moved. */
LEVEL_BOTH(unreachable_ends_a_dial_at_once) {
    struct side side;
    if (it_iwarp())
        skip(); /* TCP goes on to where the host is now: closing_does_not_wait_for_a_black_hole instead */
    side_open(&side, handlers_of(state), NULL);
    neighbour(MUTE_HOST, MAC_ONE);
    unsigned long sent = requests_sent();
    dial_host(&side, MUTE_HOST, 7471, 55000 * MS);
    await_request(&side, sent);
    uint64_t start = sluice_now();
    neighbour(MUTE_HOST, MAC_TWO);
    guest_expect_end(&side, SLUICE_REASON_UNREACHABLE, ETIMEDOUT, RDMA_CM_EVENT_UNREACHABLE,
                     -ETIMEDOUT);
    assert_uint_in_range(sluice_now() - start, 0, 10000 * MS);
    assert_int_equal(cm_events("UNREACHABLE"), 1);
    neighbour_gone(MUTE_HOST);
    side_close(&side, 0);
}

/*
 * A host that never answers: a dial ends when its time is over, and closing the node waits neither for that
 * nor, on iWARP, for the call inside of which the kernel connects, which takes minutes.
 */
LEVEL_BOTH(closing_does_not_wait_for_a_black_hole) {
    struct side side;
    struct note note;
    neighbour(MUTE_HOST, MAC_ONE);
    side_open(&side, handlers_of(state), NULL);
    dial_host(&side, MUTE_HOST, 7471, 1000 * MS);
    note = side_expect(&side, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_TIMEOUT);
    unsigned long sent = requests_sent();
    for (unsigned i = 0; i < 8; i++) /* more than go to one host at a time */
        dial_host(&side, MUTE_HOST, 7471, 55000 * MS);
    uint64_t until = sluice_now() + LIMIT_NS;
    while (cm_events("ROUTE_RESOLVED") < 9)
        must(!side_next(&side, &note, 10 * MS) && sluice_now() < until);
    await_request(&side, sent);
    uint64_t start = sluice_now();
    side_close(&side, 0);
    assert_uint_in_range(sluice_now() - start, 0, 5000 * MS);
    /* Calls that were left end now: the host is there, and says that nobody listens. */
    neighbour_gone(MUTE_HOST);
    must(command("ip", "addr", "add", MUTE_HOST "/24", "dev", guest_setting("KERNEL_NET_A")) == 0);
    struct guest_level now = guest_level();
    for (until = sluice_now() + LIMIT_NS;
         now.threads > guest_before.threads || now.fds > guest_before.fds;) {
        must(sluice_now() < until);
        now = guest_level();
    }
    must(command("ip", "addr", "del", MUTE_HOST "/24", "dev", guest_setting("KERNEL_NET_A")) == 0);
}

/* The side that looked the peer up is told that it moved. Packets come through, so nothing ends. */
LEVEL_BOTH(unreachable_ends_no_live_session_that_gets_through) {
    struct couple c;
    if (it_iwarp())
        skip(); /* likewise; and what goes to an address of the own host asks for no neighbour */
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, NULL);
    neighbour(it_host(), MAC_ONE);
    uint64_t until = sluice_now() + LIMIT_NS;
    struct note note;
    while (cm_events("UNREACHABLE") == 0)
        must(!side_next(&c.b, &note, 10 * MS) && sluice_now() < until);
    must(side_send(&c.b, c.at_b, 70000, 1, 0) == 0);
    note = side_expect(&c.a, SLUICE_MESSAGE);
    must(it_matches(note.msg, 70000, 1));
    note_free(&note);
    neighbour_gone(it_host());
    sluice_hangup(c.at_b, 0);
    side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    couple_connect(&c, NULL); /* and the next one is as good as ever */
    couple_close(&c);
}

/* ---- the wrong device ---------------------------------------------------------------------------- */

LEVEL_BOTH(an_address_behind_another_device_is_refused) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    dial_host(&side, guest_setting("SLUICE_TEST_HOST_2"), 7471, 0);
    struct note note = side_expect(&side, SLUICE_CLOSED);
    assert_int_equal(note.event.reason, SLUICE_REASON_WRONG_DEVICE);
    side_close(&side, 0);
}

int main(void) {
    return tests_run(guest_warm_up, NULL);
}
