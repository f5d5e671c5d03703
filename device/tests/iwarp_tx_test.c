/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_tx_test.c - the sending end of a stream: what it makes of messages is what the receiving end understands, in
 * batches of any message sizes, sent in parts of any size.
 */
#include "support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/tx.h"
#include "soft/iwarp/wire.h"
#include "support/iwarp.h"
#include "support/pattern.h"
#include "support/rows.h"

#define LARGE 16000u

static uint8_t data[LARGE];
static uint8_t wire[4u << 20];
static size_t wire_bytes;

static struct iwarp_tx *sender(bool crc, unsigned mulpdu) {
    struct iwarp_tx *tx = malloc(sizeof *tx);
    assert_non_null(tx);
    iwarp_tx_init(tx, crc, mulpdu);
    pattern_fill(data, 0, sizeof data, 9);
    wire_bytes = 0;
    return tx;
}

/* As a socket that takes at most `most` bytes at once does; 0: random. Until nothing is left. */
static void send_all(struct iwarp_tx *tx, size_t most) {
    const struct iovec *iov;
    uint32_t seed = 77;
    for (unsigned count; (count = iwarp_tx_next(tx, &iov)) > 0;) {
        size_t room = most > 0 ? most : 1 + iwarp_random(&seed) % 5000, n = 0;
        for (unsigned i = 0; i < count && n < room; i++) {
            size_t k = iov[i].iov_len < room - n ? iov[i].iov_len : room - n;
            assert_true(wire_bytes + k <= sizeof wire);
            memcpy(wire + wire_bytes, iov[i].iov_base, k);
            wire_bytes += k;
            n += k;
        }
        iwarp_tx_sent(tx, n);
    }
    assert_int_equal(tx->sent, wire_bytes);
    assert_int_equal(tx->framed, wire_bytes);
}

static uint64_t begin(struct iwarp_tx *tx, uint8_t opcode, uint32_t stag, uint64_t offset,
                      const struct iovec *piece, unsigned pieces, size_t most) {
    struct iwarp_tx_message message = {
        .opcode = opcode, .stag = stag, .offset = offset, .piece = piece, .pieces = pieces};
    uint64_t end;
    int error = iwarp_tx_begin(tx, &message, &end);
    if (error == EAGAIN) {
        send_all(tx, most);
        error = iwarp_tx_begin(tx, &message, &end);
    }
    assert_int_equal(error, 0);
    assert_true(tx->open || tx->framed == end);
    return end;
}

static uint64_t begin_plain(struct iwarp_tx *tx, uint8_t opcode, size_t bytes, size_t most) {
    struct iovec piece = {data, bytes};
    return begin(tx, opcode, 0, 0, &piece, 1, most);
}

TEST(the_bytes_are_soft_iwarps) {
    static const uint8_t right[] = {
        0x00, 0x0e, 0xc1, 0x40, 0,    0,    0,    1,    0,    0,    0,    0,    0,
        0,    0,    0,    0xeb, 0xd3, 0x4c, 0x5f, 0x00, 0x18, 0x41, 0x43, 0,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    1,    0,    0,    0,
        0,    'h',  'e',  'l',  'l',  'o',  '!',  0,    0,    0xa0, 0x0a, 0xcd, 0x2d};
    struct iwarp_tx *tx = sender(true, 1450);
    char text[] = "hello!";
    struct iovec pieces[] = {{text, 2}, {text + 2, 0}, {text + 2, 4}};
    assert_int_equal(begin(tx, IWARP_WRITE, 1, 0, NULL, 0, 0), 20);
    assert_int_equal(begin(tx, IWARP_SEND, 0, 0, pieces, 3, 0), sizeof right);
    memset(text, 'x', sizeof text); /* small ones are taken at once */
    const struct iovec *iov;
    assert_int_equal(iwarp_tx_next(tx, &iov), 1); /* and lie beside each other */
    send_all(tx, 0);
    assert_int_equal(wire_bytes, sizeof right);
    assert_memory_equal(wire, right, sizeof right);
    free(tx);
}

/* The short call makes the same bytes, whatever lay in the batch before. */
TEST(a_small_send_is_the_same_by_either_call) {
    static uint8_t by_pieces[sizeof wire];
    for (unsigned crc = 0; crc < 2; crc++) {
        struct iwarp_tx *tx = sender(crc, 1450);
        for (size_t bytes = 0; bytes <= IWARP_TX_COPY; bytes++)
            begin_plain(tx, IWARP_SEND, bytes, 0);
        send_all(tx, 0);
        size_t whole = wire_bytes;
        memcpy(by_pieces, wire, whole);
        iwarp_tx_init(tx, crc, 1450);
        wire_bytes = 0;
        for (uint32_t bytes = 0; bytes <= IWARP_TX_COPY; bytes++)
            if (!iwarp_tx_small(tx, data, bytes)) {
                send_all(tx, 0); /* the batch was full */
                assert_true(iwarp_tx_small(tx, data, bytes));
            }
        send_all(tx, 0);
        assert_int_equal(wire_bytes, whole);
        assert_memory_equal(wire, by_pieces, whole);
        free(tx);
    }
}

TEST(the_short_call_leaves_what_it_is_not_for) {
    struct iwarp_tx *tx = sender(true, IWARP_MULPDU_MIN);
    assert_false(iwarp_tx_small(tx, data, IWARP_MULPDU_MIN - IWARP_UNTAGGED_BYTES + 1));
    assert_false(iwarp_tx_small(tx, data, IWARP_TX_COPY + 1));
    tx->corrupt = true; /* the fault is made in a frame of the long way */
    assert_false(iwarp_tx_small(tx, data, 8));
    tx->corrupt = false;
    assert_int_equal(tx->framed, 0);
    begin_plain(tx, IWARP_SEND, LARGE, 0);
    assert_true(tx->open);
    assert_false(iwarp_tx_small(tx, data, 8)); /* it would lie inside of the other */
    send_all(tx, 0);
    assert_true(iwarp_tx_small(tx, data, 8));
    iwarp_tx_terminate(tx, &(struct iwarp_terminate){.refusal = IWARP_MPA_CRC});
    assert_false(iwarp_tx_small(tx, data, 8));
    free(tx);
}

struct trip {
    bool crc;
    unsigned mulpdu;
    size_t most, piece, least; /* of a send; of what is fed */
    bool lent;
};

/* Sizes around those at which something else happens, from several pieces. */
static void every_size_arrives(void **state) {
    const struct trip *t = *state;
    static const size_t sizes[] = {0,   1,   2,    3,    109,  110,  111,  255,  256,
                                   257, 220, 1000, 1431, 1432, 1433, 2864, 3000, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i], first = n / 3;
        struct iwarp_tx *tx = sender(t->crc, t->mulpdu);
        struct iwarp_end *end = iwarp_end(2, t->crc, false);
        struct iovec pieces[] = {{data, first}, {data + first, n - first}};
        iwarp_end_read(end, 0x501, 3, (uint32_t)n);
        begin(tx, IWARP_SEND_SOLICITED, 0, 0, pieces, 2, t->most);
        begin(tx, IWARP_WRITE, IWARP_END_STAG, IWARP_END_BASE + 9, pieces, 2, t->most);
        begin(tx, IWARP_READ_RESPONSE, 0x501, 3, pieces, 2, t->most);
        uint64_t last = begin(tx, IWARP_SEND, 0, 0, pieces, 2, t->most);
        send_all(tx, t->most);
        assert_int_equal(last, wire_bytes);
        iwarp_end_feed(end, wire, wire_bytes, t->piece, t->least, false);
        assert_int_equal(end->rx.status, IWARP_RX_OPEN);
        assert_false(iwarp_rx_inside(&end->rx));
        assert_int_equal(end->delivered, 2);
        assert_int_equal(end->answered, 1);
        for (unsigned k = 0; k < 2; k++)
            assert_memory_equal(end->receive[k], data, n);
        assert_memory_equal(end->window + 9, data, n);
        assert_memory_equal(end->sink, data, n);
        free(end);
        free(tx);
    }
}

TEST(what_the_device_makes_itself_arrives) {
    uint8_t read[IWARP_READ_BYTES], atomic[IWARP_ATOMIC_BYTES],
        response[IWARP_ATOMIC_RESPONSE_BYTES], immediate[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct iwarp_tx *tx = sender(true, IWARP_MULPDU_MIN);
    struct iwarp_end *end = iwarp_end(3, true, true);
    iwarp_read_put(read, &(struct iwarp_read){1, 2, 3, IWARP_END_STAG, 5});
    iwarp_atomic_put(atomic, &(struct iwarp_atomic){IWARP_FETCH_AND_ADD, 1, 2, 3, 4, 0});
    iwarp_atomic_response_put(response, &(struct iwarp_atomic_response){6, 7});
    begin(tx, IWARP_READ_REQUEST, 0, 0, &(struct iovec){read, sizeof read}, 1, 0);
    begin(tx, IWARP_ATOMIC_REQUEST, 0, 0, &(struct iovec){atomic, sizeof atomic}, 1, 0);
    begin(tx, IWARP_ATOMIC_RESPONSE, 0, 0, &(struct iovec){response, sizeof response}, 1, 0);
    begin(tx, IWARP_SEND_INVALIDATE, IWARP_END_STAG, 0, &(struct iovec){data, 300}, 1, 0);
    begin(tx, IWARP_IMMEDIATE_SOLICITED, 0, 0, &(struct iovec){immediate, 8}, 1, 0);
    send_all(tx, 0);
    iwarp_end_feed(end, wire, wire_bytes, 0, 0, false);
    assert_int_equal(end->rx.status, IWARP_RX_OPEN);
    assert_int_equal(strncmp(end->log,
                             "read 1 2 <- 77 5, 3 bytes\n"
                             "atomic 0: id 1 stag 2 offset 3 value 4 compare 0\n"
                             "atomic done 6: 7\ninvalidate 77\ndeliver 4: 300 bytes",
                             110),
                     0);
    assert_int_equal(end->delivered, 2);
    free(end);
    free(tx);
}

TEST(a_batch_has_many_small_messages_in_one_piece) {
    struct iwarp_tx *tx = sender(true, 1450);
    struct iwarp_tx_message message = {
        .opcode = IWARP_SEND, .piece = &(struct iovec){data, 64}, .pieces = 1};
    const struct iovec *iov;
    uint64_t end;
    unsigned count = 0;
    while (iwarp_tx_begin(tx, &message, &end) == 0)
        count++;
    assert_int_equal(count, IWARP_TX_FRAMES);
    assert_int_equal(iwarp_tx_next(tx, &iov), 1);
    assert_int_equal(iov->iov_len, end);
    free(tx);
}

/* However large: the batch never holds more than its bounds, and large payload is not copied. */
TEST(a_large_message_takes_several_batches) {
    static uint8_t large[1u << 20];
    struct iwarp_tx *tx = sender(true, IWARP_MULPDU_MIN);
    pattern_fill(large, 0, sizeof large, 4);
    struct iovec piece[IWARP_TX_PIECES];
    for (unsigned i = 0; i < IWARP_TX_PIECES; i++)
        piece[i] = (struct iovec){large + i * (sizeof large / IWARP_TX_PIECES),
                                  sizeof large / IWARP_TX_PIECES};
    struct iwarp_tx_message message = {
        .opcode = IWARP_WRITE, .piece = piece, .pieces = IWARP_TX_PIECES};
    const uint64_t bytes_max = tx->crc ? IWARP_TX_BYTES : IWARP_TX_BYTES_UNSUMMED;
    for (unsigned mulpdu = IWARP_MULPDU_MIN; mulpdu <= IWARP_MULPDU_MAX; mulpdu = mulpdu * 3 + 3) {
        uint64_t end, from = tx->framed;
        tx->mulpdu = mulpdu;
        wire_bytes = 0;
        tx->sent = tx->framed = 0;
        assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
        assert_true(tx->frames <= IWARP_TX_FRAMES && tx->iov_count <= IWARP_TX_IOV);
        assert_true(tx->framed - tx->sent < bytes_max + iwarp_fpdu_bytes(mulpdu));
        if (tx->open)
            assert_int_equal(iwarp_tx_begin(tx, &message, &from), EAGAIN);
        send_all(tx, 0);
        assert_int_equal(end, wire_bytes);
        size_t at = 0, payload = 0;
        while (at < wire_bytes) { /* the payload, frame by frame */
            unsigned segment = iwarp_get16(wire + at);
            assert_true(segment <= mulpdu);
            assert_memory_equal(wire + at + 16, large + payload, segment - 14);
            payload += segment - 14;
            at += iwarp_fpdu_bytes(segment);
        }
        assert_int_equal(payload, sizeof large);
    }
    free(tx);
}

/* As large messages go in such parts: the end of one, and what asks for its acknowledgement, are no call of their own. */
struct parts {
    bool crc;
    unsigned count;
};

/* Together with what asks for its acknowledgement. Two parts do, if there is nothing to sum. */
static void a_part_of_a_large_message_goes_in_one_batch(void **state) {
    const struct parts *parts = *state;
    static uint8_t part[256u << 10];
    uint8_t asks[IWARP_READ_BYTES];
    struct iwarp_tx *tx = sender(parts->crc, iwarp_mulpdu(32768));
    struct iwarp_tx_message message = {
        .opcode = IWARP_WRITE, .piece = &(struct iovec){part, sizeof part}, .pieces = 1};
    const struct iovec *iov;
    uint64_t end;
    size_t bytes = 0;
    for (unsigned i = 0; i < parts->count; i++)
        assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
    iwarp_read_put(asks, &(struct iwarp_read){.bytes = 0});
    message = (struct iwarp_tx_message){
        .opcode = IWARP_READ_REQUEST, .piece = &(struct iovec){asks, sizeof asks}, .pieces = 1};
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
    for (unsigned count = iwarp_tx_next(tx, &iov); count > 0; count--)
        bytes += iov++->iov_len;
    assert_int_equal(bytes, end);
    free(tx);
}

/* What the application changes after frames were made changes neither them nor their check values. */
static void what_changes_while_it_is_sent_is_right_as_it_was(void **state) {
    const struct trip *t = *state;
    static uint8_t owned[16000]; /* what iwarp_end_read() has a place for */
    struct iwarp_tx *tx = sender(true, t->mulpdu);
    struct iwarp_end *end = iwarp_end(4, true, false);
    struct iwarp_tx_message message = {.opcode = IWARP_READ_RESPONSE,
                                       .stag = 5,
                                       .piece = &(struct iovec){owned, sizeof owned},
                                       .pieces = 1,
                                       .changing = true};
    uint64_t last;
    memset(owned, 0, sizeof owned);
    iwarp_end_read(end, 5, 0, sizeof owned);
    static uint8_t lent[IWARP_TX_LENT];
    for (unsigned i = 0; i < 4; i++) /* so that not all of it fits the batch */
        begin_plain(tx, IWARP_SEND, 256, 0);
    if (t->lent)
        iwarp_tx_lend(tx, lent);
    assert_int_equal(iwarp_tx_begin(tx, &message, &last), 0);
    const struct iovec *iov;
    uint8_t round = 0;
    for (unsigned count; (count = iwarp_tx_next(tx, &iov)) > 0;) {
        memset(owned, ++round, sizeof owned);
        for (unsigned i = 0; i < count; i++) {
            memcpy(wire + wire_bytes, iov[i].iov_base, iov[i].iov_len);
            wire_bytes += iov[i].iov_len;
        }
        iwarp_tx_sent(tx, wire_bytes - tx->sent);
    }
    assert_int_equal(round > 1, !t->lent); /* and it changed between the two, too */
    assert_ptr_equal(iwarp_tx_take_back(tx), t->lent ? lent : NULL);
    begin_plain(tx, IWARP_SEND, 0, 0); /* it goes on */
    assert_int_equal(last, wire_bytes);
    iwarp_end_feed(end, wire, wire_bytes, t->piece, t->least, false);
    assert_int_equal(end->rx.status, IWARP_RX_OPEN);
    assert_int_equal(end->answered, 1);
    assert_int_equal(end->delivered, 4);
    for (size_t i = 1; i < sizeof owned; i++) /* each byte as it was when its frame was made */
        assert_true(end->sink[i] >= end->sink[i - 1] && end->sink[i] < round);
    free(end);
    free(tx);
}

/* With memory lent so much of what may change goes at once, in one piece; what is lost when that is taken back is the last. */
TEST(what_is_lent_holds_much_of_what_changes) {
    static uint8_t large[1u << 20], lent[IWARP_TX_LENT];
    struct iwarp_tx *tx = sender(true, IWARP_MULPDU_MAX);
    struct iwarp_tx_message message = {.opcode = IWARP_READ_RESPONSE,
                                       .piece = &(struct iovec){large, sizeof large},
                                       .pieces = 1,
                                       .changing = true};
    const struct iovec *iov;
    uint64_t end;
    unsigned batches = 0;
    iwarp_tx_lend(tx, lent);
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
    for (unsigned count; (count = iwarp_tx_next(tx, &iov)) > 0; batches++) {
        assert_int_equal(count, 1);
        assert_true((uint8_t *)iov->iov_base >= lent && iov->iov_len <= sizeof lent);
        assert_false(iwarp_tx_is_sent(tx));
        iwarp_tx_sent(tx, iov->iov_len);
    }
    assert_int_equal(tx->sent, end);
    assert_in_range(batches, 8, 9);
    assert_true(iwarp_tx_is_sent(tx));
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
    assert_ptr_equal(iwarp_tx_take_back(tx), lent);
    assert_int_equal(iwarp_tx_next(tx, &iov), 0);
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), EPIPE);
    free(tx);
}

/* Nothing is copied that need not be: no check values, nothing to be wrong. */
TEST(without_check_values_what_changes_lies_where_it_is) {
    for (unsigned crc = 0; crc < 2; crc++) {
        struct iwarp_tx *tx = sender(crc, 1450);
        struct iwarp_tx_message message = {.opcode = IWARP_READ_RESPONSE,
                                           .piece = &(struct iovec){data, 1000},
                                           .pieces = 1,
                                           .changing = true};
        uint64_t end;
        assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
        assert_int_equal(iwarp_tx_uses(tx, data, sizeof data), !crc);
        free(tx);
    }
}

TEST(a_terminate_cuts_what_is_open_and_is_the_last) {
    static uint8_t large[60000];
    struct iwarp_tx *tx = sender(true, IWARP_MULPDU_MIN);
    struct iwarp_end *end = iwarp_end(0, true, false);
    struct iwarp_terminate t = {.refusal = IWARP_MPA_CRC};
    struct iwarp_tx_message message = {.opcode = IWARP_WRITE,
                                       .stag = IWARP_END_STAG,
                                       .offset = IWARP_END_BASE,
                                       .piece = &(struct iovec){large, sizeof large},
                                       .pieces = 1};
    uint64_t position;
    memset(large, 1, sizeof large);
    assert_int_equal(iwarp_tx_begin(tx, &message, &position), 0);
    assert_true(tx->open); /* and the batch is full */
    iwarp_tx_terminate(tx, &t);
    iwarp_tx_terminate(tx, &t);
    assert_int_equal(iwarp_tx_begin(tx, &message, &position), EPIPE);
    send_all(tx, 0);
    iwarp_end_feed(end, wire, wire_bytes, 0, 0, false);
    assert_string_equal(end->log, "terminated 12002, 0 bytes of a header\n");
    assert_int_equal(end->window[0], 1);
    assert_int_equal(end->window[sizeof large - 1], 0);
    free(end);
    free(tx);
}

TEST(memory_is_in_use_until_it_was_sent) {
    struct iwarp_tx *tx = sender(true, 1450);
    const struct iovec *iov;
    begin_plain(tx, IWARP_SEND, 100, 0);
    assert_false(iwarp_tx_uses(tx, data, sizeof data)); /* copied */
    uint64_t end = begin_plain(tx, IWARP_SEND, LARGE, 0);
    assert_true(iwarp_tx_uses(tx, data, 1));
    assert_true(iwarp_tx_uses(tx, data + LARGE - 300, 1));
    assert_false(iwarp_tx_uses(tx, data + LARGE, 1)); /* and so is the end */
    iwarp_tx_next(tx, &iov);
    iwarp_tx_sent(tx, end / 2);
    assert_false(iwarp_tx_uses(tx, data, 1));
    assert_true(iwarp_tx_uses(tx, data + LARGE - 300, 1));
    iwarp_tx_sent(tx, end - end / 2);
    assert_false(iwarp_tx_uses(tx, data, LARGE));
    assert_int_equal(tx->sent, end);
    free(tx);
}

TEST(what_is_too_much_for_a_message_is_refused) {
    struct iwarp_tx *tx = sender(true, 1450);
    static struct iovec piece[IWARP_TX_PIECES + 1];
    struct iwarp_tx_message message = {
        .opcode = IWARP_SEND, .piece = piece, .pieces = IWARP_TX_PIECES + 1};
    uint64_t end = 7;
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), EINVAL);
    message.pieces = 2;
    piece[0] = (struct iovec){data, UINT32_MAX};
    piece[1] = (struct iovec){data, 1};
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), EINVAL);
    assert_int_equal(end, 7);
    assert_int_equal(tx->msn[0], 1);
    free(tx);
}

#define CHANGES(name, ...)                                                                         \
    ROW(what_changes_while_it_is_sent_is_right_as_it_was__##name,                                  \
        what_changes_while_it_is_sent_is_right_as_it_was, trip, __VA_ARGS__)
#define TRIP(name, ...)                                                                            \
    ROW(every_size_arrives__##name, every_size_arrives, trip, __VA_ARGS__, false)

#define PARTS(name, ...)                                                                           \
    ROW(a_part_of_a_large_message_goes_in_one_batch__##name,                                       \
        a_part_of_a_large_message_goes_in_one_batch, parts, __VA_ARGS__)

TEST_CASES(TRIP(in_one_go, true, 1450, sizeof wire, sizeof wire, 0),
           TRIP(byte_by_byte, true, 1450, 1, 1, 0), TRIP(in_random_parts, true, 1450, 0, 0, 0),
           TRIP(in_random_parts_and_straight, true, 1450, 0, 0, 1),
           TRIP(in_the_smallest_segments, true, IWARP_MULPDU_MIN, 0, 0, 50),
           TRIP(in_the_largest_segments, true, IWARP_MULPDU_MAX, 1000, 999, 1000),
           TRIP(without_check_values, false, 1450, 0, 0, 100), PARTS(summed, true, 1),
           PARTS(unsummed, false, 2),
           CHANGES(in_small_segments, true, 1450, 0, sizeof wire, 0, false),
           CHANGES(in_the_largest_segments, true, IWARP_MULPDU_MAX, 0, 1000, 1000, false),
           CHANGES(to_what_is_lent, true, 1450, 0, sizeof wire, 0, true));
