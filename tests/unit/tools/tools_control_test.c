/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * tools_control_test.c - what the tools take from a peer, which may be anybody: control messages of
 * every wrong shape are refused, right ones come through unchanged. The stream checksum and the
 * JSON writer with it.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/src/common/checksum.h"
#include "../tools/src/common/control.h"
#include "../tools/src/common/json.h"
#include "../tools/src/common/checksum.c"
#include "../tools/src/common/control.c"
#include "../tools/src/common/json.c"

static struct control sample(void) {
    return (struct control){.kind = CONTROL_PLAN,
                            .tool = CONTROL_BW,
                            .flags = CONTROL_BOTH_WAYS,
                            .cpu = 3,
                            .host = UINT64_C(0x0123456789abcdef),
                            .size = 65536,
                            .count = 1000,
                            .bytes = 65536000,
                            .checksum = UINT64_C(0xfedcba9876543210),
                            .sent = 17,
                            .text = "a reason"};
}

TEST(a_message_comes_through_unchanged) {
    unsigned char wire[CONTROL_BYTES_OTHER] = {0};
    struct control in = sample(), out;
    control_encode(wire, &in);
    assert_int_equal(control_decode(&out, wire, CONTROL_BYTES), CONTROL_OK);
    assert_memory_equal(&in.text, &out.text, sizeof in.text);
    assert_true(in.kind == out.kind && in.tool == out.tool && in.flags == out.flags &&
                in.cpu == out.cpu && in.host == out.host && in.size == out.size &&
                in.count == out.count && in.bytes == out.bytes && in.checksum == out.checksum &&
                in.sent == out.sent);
    assert_int_equal(control_decode(&out, wire, CONTROL_BYTES_OTHER), CONTROL_OK);
    assert_int_equal(control_bytes_beside(CONTROL_BYTES), CONTROL_BYTES_OTHER);
    assert_int_equal(control_bytes_beside(CONTROL_BYTES_OTHER), CONTROL_BYTES);
    assert_int_equal(control_bytes_beside(0), CONTROL_BYTES);
}

TEST(every_other_length_is_foreign) {
    struct control in = sample(), out = {.kind = 99};
    for (size_t bytes = 0; bytes < 600; bytes++) {
        if (bytes == CONTROL_BYTES || bytes == CONTROL_BYTES_OTHER)
            continue;
        /* On the heap and no larger than told: a sanitizer sees a read behind the end. */
        unsigned char *wire = calloc(1, bytes + 1), whole[CONTROL_BYTES];
        assert_non_null(wire);
        control_encode(whole, &in);
        memcpy(wire, whole, bytes < sizeof whole ? bytes : sizeof whole);
        unsigned char *exact = realloc(wire, bytes == 0 ? 1 : bytes);
        assert_non_null(exact);
        assert_int_equal(control_decode(&out, exact, bytes), CONTROL_FOREIGN);
        free(exact);
    }
    assert_int_equal(out.kind, 99);
}

static void assert_refused(size_t at, uint64_t value, int bytes, enum control_result expect) {
    unsigned char wire[CONTROL_BYTES];
    struct control in = sample(), out = {.kind = 99};
    control_encode(wire, &in);
    put(wire + at, value, bytes);
    assert_int_equal(control_decode(&out, wire, sizeof wire), expect);
    assert_int_equal(out.kind, 99);
}

TEST(hostile_fields_are_refused) {
    assert_refused(0, 0, 4, CONTROL_FOREIGN);
    assert_refused(4, 0, 2, CONTROL_WRONG_VERSION);
    assert_refused(4, 2, 2, CONTROL_WRONG_VERSION);
    assert_refused(6, 0, 2, CONTROL_MALFORMED);
    assert_refused(6, 6, 2, CONTROL_MALFORMED);
    assert_refused(8, 0, 2, CONTROL_MALFORMED);
    assert_refused(8, 4, 2, CONTROL_MALFORMED);
    assert_refused(8, CONTROL_LAT, 2, CONTROL_MALFORMED);      /* both ways is for bw */
    assert_refused(10, CONTROL_IN_TURN, 2, CONTROL_MALFORMED); /* of one session */
    assert_refused(10, CONTROL_MANY | CONTROL_REQUESTS, 2, CONTROL_MALFORMED);
    assert_refused(10, 0x8001, 2, CONTROL_MALFORMED);
    assert_refused(10, CONTROL_UNTIL_END, 2, CONTROL_MALFORMED); /* with a count */
    assert_refused(12, UINT32_C(0x80000000), 4, CONTROL_MALFORMED);
    assert_refused(12, CONTROL_CPU_MAX + 1, 4, CONTROL_MALFORMED);
    assert_refused(24, CONTROL_SIZE_MAX + 1, 8, CONTROL_MALFORMED);
    assert_refused(24, UINT64_MAX, 8, CONTROL_MALFORMED);
    assert_refused(32, CONTROL_COUNT_MAX + 1, 8, CONTROL_MALFORMED);
    assert_refused(32, 0, 8, CONTROL_MALFORMED);        /* no count, and not until the end */
    assert_refused(64 + 20, 'x', 1, CONTROL_MALFORMED); /* text behind its end */
}

static enum control_result decode_plan_of(unsigned tool, uint64_t sessions) {
    unsigned char wire[CONTROL_BYTES];
    struct control in = sample(), out;
    in.tool = (uint16_t)tool;
    in.flags = CONTROL_MANY | CONTROL_IN_TURN;
    in.sent = sessions;
    control_encode(wire, &in);
    return control_decode(&out, wire, sizeof wire);
}

TEST(a_plan_of_several_sessions_has_a_number_of_them) {
    assert_int_equal(decode_plan_of(CONTROL_LAT, 2), CONTROL_OK);
    assert_int_equal(decode_plan_of(CONTROL_BW, CONTROL_SESSIONS_MAX), CONTROL_OK);
    assert_int_equal(decode_plan_of(CONTROL_BW, CONTROL_SESSIONS_MAX + 1), CONTROL_MALFORMED);
    assert_int_equal(decode_plan_of(CONTROL_LAT, 1), CONTROL_MALFORMED);
    assert_int_equal(decode_plan_of(CONTROL_LAT, 0), CONTROL_MALFORMED);
    assert_int_equal(decode_plan_of(CONTROL_CAT, 2), CONTROL_MALFORMED);
}

TEST(text_is_terminated_and_printable) {
    unsigned char wire[CONTROL_BYTES];
    struct control in = sample(), out;
    control_encode(wire, &in);
    memset(wire + 64, 'x', CONTROL_TEXT);
    assert_int_equal(control_decode(&out, wire, sizeof wire), CONTROL_MALFORMED);
    memcpy(in.text, "\033[2J\n\xff", 6);
    control_encode(wire, &in);
    assert_int_equal(control_decode(&out, wire, sizeof wire), CONTROL_OK);
    assert_string_equal(out.text, "?[2J??on");
    memset(in.text, 'y', sizeof in.text);
    control_encode(wire, &in);
    assert_int_equal(control_decode(&out, wire, sizeof wire), CONTROL_OK);
    assert_int_equal(strlen(out.text), CONTROL_TEXT - 1);
}

TEST(padding_must_be_zero) {
    unsigned char wire[CONTROL_BYTES_OTHER] = {0};
    struct control in = sample(), out;
    control_encode(wire, &in);
    wire[CONTROL_BYTES_OTHER - 1] = 1;
    assert_int_equal(control_decode(&out, wire, sizeof wire), CONTROL_MALFORMED);
}

/* Whatever the bytes are, what comes out is within the limits. */
TEST(random_messages_never_escape_the_limits) {
    uint64_t random = 7;
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        unsigned char wire[CONTROL_BYTES];
        struct control in = sample(), out;
        control_encode(wire, &in);
        for (int i = 0; i < 1 + round % 4; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            wire[(random >> 33) % CONTROL_BYTES] = (unsigned char)(random >> 56);
        }
        if (control_decode(&out, wire, sizeof wire) != CONTROL_OK)
            continue;
        accepted++;
        assert_true(out.size <= CONTROL_SIZE_MAX && out.count <= CONTROL_COUNT_MAX);
        assert_true(out.cpu >= -1 && out.cpu <= CONTROL_CPU_MAX);
        assert_non_null(memchr(out.text, 0, sizeof out.text));
    }
    assert_true(accepted > 1000); /* else the loop above looked at nothing */
}

TEST(checksum_finds_every_small_change) {
    unsigned char data[200];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t bytes = 0; bytes <= sizeof data; bytes++) {
        uint64_t sum = checksum_add(CHECKSUM_START, data, bytes);
        assert_true(sum == checksum_add(CHECKSUM_START, data, bytes));
        for (size_t i = 0; i < bytes; i++) {
            data[i] ^= 1;
            assert_true(sum != checksum_add(CHECKSUM_START, data, bytes));
            data[i] ^= 1;
        }
        if (bytes > 0)
            assert_true(sum != checksum_add(CHECKSUM_START, data, bytes - 1));
    }
}

TEST(checksum_sees_the_order_of_pieces) {
    static const char a[64] = "first", b[64] = "second";
    uint64_t ab = checksum_add(checksum_add(CHECKSUM_START, a, 64), b, 64);
    uint64_t ba = checksum_add(checksum_add(CHECKSUM_START, b, 64), a, 64);
    assert_true(ab != ba);
    static const char zeros[64] = {0};
    uint64_t once = checksum_add(CHECKSUM_START, zeros, 64);
    assert_true(once != checksum_add(once, zeros, 64));
    assert_true(once != checksum_add(CHECKSUM_START, zeros, 63));
}

TEST(json_is_one_escaped_line) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    struct json j;
    json_begin(&j, out);
    json_text(&j, "a\"b", "c\\d\n\x01\xff");
    json_number(&j, "n", UINT64_MAX);
    json_signed(&j, "s", -1);
    json_real(&j, "r", 1.25, 1);
    json_real(&j, "none", -1, 1);
    json_bool(&j, "yes", true);
    json_list(&j, "list");
    json_object(&j, NULL);
    json_close_object(&j);
    json_number(&j, NULL, 1);
    json_close_list(&j);
    json_object(&j, "o");
    json_number(&j, "x", 0);
    json_close_object(&j);
    json_end(&j);
    fclose(out);
    assert_string_equal(text,
                        "{\"a\\\"b\": \"c\\\\d\\u000a\\u0001?\", \"n\": 18446744073709551615, "
                        "\"s\": -1, \"r\": 1.2, \"none\": null, \"yes\": true, "
                        "\"list\": [{}, 1], \"o\": {\"x\": 0}}\n");
    free(text);
}
