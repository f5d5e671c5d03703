/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * control.h - the few words the two sides of a tool exchange around their data.
 *
 * The client sends PLAN (what it wants), the server answers READY; then the data, which END closes
 * with the sender's count and DONE confirms with the receiver's. Either side may send FAILED with
 * a reason for people, and hangs up after it.
 *
 * A control message has a fixed length, 192 bytes, little-endian:
 *    0 magic u32    4 version u16   6 kind u16   8 tool u16   10 flags u16   12 cpu i32
 *   16 host u64    24 size u64     32 count u64 40 bytes u64  48 checksum u64
 *   56 sent u64    64 text, 128 bytes, zero padded and zero terminated
 * Where data of exactly that length is announced, control messages have 8 zero bytes more: lengths
 * tell data from control, contents never do.
 *
 * What arrives is hostile: decoding copies first and checks every field it gives out.
 */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_BYTES 192
#define CONTROL_BYTES_OTHER 200
#define CONTROL_TEXT 128
#define CONTROL_VERSION 1
#define CONTROL_SIZE_MAX (UINT64_C(1) << 30)  /* of a PLAN's size */
#define CONTROL_COUNT_MAX (UINT64_C(1) << 48) /* of a PLAN's count */
#define CONTROL_CPU_MAX 65535
#define CONTROL_SESSIONS_MAX 20000u

enum control_kind {
    CONTROL_PLAN = 1,
    CONTROL_READY = 2,
    CONTROL_END = 3,
    CONTROL_DONE = 4,
    CONTROL_FAILED = 5
};

enum control_tool { CONTROL_LAT = 1, CONTROL_BW = 2, CONTROL_CAT = 3 };

#define CONTROL_BOTH_WAYS 1u /* PLAN of bw: the server sends as much as it gets */
#define CONTROL_UNTIL_END 2u /* PLAN: count is not known, END says when */
#define CONTROL_REQUESTS 4u  /* PLAN of bw: requests, each to be sent back as its reply */
#define CONTROL_MANY 8u /* PLAN: `sent` sessions; READY: `checksum` is the token of the others */
#define CONTROL_IN_TURN 16u /* PLAN of MANY: each message on the next of the sessions */

struct control {
    uint16_t kind, tool, flags;
    int32_t cpu;             /* of the sender's thread, -1 = not pinned */
    uint64_t host;           /* pin_host_key() of the sender */
    uint64_t size;           /* bytes of a data message */
    uint64_t count;          /* messages: PLAN to be sent, END sent, DONE received */
    uint64_t bytes;          /* payload bytes, likewise */
    uint64_t checksum;       /* END and DONE of cat; READY of MANY */
    uint64_t sent;           /* DONE of bw: messages the server sent itself; PLAN of MANY */
    char text[CONTROL_TEXT]; /* FAILED: what happened */
};

enum control_result {
    CONTROL_OK = 0,
    CONTROL_FOREIGN, /* no control message at all */
    CONTROL_WRONG_VERSION,
    CONTROL_MALFORMED
};

void control_encode(unsigned char out[CONTROL_BYTES], const struct control *control);
enum control_result control_decode(struct control *out, const void *data, size_t bytes);
/* How long control messages are beside data of this size. */
size_t control_bytes_beside(uint64_t data_size);
const char *control_tool_name(unsigned tool); /* "sluice-lat", never NULL */
const char *control_kind_name(unsigned kind); /* 0 is "data" */

#endif
