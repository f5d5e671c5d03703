/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sizes_test.c - every size arrives whole and in order, between two processes and in one, in
 * handler mode and polled; and nothing larger than agreed is taken.
 */
#include "support/side.h"
#include "support/peer.h"

#define KIB 1024u
#define MIB (1024u * 1024u)

static sluice_session_info info_of(sluice_session session) {
    sluice_session_info info = {.size = sizeof info};
    must(sluice_session_get_info(session, &info) == 0);
    return info;
}

/* There and back again: what comes back is what went. */
static void round_trip(struct side *side, sluice_session session, size_t bytes, uint64_t seed) {
    must(side_send(side, session, bytes, seed, seed) == 0);
    bool sent = false, back = false;
    while (!sent || !back) {
        struct note note;
        must_data(side_next(side, &note, LIMIT_NS));
        if (note.event.type == SLUICE_SENT) {
            must(note.event.status == 0);
            must_data(!sent && note.event.tag == seed && note.event.bytes == bytes);
            sent = true;
        } else {
            must(note.event.type == SLUICE_MESSAGE);
            must_data(!back && note.event.bytes == bytes);
            must(it_matches(note.msg, bytes, seed));
            back = true;
        }
        note_free(&note);
    }
}

BOTH_MODES(every_size_returns_from_another_process) {
    struct peer peer;
    struct side side;
    for (int peer_handlers = 0; peer_handlers < 2; peer_handlers++) {
        peer_run(&peer, "session_peer", "listen", "echo", "max=4194304",
                 peer_handlers ? "handlers" : "polled");
        int port = atoi(peer_expect(&peer, "port "));
        side_open(&side, handlers_of(state), SLUICE_NODE(.message_bytes_max = 4 * MIB));
        sluice_session session = side_dial(&side, port, NULL);
        side_expect(&side, SLUICE_UP);
        peer_expect(&peer, "up ");
        uint32_t eager = info_of(session).eager_bytes;
        uint64_t cap = info_of(session).message_bytes_max;
        must(cap == 4 * MIB && eager > 64 && eager < 64 * KIB);
        const size_t sizes[] = {0,         1,     7,         8,         64,       4096,
                                eager - 1, eager, eager + 1, 2 * eager, 64 * KIB, 64 * KIB + 1,
                                MIB - 1,   MIB,   MIB + 1,   cap - 1,   cap};
        for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            round_trip(&side, session, sizes[i], i + 1);
        side_close(&side, 0);
        peer_expect(&peer, "closed ");
        must_data(peer_number(&peer, "accepted") == peer_number(&peer, "outcomes"));
        peer_quit(&peer);
    }
}

BOTH_MODES(nothing_larger_than_agreed_is_taken) {
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "echo", "max=1048576"); /* the smaller one counts */
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), SLUICE_NODE(.message_bytes_max = 8 * MIB));
    sluice_session session = side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    must(info_of(session).message_bytes_max == MIB);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(side_send(&side, session, MIB + 1, 1, 1), SLUICE_EMSGSIZE);
        round_trip(&side, session, MIB, i + 1); /* and the session is as good as before */
    }
    sluice_msg *msg;
    assert_int_equal(sluice_alloc(side.node, 8 * MIB + 1, &msg), SLUICE_EMSGSIZE);
    assert_int_equal(sluice_alloc(side.node, 8 * MIB, &msg), 0);
    assert_int_equal(sluice_send(session, msg, NULL), SLUICE_EMSGSIZE);
    sluice_trim(msg, 0);
    assert_int_equal(sluice_send(session, msg, NULL), 0); /* it is still ours to send */
    struct note note = side_expect(&side, SLUICE_MESSAGE);
    must(sluice_size(note.msg) == 0);
    note_free(&note);
    uint8_t *plain = calloc(1, MIB + 1);
    assert_int_equal(sluice_send_copy(session, plain, MIB + 1, NULL), SLUICE_EMSGSIZE);
    free(plain);
    side_close(&side, 0);
    peer_quit(&peer);
}

BOTH_MODES(frames_of_every_agreed_size_carry_everything) {
    const uint32_t mine[] = {512, 512, 65536, 65536, 5000},
                   theirs[] = {512, 65536, 512, 65536, 900};
    for (unsigned i = 0; i < 5; i++) {
        struct peer peer;
        struct side side;
        char eager[32];
        snprintf(eager, sizeof eager, "eager=%u", (unsigned)theirs[i]);
        peer_run(&peer, "session_peer", "listen", "echo", eager);
        int port = atoi(peer_expect(&peer, "port "));
        side_open(&side, handlers_of(state), SLUICE_NODE(.eager_bytes = mine[i]));
        sluice_session session = side_dial(&side, port, NULL);
        side_expect(&side, SLUICE_UP);
        uint32_t frame = info_of(session).eager_bytes;
        must(frame < mine[i] && frame < theirs[i]);
        const size_t sizes[] = {0, frame - 1, frame, frame + 1, 3 * frame + 5, 300000};
        for (unsigned k = 0; k < 6; k++)
            round_trip(&side, session, sizes[k], k + 1);
        side_close(&side, 0);
        peer_quit(&peer);
    }
}

/* Both ends send all the time, sizes mixed; the peer checks its half, we check ours. */
BOTH_MODES(a_mixed_stream_keeps_its_order_both_ways) {
    struct peer peer;
    struct side side;
    enum { MESSAGES = 3000 };
    peer_run(&peer, "session_peer", "listen", "flood", handlers_of(state) ? "polled" : "handlers");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    sluice_session session = side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    uint64_t sent = 0, outcomes = 0, received = 0, last = 0;
    static uint8_t told[MESSAGES + 1];
    uint32_t frame = info_of(session).eager_bytes;
    bool full = false;
    memset(told, 0, sizeof told);
    while (outcomes < MESSAGES || received < MESSAGES) {
        while (!full && sent < MESSAGES) {
            int status = side_send(&side, session, it_mixed(sent), sent, sent + 1);
            must(status == 0 || status == SLUICE_EAGAIN);
            full = status == SLUICE_EAGAIN;
            sent += status == 0;
        }
        struct note note;
        must_data(side_next(&side, &note, LIMIT_NS));
        if (note.event.type == SLUICE_MESSAGE) {
            must(it_matches(note.msg, it_mixed(received), received));
            received++;
        } else if (note.event.type == SLUICE_SENT) {
            uint64_t tag = note.event.tag;
            must(note.event.status == 0);
            must_data(tag >= 1 && tag <= sent && told[tag]++ == 0);
            outcomes++;
            if (note.event.bytes <= frame) { /* what is larger ends when the peer has it */
                must_data(tag > last);
                last = tag;
            }
        } else {
            must(note.event.type == SLUICE_WRITABLE && full);
            full = false;
        }
        note_free(&note);
    }
    peer_expect(&peer, "up ");
    peer_tell(&peer, "count");
    peer_expect(&peer, "count ");
    must(peer_number(&peer, "received") >= 1);
    side_close(&side, 0);
    peer_expect(&peer, "closed ");
    must_data(peer_number(&peer, "received") == MESSAGES);
    must_data(peer_number(&peer, "accepted") == peer_number(&peer, "outcomes"));
    peer_quit(&peer);
}

/* One process, plain memory, any thread's own copy. */
BOTH_MODES(copies_arrive_too) {
    struct couple c;
    uint8_t data[3000];
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, NULL);
    for (size_t bytes = 0; bytes <= sizeof data; bytes += 375) {
        for (size_t i = 0; i < bytes; i++)
            data[i] = it_byte(i, bytes);
        must(sluice_send_copy(c.at_b, bytes ? data : NULL, bytes, NULL) == 0);
        memset(data, 0xee, sizeof data);
        struct note note = side_expect(&c.a, SLUICE_MESSAGE);
        must(it_matches(note.msg, bytes, bytes));
        note_free(&note);
    }
    couple_close(&c);
}
