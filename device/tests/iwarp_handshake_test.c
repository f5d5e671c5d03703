/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_handshake_test.c - MPA's request and reply: their bytes, from pieces of any size; what is malformed; and what two
 * ends agree on, Linux's Soft-iWARP being one of them.
 */
#include "support/test.h"

#include <string.h>

#include "soft/iwarp/handshake.h"
#include "support/rows.h"

#define REQUEST "MPA ID Req Frame"
#define REPLY "MPA ID Rep Frame"

/* In pieces of `piece` bytes; 0: of sizes that only look random. Ends at the first that is bad or completes it. */
static enum iwarp_parsed feed(struct iwarp_handshake_parser *p, bool reply, const uint8_t *in,
                              size_t bytes, size_t piece, size_t *taken,
                              struct iwarp_handshake *h) {
    enum iwarp_parsed parsed = IWARP_PARSED_MORE;
    uint32_t seed = (uint32_t)bytes;
    *taken = 0;
    iwarp_handshake_expect(p, reply);
    while (parsed == IWARP_PARSED_MORE && *taken < bytes) {
        seed = seed * 1664525 + 1013904223;
        size_t n = piece > 0 ? piece : 1 + (seed >> 24) % 40, left = bytes - *taken, took;
        parsed = iwarp_handshake_take(p, in + *taken, n < left ? n : left, &took, h);
        *taken += took;
        if (parsed == IWARP_PARSED_MORE)
            assert_int_equal(took, n < left ? n : left); /* nothing is left while more is wanted */
    }
    return parsed;
}

static const size_t pieces[] = {SIZE_MAX / 2, 1, 2, 3, 7, 19, 20, 21, 0};

static void assert_same(const struct iwarp_handshake *a, const struct iwarp_handshake *b) {
    assert_int_equal(a->reply, b->reply);
    assert_int_equal(a->revision, b->revision);
    assert_int_equal(a->markers, b->markers);
    assert_int_equal(a->crc, b->crc);
    assert_int_equal(a->reject, b->reject);
    assert_int_equal(a->enhanced, b->enhanced);
    assert_int_equal(a->peer_to_peer, b->peer_to_peer);
    assert_int_equal(a->rtr_send, b->rtr_send);
    assert_int_equal(a->rtr_write, b->rtr_write);
    assert_int_equal(a->rtr_read, b->rtr_read);
    assert_int_equal(a->ird, b->ird);
    assert_int_equal(a->ord, b->ord);
    assert_int_equal(a->extended, b->extended);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
}

/* ---- bytes ----------------------------------------------------------------------------------------------- */

struct written {
    struct iwarp_handshake h;
    const char *data;
    const char *bytes;
    size_t count;
};

static void a_handshake_has_these_bytes(void **state) {
    const struct written *w = *state;
    struct iwarp_handshake h = w->h, back;
    struct iwarp_handshake_parser p;
    uint8_t out[IWARP_HANDSHAKE_MAX];
    size_t taken;
    h.data = (const uint8_t *)w->data;
    h.bytes = (uint16_t)strlen(w->data);
    assert_int_equal(iwarp_handshake_put(out, &h), w->count);
    assert_memory_equal(out, w->bytes, w->count);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        uint8_t more[IWARP_HANDSHAKE_MAX + 8];
        memcpy(more, out, w->count);
        memset(more + w->count, 0x77, 8); /* belongs to what comes next */
        assert_int_equal(feed(&p, h.reply, more, w->count + 8, pieces[i], &taken, &back),
                         IWARP_PARSED_DONE);
        assert_int_equal(taken, w->count);
        assert_same(&back, &h);
    }
}

TEST(data_that_is_too_long_is_not_written) {
    static const uint8_t data[IWARP_PRIVATE_MAX + 1];
    uint8_t out[IWARP_HANDSHAKE_MAX];
    struct iwarp_handshake h = {
        .revision = 2, .enhanced = true, .data = data, .bytes = sizeof data};
    assert_int_equal(iwarp_handshake_put(out, &h), 0);
    h.bytes--;
    assert_int_equal(iwarp_handshake_put(out, &h), sizeof out);
    assert_true(IWARP_HANDSHAKE_MAX - IWARP_HANDSHAKE_HEAD <= 256);
}

struct parsed {
    bool reply;
    const char *bytes;
    size_t count;
    size_t data; /* zeros behind them */
    enum iwarp_parsed result;
    size_t at; /* bad: with that many bytes it is seen, and not before */
};

static void it_is_parsed_so(void **state) {
    const struct parsed *w = *state;
    uint8_t in[IWARP_HANDSHAKE_HEAD + 1024] = {0};
    struct iwarp_handshake_parser p;
    struct iwarp_handshake h;
    size_t taken;
    memcpy(in, w->bytes, w->count);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        assert_int_equal(feed(&p, w->reply, in, w->count + w->data, pieces[i], &taken, &h),
                         w->result);
    feed(&p, w->reply, in, w->count + w->data, 1, &taken, &h);
    if (w->result == IWARP_PARSED_BAD)
        assert_int_equal(taken, w->at);
    if (w->result == IWARP_PARSED_MORE)
        assert_true(iwarp_handshake_wants(&p) > 0);
}

TEST(in_revision_1_the_bit_of_revision_2_is_not_looked_at) {
    static const uint8_t in[] = REQUEST "\x50\x01\x00\x03"
                                        "abc";
    struct iwarp_handshake_parser p;
    struct iwarp_handshake h;
    size_t taken;
    assert_int_equal(feed(&p, false, in, sizeof in - 1, 1, &taken, &h), IWARP_PARSED_DONE);
    assert_true(h.revision == 1 && h.crc && !h.enhanced);
    assert_int_equal(h.bytes, 3);
    assert_memory_equal(h.data, "abc", 3);
}

TEST(it_says_how_many_bytes_it_still_wants) {
    static const uint8_t in[] = REQUEST "\x50\x02\x00\x06\x80\x10\xc0\x08xy";
    struct iwarp_handshake_parser p;
    struct iwarp_handshake h;
    size_t taken;
    iwarp_handshake_expect(&p, false);
    for (size_t i = 0; i < 26; i++) {
        assert_int_equal(iwarp_handshake_wants(&p), i < 20 ? 20 - i : 26 - i);
        assert_int_equal(iwarp_handshake_take(&p, in + i, 1, &taken, &h),
                         i < 25 ? IWARP_PARSED_MORE : IWARP_PARSED_DONE);
    }
    assert_int_equal(iwarp_handshake_wants(&p), 0);
}

/* ---- what is agreed -------------------------------------------------------------------------------------- */

struct answered {
    struct iwarp_offer own;
    struct iwarp_handshake request;
    enum iwarp_verdict verdict;
    struct iwarp_terms terms;
    uint16_t reply_ird, reply_ord;
};

static void assert_terms(const struct iwarp_terms *terms, const struct iwarp_terms *right) {
    assert_int_equal(terms->revision, right->revision);
    assert_int_equal(terms->crc, right->crc);
    assert_int_equal(terms->extended, right->extended);
    assert_int_equal(terms->peer_to_peer, right->peer_to_peer);
    assert_int_equal(terms->rtr, right->rtr);
    assert_int_equal(terms->ird, right->ird);
    assert_int_equal(terms->ord, right->ord);
}

static void a_listener_answers(void **state) {
    const struct answered *w = *state;
    struct iwarp_terms terms;
    struct iwarp_handshake reply;
    assert_int_equal(iwarp_handshake_answer(&w->own, &w->request, &terms, &reply), w->verdict);
    if (w->verdict != IWARP_VERDICT_ACCEPT)
        return;
    assert_terms(&terms, &w->terms);
    assert_true(reply.reply && !reply.reject && !reply.markers && !reply.rtr_send);
    assert_int_equal(reply.revision, w->request.revision);
    assert_int_equal(reply.enhanced, w->request.enhanced);
    assert_int_equal(reply.crc, terms.crc);
    assert_int_equal(reply.peer_to_peer, terms.peer_to_peer);
    assert_int_equal(reply.rtr_write, terms.rtr == IWARP_RTR_WRITE);
    assert_int_equal(reply.rtr_read, terms.rtr == IWARP_RTR_READ);
    if (w->request.enhanced) {
        assert_int_equal(reply.ird, w->reply_ird);
        assert_int_equal(reply.ord, w->reply_ord);
    }
}

struct concluded {
    struct iwarp_offer own;
    struct iwarp_handshake reply;
    enum iwarp_verdict verdict;
    enum iwarp_refusal refusal;
    struct iwarp_terms terms;
};

static void a_dialer_concludes(void **state) {
    const struct concluded *w = *state;
    struct iwarp_handshake request = iwarp_handshake_request(&w->own, NULL, 0);
    enum iwarp_refusal refusal;
    struct iwarp_terms terms;
    assert_int_equal(iwarp_handshake_conclude(&w->own, &request, &w->reply, &terms, &refusal),
                     w->verdict);
    assert_int_equal(refusal, w->refusal);
    if (w->verdict == IWARP_VERDICT_ACCEPT)
        assert_terms(&terms, &w->terms);
}

/* Two ends of this device: whatever they offer, they hold to the same. */
TEST(two_ends_agree) {
    for (unsigned bits = 0; bits < 64; bits++)
        for (unsigned depths = 0; depths < 256; depths++) {
            struct iwarp_offer dialer = {bits & 1,   bits & 2,        bits & 4,
                                         depths & 3, depths >> 2 & 3, 3},
                               listener = {bits & 8,        bits & 16,   bits & 32,
                                           depths >> 4 & 3, depths >> 6, 3};
            struct iwarp_handshake request = iwarp_handshake_request(&dialer, NULL, 0), reply;
            struct iwarp_terms ours, theirs;
            enum iwarp_refusal refusal;
            assert_int_equal(iwarp_handshake_answer(&listener, &request, &theirs, &reply),
                             IWARP_VERDICT_ACCEPT);
            assert_int_equal(iwarp_handshake_conclude(&dialer, &request, &reply, &ours, &refusal),
                             IWARP_VERDICT_ACCEPT);
            assert_int_equal(ours.crc, theirs.crc);
            assert_int_equal(ours.crc, dialer.crc || listener.crc);
            assert_int_equal(ours.extended, dialer.extended && listener.extended);
            assert_int_equal(theirs.extended, ours.extended);
            assert_int_equal(ours.rtr, theirs.rtr);
            assert_true(ours.ord <= theirs.ird && theirs.ord <= ours.ird);
        }
}

/* Soft-iWARP's listener echoes the reserved bits, and strict ones send none. */
TEST(nobody_else_grants_what_is_ours_alone) {
    static const uint8_t echoed[] = {0x00, 0x01, 0x03, 0x0f, 0x09};
    for (unsigned i = 0; i <= sizeof echoed; i++) {
        uint8_t in[] = REPLY "\x10\x02\x00\x04\x00\x10\x00\x10";
        struct iwarp_handshake_parser p;
        struct iwarp_handshake h;
        size_t taken;
        in[16] |= i < sizeof echoed ? echoed[i] : 0x02;
        assert_int_equal(feed(&p, true, in, 24, 24, &taken, &h), IWARP_PARSED_DONE);
        assert_int_equal(h.extended, i == sizeof echoed);
    }
}

TEST(a_refusal_is_understood) {
    for (unsigned enhanced = 0; enhanced < 2; enhanced++) {
        struct iwarp_offer own = {.depth_max = 16};
        struct iwarp_handshake request = iwarp_handshake_request(&own, NULL, 0);
        request.enhanced = enhanced;
        struct iwarp_handshake reply = iwarp_handshake_reject(&request, "no", 2), back;
        struct iwarp_handshake_parser p;
        struct iwarp_terms terms;
        enum iwarp_refusal refusal;
        uint8_t out[IWARP_HANDSHAKE_MAX];
        size_t taken, n = iwarp_handshake_put(out, &reply);
        assert_int_equal(feed(&p, true, out, n, 1, &taken, &back), IWARP_PARSED_DONE);
        assert_int_equal(back.bytes, 2);
        assert_memory_equal(back.data, "no", 2);
        assert_int_equal(iwarp_handshake_conclude(&own, &request, &back, &terms, &refusal),
                         IWARP_VERDICT_REJECT);
    }
}

#define WRITTEN(name, data, bytes, ...)                                                            \
    ROW(name##_has_these_bytes, a_handshake_has_these_bytes, written, {__VA_ARGS__}, data, bytes,  \
        sizeof bytes - 1)
#define PARSED(name, reply, bytes, ...)                                                            \
    ROW(name, it_is_parsed_so, parsed, reply, bytes, sizeof bytes - 1, __VA_ARGS__)
#define ANSWERED(name, ...) ROW(a_listener__##name, a_listener_answers, answered, __VA_ARGS__)
#define CONCLUDED(name, ...) ROW(a_dialer__##name, a_dialer_concludes, concluded, __VA_ARGS__)
#define NONE IWARP_DEPTH_NONE

TEST_CASES(
    WRITTEN(ours, "hi", REQUEST "\x50\x02\x00\x06\x80\x10\xc0\x08hi", .revision = 2, .crc = true,
            .enhanced = true, .peer_to_peer = true, .rtr_write = true, .rtr_read = true, .ird = 16,
            .ord = 8),
    WRITTEN(ours_to_our_own, "", REQUEST "\x51\x02\x00\x04\x00\x10\x00\x08", .revision = 2,
            .crc = true, .enhanced = true, .ird = 16, .ord = 8, .extended = true),
    WRITTEN(a_reply_to_our_own, "", REPLY "\x52\x02\x00\x04\xc0\x00\x40\x08", .reply = true,
            .revision = 2, .crc = true, .enhanced = true, .peer_to_peer = true, .rtr_send = true,
            .rtr_read = true, .ird = 0, .ord = 8, .extended = true),
    WRITTEN(soft_iwarps_request, "", REQUEST "\x10\x02\x00\x04\x00\x80\x00\x01", .revision = 2,
            .enhanced = true, .ird = 128, .ord = 1),
    WRITTEN(revision_1, "abc",
            REQUEST "\x40\x01\x00\x03"
                    "abc",
            .revision = 1, .crc = true, .ird = NONE, .ord = NONE),
    WRITTEN(a_rejection, "no", REPLY "\x30\x02\x00\x06\x00\x00\x00\x00no", .reply = true,
            .revision = 2, .reject = true, .enhanced = true),
    WRITTEN(a_demand_for_markers, "", REQUEST "\x80\x01\x00\x00", .revision = 1, .markers = true,
            .ird = NONE, .ord = NONE),
    PARSED(the_longest_there_may_be_is_taken, false, REQUEST "\x10\x02\x02\x00", 512,
           IWARP_PARSED_DONE, 0),
    PARSED(a_byte_more_is_bad_before_any_of_it_comes, false, REQUEST "\x10\x02\x02\x01", 0,
           IWARP_PARSED_BAD, 20),
    PARSED(the_greatest_length_is_bad, false, REQUEST "\x10\x02\xff\xff", 1000, IWARP_PARSED_BAD,
           20),
    PARSED(another_protocol_is_bad_at_its_first_byte, false, "GET / HTTP/1.1\r\n", 0,
           IWARP_PARSED_BAD, 1),
    PARSED(a_reply_is_no_request, false, REPLY "\x10\x02\x00\x00", 4, IWARP_PARSED_BAD, 10),
    PARSED(a_request_is_no_reply, true, REQUEST "\x10\x02\x00\x00", 4, IWARP_PARSED_BAD, 10),
    PARSED(the_last_byte_of_the_key_counts, false, "MPA ID Req Frams\x10\x02\x00\x00", 0,
           IWARP_PARSED_BAD, 16),
    PARSED(revision_0_is_bad, false, REQUEST "\x00\x00\x00\x00", 0, IWARP_PARSED_BAD, 18),
    PARSED(revision_3_is_bad, false, REQUEST "\x10\x03\x00\x04", 4, IWARP_PARSED_BAD, 18),
    PARSED(enhanced_without_depths_is_bad, false, REQUEST "\x10\x02\x00\x03", 3, IWARP_PARSED_BAD,
           20),
    PARSED(soft_iwarps_rejection_has_nothing_behind_it, true, REPLY "\x30\x02\x00\x00", 0,
           IWARP_PARSED_DONE, 0),
    PARSED(a_request_is_no_rejection, false, REQUEST "\x30\x02\x00\x00", 0, IWARP_PARSED_BAD, 20),
    PARSED(a_part_wants_more, false, REQUEST "\x10\x02\x00\x04\x00\x10", 1, IWARP_PARSED_MORE, 0),
    PARSED(reserved_bits_are_not_looked_at, false, REQUEST "\x1e\x02\x00\x04\x00\x10\x00\x10", 0,
           IWARP_PARSED_DONE, 0),

    ANSWERED(answers_in_kind, {.ird = 4, .ord = 4, .depth_max = 16},
             {.revision = 1, .crc = true, .ird = NONE, .ord = NONE}, IWARP_VERDICT_ACCEPT,
             {.revision = 1, .crc = true, .ird = 4, .ord = 4}, 0, 0),
    ANSWERED(uses_check_values_if_it_wants_them_itself, {.crc = true},
             {.revision = 2, .enhanced = true}, IWARP_VERDICT_ACCEPT, {.revision = 2, .crc = true},
             0, 0),
    ANSWERED(raises_what_it_serves_to_what_is_asked, {.ird = 2, .ord = 2, .depth_max = 16},
             {.revision = 2, .enhanced = true, .ird = 1, .ord = 8}, IWARP_VERDICT_ACCEPT,
             {.revision = 2, .ird = 8, .ord = 1}, 8, 1),
    ANSWERED(raises_no_further_than_it_can, {.ird = 2, .ord = 200, .depth_max = 16},
             {.revision = 2, .enhanced = true, .ird = 100, .ord = 100}, IWARP_VERDICT_ACCEPT,
             {.revision = 2, .ird = 16, .ord = 100}, 16, 100),
    ANSWERED(clamps_what_is_not_negotiated_to_its_own, {.ird = 2, .ord = 3, .depth_max = 16},
             {.revision = 2, .enhanced = true, .ird = NONE, .ord = NONE}, IWARP_VERDICT_ACCEPT,
             {.revision = 2, .ird = 2, .ord = 3}, 2, 3),
    ANSWERED(prefers_a_write_as_rtr, {0},
             {.revision = 2,
              .enhanced = true,
              .peer_to_peer = true,
              .rtr_send = true,
              .rtr_write = true,
              .rtr_read = true},
             IWARP_VERDICT_ACCEPT, {.revision = 2, .peer_to_peer = true, .rtr = IWARP_RTR_WRITE}, 0,
             0),
    ANSWERED(takes_a_read_as_rtr, {0},
             {.revision = 2, .enhanced = true, .peer_to_peer = true, .rtr_read = true},
             IWARP_VERDICT_ACCEPT, {.revision = 2, .peer_to_peer = true, .rtr = IWARP_RTR_READ}, 0,
             0),
    ANSWERED(rejects_a_send_as_rtr, {0},
             {.revision = 2, .enhanced = true, .peer_to_peer = true, .rtr_send = true},
             IWARP_VERDICT_REJECT, {0}, 0, 0),
    ANSWERED(rejects_markers, {0}, {.revision = 2, .enhanced = true, .markers = true},
             IWARP_VERDICT_REJECT, {0}, 0, 0),
    ANSWERED(grants_to_its_own_what_both_have, {.extended = true},
             {.revision = 2, .enhanced = true, .extended = true}, IWARP_VERDICT_ACCEPT,
             {.revision = 2, .extended = true}, 0, 0),
    ANSWERED(grants_nothing_it_has_not, {0}, {.revision = 2, .enhanced = true, .extended = true},
             IWARP_VERDICT_ACCEPT, {.revision = 2}, 0, 0),

    CONCLUDED(uses_check_values_that_soft_iwarp_does_not_ask_for,
              {.crc = true, .ird = 4, .ord = 4, .depth_max = 16},
              {.reply = true, .revision = 2, .enhanced = true, .crc = true, .ird = 4, .ord = 4},
              IWARP_VERDICT_ACCEPT, IWARP_FINE, {.revision = 2, .crc = true, .ird = 4, .ord = 4}),
    CONCLUDED(uses_them_if_the_listener_does, {.depth_max = 16},
              {.reply = true, .revision = 2, .enhanced = true, .crc = true}, IWARP_VERDICT_ACCEPT,
              IWARP_FINE, {.revision = 2, .crc = true}),
    CONCLUDED(asks_no_more_than_is_served, {.ird = 4, .ord = 8, .depth_max = 16},
              {.reply = true, .revision = 2, .enhanced = true, .ird = 3, .ord = 2},
              IWARP_VERDICT_ACCEPT, IWARP_FINE, {.revision = 2, .ird = 4, .ord = 3}),
    CONCLUDED(serves_what_is_asked_up_to_what_it_can, {.ird = 4, .ord = 8, .depth_max = 16},
              {.reply = true, .revision = 2, .enhanced = true, .ird = 8, .ord = 16},
              IWARP_VERDICT_ACCEPT, IWARP_FINE, {.revision = 2, .ird = 16, .ord = 8}),
    CONCLUDED(terminates_what_asks_more, {.ird = 4, .ord = 8, .depth_max = 16},
              {.reply = true, .revision = 2, .enhanced = true, .ird = 8, .ord = 17},
              IWARP_VERDICT_TERMINATE, IWARP_MPA_IRD, {0}),
    CONCLUDED(keeps_its_own_depths_where_none_are_negotiated, {.ird = 4, .ord = 8, .depth_max = 16},
              {.reply = true, .revision = 2, .enhanced = true, .ird = NONE, .ord = NONE},
              IWARP_VERDICT_ACCEPT, IWARP_FINE, {.revision = 2, .ird = 4, .ord = 8}),
    CONCLUDED(
        terminates_what_names_no_rtr_that_it_offered, {.peer_to_peer = true},
        {.reply = true, .revision = 2, .enhanced = true, .peer_to_peer = true, .rtr_send = true},
        IWARP_VERDICT_TERMINATE, IWARP_MPA_RTR, {0}),
    CONCLUDED(
        takes_the_read_that_the_listener_chose, {.peer_to_peer = true},
        {.reply = true, .revision = 2, .enhanced = true, .peer_to_peer = true, .rtr_read = true},
        IWARP_VERDICT_ACCEPT, IWARP_FINE,
        {.revision = 2, .peer_to_peer = true, .rtr = IWARP_RTR_READ}),
    CONCLUDED(goes_on_where_the_listener_knows_no_peer_to_peer, {.peer_to_peer = true},
              {.reply = true, .revision = 2, .enhanced = true}, IWARP_VERDICT_ACCEPT, IWARP_FINE,
              {.revision = 2}),
    CONCLUDED(
        ignores_peer_to_peer_it_did_not_ask_for, {0},
        {.reply = true, .revision = 2, .enhanced = true, .peer_to_peer = true, .rtr_write = true},
        IWARP_VERDICT_ACCEPT, IWARP_FINE, {.revision = 2}),
    CONCLUDED(closes_for_markers, {0},
              {.reply = true, .revision = 2, .enhanced = true, .markers = true},
              IWARP_VERDICT_MARKERS, IWARP_FINE, {0}),
    CONCLUDED(closes_for_a_revision_it_did_not_ask_for, {0}, {.reply = true, .revision = 1},
              IWARP_VERDICT_FORM, IWARP_FINE, {0}),
    CONCLUDED(closes_for_a_form_it_did_not_ask_for, {0}, {.reply = true, .revision = 2},
              IWARP_VERDICT_FORM, IWARP_FINE, {0}));
