/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory_test.c - one-sided operations between processes: they sum up, they are in order, a target that
 * is killed leaves no operation without its outcome, and what is revoked is out of reach.
 */
#include "support/side.h"
#include "support/peer.h"

#include <sluice/memory.h>

#define BYTES 100000u

struct target {
    struct side side;
    sluice_region *region;
    sluice_token token;
    int port;
};

static void target_open(struct target *t, bool handlers) {
    uint32_t rights = it_rights();
    side_open(&t->side, handlers, NULL);
    must(sluice_region_open(t->side.node, NULL, 1 << 20, rights, &t->region, NULL) == 0);
    must(sluice_region_token(t->region, 0, 1 << 20, rights, &t->token) == 0);
    t->port = side_listen(&t->side, NULL, NULL);
}

static void peer_dials(struct peer *peer, const struct target *t, const char *what,
                       const char *count) {
    char address[32];
    snprintf(address, sizeof address, "%s:%d", what, t->port);
    peer_run(peer, "memory_peer", address, count);
}

BOTH_MODES(atomics_of_processes_sum_up) {
    enum { PEERS = 3, EACH = 1000 };
    struct target t;
    struct peer peers[PEERS];
    struct note note;
    uint64_t sum = 0, value;
    if (it_iwarp())
        skip(); /* what_a_device_lacks_is_refused_with_its_reason */
    target_open(&t, handlers_of(state));
    for (unsigned i = 0; i < PEERS; i++)
        peer_dials(&peers[i], &t, "add", "1000");
    /* Nobody begins before all are there. */
    sluice_session sessions[PEERS];
    for (unsigned i = 0; i < PEERS; i++) {
        must(side_next(&t.side, &note, LIMIT_NS) && note.event.type == SLUICE_UP);
        sessions[i] = note.event.session;
        note_free(&note);
    }
    for (unsigned i = 0; i < PEERS; i++)
        must(sluice_send_copy(sessions[i], &t.token, sizeof t.token, NULL) == 0);
    for (unsigned i = 0; i < PEERS; i++) {
        while (!peer_ready(&peers[i]))
            if (side_next(&t.side, &note, MS)) /* a device may need us to make progress */
                must(!"an event");
        peer_expect(&peers[i], "done ");
        sum += (uint64_t)peer_number(&peers[i], "sum");
    }
    memcpy(&value, sluice_region_data(t.region), sizeof value);
    must(value == PEERS * EACH);
    must_data(sum == value * (value - 1) / 2); /* each number was seen by exactly one */
    for (unsigned i = 0; i < PEERS; i++)
        peer_kill(&peers[i]);
    side_close(&t.side, 0);
}

BOTH_MODES(a_notification_finds_the_bytes_of_another_process) {
    enum { COUNT = 100 };
    struct target t;
    struct peer peer;
    struct note note;
    target_open(&t, handlers_of(state));
    peer_dials(&peer, &t, "put", "100");
    must(side_next(&t.side, &note, LIMIT_NS) && note.event.type == SLUICE_UP);
    sluice_session session = note.event.session;
    must(sluice_send_copy(session, &t.token, sizeof t.token, NULL) == 0);
    for (unsigned i = 0; i < COUNT; i++) {
        const uint8_t *data = sluice_region_data(t.region);
        must(side_next(&t.side, &note, LIMIT_NS) && note.event.type == SLUICE_NOTIFIED);
        must(note.event.value == i);
        for (size_t k = 0; k < BYTES; k++)
            must(data[k] == it_byte(k, i));
        must(sluice_send_copy(session, &i, sizeof i, NULL) == 0);
    }
    peer_expect(&peer, "done ");
    peer_kill(&peer);
    side_close(&t.side, 0);
}

/* Puts, gets and atomics until the target dies: each has one outcome, and the region is free then. */
BOTH_MODES(a_killed_target_leaves_no_outcome_out) {
    for (unsigned round = 0; round < 5; round++) {
        struct side side;
        struct peer peer;
        struct note note;
        sluice_region *region;
        sluice_token token;
        uint64_t accepted = 0, outcomes = 0, good = 0;
        bool known = false, closed = false, killed = false;
        peer_run(&peer, "memory_peer", "target");
        side_open(&side, handlers_of(state), NULL);
        must(sluice_region_open(side.node, NULL, 1 << 20, 0, &region, NULL) == 0);
        sluice_session s = side_dial(&side, atoi(peer_expect(&peer, "port ")), NULL);
        while (!closed) {
            if (known && !killed && good > 20 + 100 * round) {
                peer_kill(&peer);
                killed = true;
            }
            int status = known ? 0 : SLUICE_EAGAIN;
            while (status == 0) {
                const sluice_send_options *o = SLUICE_SEND(.tag = accepted + 1);
                uint64_t n = accepted % 11 == 0 ? 1 << 20 : 5000;
                status = accepted % 4 == 0 ? sluice_get(s, region, 0, n, &token, 0, o)
                         : accepted % 4 == 1 && !it_iwarp()
                             ? sluice_fetch_add(s, &token, 0, 1, o)
                             : sluice_put(s, region, 0, n, &token, 0, o);
                must(status == 0 || status == SLUICE_EAGAIN || status == SLUICE_ECLOSED);
                accepted += status == 0;
            }
            must(side_next(&side, &note, LIMIT_NS));
            if (note.event.type == SLUICE_MESSAGE) {
                memcpy(&token, sluice_data(note.msg), sizeof token);
                known = true;
            } else if (note.event.type == SLUICE_DONE) {
                must(note.event.status == 0 || note.event.status == SLUICE_EUNKNOWN ||
                     note.event.status == SLUICE_ECLOSED);
                outcomes++;
                good += note.event.status == 0;
            } else if (note.event.type == SLUICE_CLOSED) {
                if (!killed || note.event.reason != SLUICE_REASON_PEER_LOST)
                    fprintf(stderr, "%s (%s), vendor %u, killed: %d\n",
                            sluice_reason_text(note.event.reason), note.info.close_text,
                            note.event.vendor, killed);
                must(killed && note.event.reason == SLUICE_REASON_PEER_LOST);
                closed = true;
            }
            note_free(&note);
        }
        must_data(outcomes == accepted);
        must(sluice_region_close(region) == 0);
        side_close(&side, 0);
    }
}

/*
 * The one who tries is told; the target says so too where its device does. On iWARP a refused WRITE ends the
 * connection, and neither side is told why.
 */
BOTH_MODES(what_is_revoked_is_out_of_reach_of_other_processes) {
    struct target t;
    struct peer peer;
    struct note note;
    target_open(&t, handlers_of(state));
    memset(sluice_region_data(t.region), 0xee, 1 << 20);
    sluice_token old = t.token;
    must(sluice_region_revoke(t.region, NULL) == 0);
    peer_dials(&peer, &t, "put", "1");
    must(side_next(&t.side, &note, LIMIT_NS) && note.event.type == SLUICE_UP);
    must(sluice_send_copy(note.event.session, &old, sizeof old, NULL) == 0);
    must(side_next(&t.side, &note, LIMIT_NS) && note.event.type == SLUICE_CLOSED);
    must(note.event.reason == SLUICE_REASON_ACCESS ||
         (!it_tells_target() && note.event.reason == SLUICE_REASON_PEER_LOST));
    peer_expect(&peer, "done ");
    peer_expect(&peer, "closed ");
    long reason = peer_number(&peer, "reason");
    must(reason == SLUICE_REASON_ACCESS || (it_iwarp() && reason == SLUICE_REASON_PEER_LOST));
    long status_told = peer_number(&peer, "status");
    must(status_told == -SLUICE_EACCESS || (it_iwarp() && status_told == -SLUICE_EUNKNOWN));
    const uint8_t *data = sluice_region_data(t.region);
    for (size_t i = 0; i < 1 << 20; i++)
        must(data[i] == 0xee);
    assert_int_equal(peer_join(&peer), 0);
    side_close(&t.side, 0);
}

/* What a device does not have is refused by the call that asks for it, in words. */
BOTH_MODES(what_a_device_lacks_is_refused_with_its_reason) {
    struct side side;
    sluice_region *region;
    sluice_error e = {0};
    side_open(&side, handlers_of(state), NULL);
    int status = sluice_region_open(side.node, NULL, 4096, SLUICE_MAY_ATOMIC, &region, &e);
    must(status == (it_iwarp() ? SLUICE_EDEVICE : 0));
    if (status == 0)
        must(sluice_region_close(region) == 0);
    else
        must(strstr(e.text, "has no atomic operations"));
    side_close(&side, 0);
    sluice_node *node = NULL;
    const sluice_node_options *o =
        SLUICE_NODE(.device = it_device(), .rendezvous = SLUICE_RENDEZVOUS_WRITE);
    status = sluice_open(&node, o, &e);
    must(status == (it_iwarp() ? SLUICE_EDEVICE : 0));
    if (status == 0)
        sluice_close(node, 0);
    else
        must(strstr(e.text, "has no WRITE with immediate data"));
}

/* A get of many chunks, while the other side sleeps: of each byte what was put there. */
BOTH_MODES(what_is_got_is_what_was_put) {
    enum { BIG = 1 << 20 };
    struct side side;
    struct peer peer;
    sluice_region *region;
    sluice_token token;
    peer_run(&peer, "memory_peer", "target");
    side_open(&side, handlers_of(state), NULL);
    must(sluice_region_open(side.node, NULL, BIG, 0, &region, NULL) == 0);
    sluice_session s = side_dial(&side, atoi(peer_expect(&peer, "port ")), NULL);
    side_expect(&side, SLUICE_UP);
    struct note note = side_expect(&side, SLUICE_MESSAGE);
    memcpy(&token, sluice_data(note.msg), sizeof token);
    note_free(&note);
    uint8_t *data = sluice_region_data(region);
    for (size_t i = 0; i < BIG; i++)
        data[i] = it_byte(i, 7);
    must(sluice_put(s, region, 0, BIG, &token, 0, SLUICE_SEND(.tag = 1)) == 0);
    note = side_expect(&side, SLUICE_DONE);
    must(note.event.status == 0);
    static const uint64_t sizes[] = {1, 4095, 100000, BIG};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        memset(data, 0, BIG);
        must(sluice_get(s, region, 0, sizes[k], &token, 0, SLUICE_SEND(.tag = 2)) == 0);
        note = side_expect(&side, SLUICE_DONE);
        must(note.event.status == 0);
        for (size_t i = 0; i < BIG; i++)
            must(data[i] == (i < sizes[k] ? it_byte(i, 7) : 0));
    }
    peer_kill(&peer);
    side_expect(&side, SLUICE_CLOSED);
    must(sluice_region_close(region) == 0);
    side_close(&side, 0);
}
