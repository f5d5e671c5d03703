/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * frame.c - which header each type of frame may have. docs/protocol.md has the same as a table.
 *
 * Pure functions of a private copy of the header, any thread. The file that takes the payload apart checks lengths
 * that depend on more than the type.
 */
#include "core/wire/frame.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct rule {
    uint8_t flags;            /* that may be set */
    bool total;               /* that may be other than 0 */
    uint32_t length, at_most; /* payload bytes */
};

#define ANY UINT32_MAX

static const struct rule rules[FRAME_TYPES] = {
    [FRAME_DATA] = {0, false, 0, ANY},
    [FRAME_FRAG] = {FRAME_FIRST | FRAME_LAST, true, 1, ANY},
    [FRAME_CREDIT] = {0, false, 0, 0},
    [FRAME_BYE] = {0, false, 0, 0},
    [FRAME_ALIVE] = {0, false, 0, 0},
    [FRAME_REQUEST] = {FRAME_FIRST, true, 0, ANY},
    [FRAME_REPLY] = {FRAME_FIRST | FRAME_RESERVED, true, 0, ANY},
    [FRAME_COALESCED] = {FRAME_RESERVED, false, COALESCE_ITEM_BYTES, ANY},
    [FRAME_RTS] = {FRAME_RESERVED, true, FRAME_RTS_BYTES, FRAME_RTS_BYTES},
    [FRAME_RTR] = {0, true, FRAME_RTR_BYTES, FRAME_RTR_BYTES},
    [FRAME_ATS] = {0, true, 0, 0},
    [FRAME_CANCEL] = {0, true, 0, 0},
    [FRAME_NOTIFY] = {0, true, 0, 0},
    [FRAME_RECALL] = {0, true, 0, 0},
    [FRAME_RETURN] = {0, true, 0, 0},
    [FRAME_SWITCH] = {0, false, 0, 0},
    [FRAME_MOVE] = {0, false, 0, 0},
    [FRAME_AGAIN] = {0, true, FRAME_RTS_BYTES, FRAME_RTS_BYTES},
};

const char *frame_wrong(const struct frame *f) {
    switch ((enum frame_type)f->type) {
    case FRAME_DATA:
    case FRAME_FRAG:
    case FRAME_CREDIT:
    case FRAME_BYE:
    case FRAME_ALIVE:
    case FRAME_REQUEST:
    case FRAME_REPLY:
    case FRAME_COALESCED:
    case FRAME_RTS:
    case FRAME_RTR:
    case FRAME_ATS:
    case FRAME_CANCEL:
    case FRAME_NOTIFY:
    case FRAME_RECALL:
    case FRAME_RETURN:
    case FRAME_AGAIN:
    case FRAME_SWITCH:
    case FRAME_MOVE:
        break;
    case FRAME_HELLO: /* only during the handshake */
    case FRAME_WELCOME:
    case FRAME_REFUSE:
    case FRAME_TYPES:
        return "a frame of unknown type";
    }
    if (f->type == 0 || f->type > FRAME_TYPES)
        return "a frame of unknown type";
    const struct rule *rule = &rules[f->type];
    if (f->flags & ~rule->flags)
        return "a frame with unknown flags";
    if ((f->total && !rule->total) || f->length < rule->length || f->length > rule->at_most)
        return "a frame with content that its type does not have";
    return NULL;
}
