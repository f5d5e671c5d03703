/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * control.c - the codec of control.h. Bytes are put and taken one by one: no alignment, padding or
 * byte order of the host shows on the wire.
 */
#include "control.h"

#include <string.h>

#define MAGIC UINT32_C(0x43544c53) /* "SLTC" */

static void put(unsigned char *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t take(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

void control_encode(unsigned char out[CONTROL_BYTES], const struct control *control) {
    memset(out, 0, CONTROL_BYTES);
    put(out, MAGIC, 4);
    put(out + 4, CONTROL_VERSION, 2);
    put(out + 6, control->kind, 2);
    put(out + 8, control->tool, 2);
    put(out + 10, control->flags, 2);
    put(out + 12, (uint32_t)control->cpu, 4);
    put(out + 16, control->host, 8);
    put(out + 24, control->size, 8);
    put(out + 32, control->count, 8);
    put(out + 40, control->bytes, 8);
    put(out + 48, control->checksum, 8);
    put(out + 56, control->sent, 8);
    memcpy(out + 64, control->text, strnlen(control->text, CONTROL_TEXT - 1));
}

static bool all_zero(const unsigned char *at, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != 0)
            return false;
    return true;
}

/* The text goes to a terminal: printable ASCII, terminated, nothing behind the end. */
static bool take_text(char out[CONTROL_TEXT], const unsigned char *at) {
    size_t length = strnlen((const char *)at, CONTROL_TEXT);
    if (length == CONTROL_TEXT || !all_zero(at + length, CONTROL_TEXT - length))
        return false;
    for (size_t i = 0; i < length; i++)
        out[i] = at[i] >= ' ' && at[i] < 0x7f ? (char)at[i] : '?';
    memset(out + length, 0, CONTROL_TEXT - length);
    return true;
}

static bool fields_valid(const struct control *c) {
    if (c->kind < CONTROL_PLAN || c->kind > CONTROL_FAILED)
        return false;
    if (c->tool < CONTROL_LAT || c->tool > CONTROL_CAT)
        return false;
    if ((c->flags & ~(CONTROL_BOTH_WAYS | CONTROL_UNTIL_END | CONTROL_REQUESTS | CONTROL_MANY |
                      CONTROL_IN_TURN)) != 0)
        return false;
    bool many = (c->flags & CONTROL_MANY) != 0;
    if (many && (c->tool == CONTROL_CAT || (c->flags & CONTROL_REQUESTS) != 0))
        return false;
    if (many && c->kind == CONTROL_PLAN && (c->sent < 2 || c->sent > CONTROL_SESSIONS_MAX))
        return false;
    if (!many && (c->flags & CONTROL_IN_TURN) != 0)
        return false;
    if ((c->flags & (CONTROL_BOTH_WAYS | CONTROL_REQUESTS)) != 0 && c->tool != CONTROL_BW)
        return false;
    if (c->cpu < -1 || c->cpu > CONTROL_CPU_MAX)
        return false;
    if (c->size > CONTROL_SIZE_MAX || c->count > CONTROL_COUNT_MAX)
        return false;
    /* A counted plan sends something; an open one does not know how much. */
    if (c->kind == CONTROL_PLAN && ((c->flags & CONTROL_UNTIL_END) != 0) != (c->count == 0))
        return false;
    return true;
}

enum control_result control_decode(struct control *out, const void *data, size_t bytes) {
    if (bytes != CONTROL_BYTES && bytes != CONTROL_BYTES_OTHER)
        return CONTROL_FOREIGN;
    unsigned char copy[CONTROL_BYTES_OTHER] = {0};
    memcpy(copy, data, bytes);
    if (take(copy, 4) != MAGIC)
        return CONTROL_FOREIGN;
    if (take(copy + 4, 2) != CONTROL_VERSION)
        return CONTROL_WRONG_VERSION;
    struct control c = {
        .kind = (uint16_t)take(copy + 6, 2),
        .tool = (uint16_t)take(copy + 8, 2),
        .flags = (uint16_t)take(copy + 10, 2),
        .cpu = (int32_t)(uint32_t)take(copy + 12, 4),
        .host = take(copy + 16, 8),
        .size = take(copy + 24, 8),
        .count = take(copy + 32, 8),
        .bytes = take(copy + 40, 8),
        .checksum = take(copy + 48, 8),
        .sent = take(copy + 56, 8),
    };
    if (!all_zero(copy + CONTROL_BYTES, bytes - CONTROL_BYTES) || !take_text(c.text, copy + 64) ||
        !fields_valid(&c))
        return CONTROL_MALFORMED;
    *out = c;
    return CONTROL_OK;
}

size_t control_bytes_beside(uint64_t data_size) {
    return data_size == CONTROL_BYTES ? CONTROL_BYTES_OTHER : CONTROL_BYTES;
}

const char *control_tool_name(unsigned tool) {
    static const char *const names[] = {"sluice-lat", "sluice-bw", "sluice-cat"};
    return tool >= CONTROL_LAT && tool <= CONTROL_CAT ? names[tool - CONTROL_LAT] : "another tool";
}

const char *control_kind_name(unsigned kind) {
    static const char *const names[] = {"data", "PLAN", "READY", "END", "DONE", "FAILED"};
    return kind <= CONTROL_FAILED ? names[kind] : "unknown";
}
