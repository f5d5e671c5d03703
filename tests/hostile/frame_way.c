/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * frame_way.c - what is wrong with a frame of any type: its header, its length, or the time at which it comes. Made of
 * a specimen of each. Pure functions, any thread.
 */
#include "hostile/frame_form.h"

const struct form_step frame_specimen[FRAME_TYPES] = {
    [FRAME_DATA] = {.type = FRAME_DATA, .length = 16},
    [FRAME_FRAG] = {.type = FRAME_FRAG, .flags = FRAME_FIRST, .length = 100, .total = 10000},
    [FRAME_CREDIT] = {.type = FRAME_CREDIT},
    [FRAME_BYE] = {.type = FRAME_BYE},
    [FRAME_HELLO] = {.type = FRAME_HELLO, .length = 50},
    [FRAME_WELCOME] = {.type = FRAME_WELCOME},
    [FRAME_REFUSE] = {.type = FRAME_REFUSE, .length = 8, .word = {0x508004c53}},
    [FRAME_ALIVE] = {.type = FRAME_ALIVE},
    [FRAME_REQUEST] = {.type = FRAME_REQUEST, .length = 16, .total = 0x100},
    [FRAME_REPLY] = {.type = FRAME_REPLY, .length = 16, .total = 0x100},
    [FRAME_COALESCED] = {.type = FRAME_COALESCED,
                         .length = 24,
                         .word = {FRAME_DATA | 8ull << 32, 0, 1}},
    [FRAME_RTS] = {.type = FRAME_RTS,
                   .length = FRAME_RTS_BYTES,
                   .total = FORM_LARGE,
                   .word = {FRAME_DATA << 16 | 2 << 24}},
    [FRAME_RTR] = {.type = FRAME_RTR, .length = FRAME_RTR_BYTES, .word = {4096, 1, FORM_LARGE}},
    [FRAME_ATS] = {.type = FRAME_ATS},
    [FRAME_CANCEL] = {.type = FRAME_CANCEL, .total = 0x100},
    [FRAME_NOTIFY] = {.type = FRAME_NOTIFY, .total = 7},
    [FRAME_RECALL] = {.type = FRAME_RECALL, .total = 4},
    [FRAME_RETURN] = {.type = FRAME_RETURN},
    [FRAME_AGAIN] = {.type = FRAME_AGAIN,
                     .length = FRAME_RTS_BYTES,
                     .total = FORM_LARGE,
                     .word = {FRAME_DATA << 16 | 2 << 24}},
    [FRAME_SWITCH] = {.type = FRAME_SWITCH},
    [FRAME_MOVE] = {.type = FRAME_MOVE},
};

#define GREETS (FRAME_BIT(FRAME_HELLO) | FRAME_BIT(FRAME_WELCOME) | FRAME_BIT(FRAME_REFUSE))
#define EXACT                                                                                      \
    (FRAME_BIT(FRAME_CREDIT) | FRAME_BIT(FRAME_BYE) | FRAME_BIT(FRAME_ALIVE) |                     \
     FRAME_BIT(FRAME_RTS) | FRAME_BIT(FRAME_RTR) | FRAME_BIT(FRAME_ATS) |                          \
     FRAME_BIT(FRAME_CANCEL) | FRAME_BIT(FRAME_NOTIFY) | FRAME_BIT(FRAME_RECALL) |                 \
     FRAME_BIT(FRAME_RETURN) | FRAME_BIT(FRAME_COALESCED) | FRAME_BIT(FRAME_AGAIN) |               \
     FRAME_BIT(FRAME_SWITCH) | FRAME_BIT(FRAME_MOVE))
#define FILLED                                                                                     \
    (FRAME_BIT(FRAME_FRAG) | FRAME_BIT(FRAME_COALESCED) | FRAME_BIT(FRAME_RTS) |                   \
     FRAME_BIT(FRAME_RTR) | FRAME_BIT(FRAME_AGAIN))
#define PACKED (FRAME_BIT(FRAME_DATA) | FRAME_BIT(FRAME_REQUEST))
#define ALL (FRAME_BIT(FRAME_TYPES) - 2)

enum way_change {
    CHANGE_NONE,
    CHANGE_EMPTY,   /* no payload */
    CHANGE_MORE,    /* one byte of it more */
    CHANGE_LESS,    /* or less */
    CHANGE_TOTAL,   /* as large as it can be */
    CHANGE_FLAGS,   /* a flag that nobody has */
    CHANGE_KNOWN,   /* all flags that there are */
    CHANGE_CREDITS, /* more than can be */
    CHANGE_ACK,     /* of what was never sent */
    CHANGE_PACKED,  /* as an item of a pack */
    CHANGE_TWICE,
};

static const struct way {
    const char *name;
    uint32_t types;
    uint8_t change, twist, stage;
    uint32_t outcomes;
} ways[] = {
    {"a byte of it", ALL, CHANGE_NONE, TWIST_HEADLESS, STAGE_UP, ENDS(PROTOCOL)},
    {"a header longer than what came", ALL, CHANGE_NONE, TWIST_LONGER, STAGE_UP, ENDS(PROTOCOL)},
    {"a header shorter than what came", ALL, CHANGE_NONE, TWIST_SHORTER, STAGE_UP, ENDS(PROTOCOL)},
    {"a header of 4 GiB", ALL, CHANGE_NONE, TWIST_HUGE, STAGE_UP, ENDS(PROTOCOL)},
    {"the number before", ALL, CHANGE_NONE, TWIST_BACK, STAGE_UP, ENDS(PROTOCOL)},
    {"the number after", ALL, CHANGE_NONE, TWIST_AHEAD, STAGE_UP, ENDS(PROTOCOL)},
    {"no payload", FILLED, CHANGE_EMPTY, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"a byte too many", EXACT, CHANGE_MORE, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"a byte too few", FILLED & ~FRAME_BIT(FRAME_FRAG), CHANGE_LESS, TWIST_NONE, STAGE_UP,
     ENDS(PROTOCOL)},
    {"the largest total", ALL & ~FRAME_BIT(FRAME_REQUEST), CHANGE_TOTAL, TWIST_NONE, STAGE_UP,
     ENDS(PROTOCOL)},
    {"the largest total", FRAME_BIT(FRAME_REQUEST), CHANGE_TOTAL, TWIST_NONE, STAGE_UP, GOES_ON},
    {"an unknown flag", ALL, CHANGE_FLAGS, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"every known flag", ALL, CHANGE_KNOWN, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"65535 credits", ALL, CHANGE_CREDITS, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"a wrong acknowledgement", ALL, CHANGE_ACK, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"packed", ALL & ~PACKED, CHANGE_PACKED, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"packed", PACKED, CHANGE_PACKED, TWIST_NONE, STAGE_UP, GOES_ON},
    {"when all is said", GREETS, CHANGE_NONE, TWIST_NONE, STAGE_UP, ENDS(PROTOCOL)},
    {"after the greeting", GREETS, CHANGE_NONE, TWIST_NONE, STAGE_WELCOMED, ENDS(PROTOCOL)},
    {"before HELLO", ALL & ~FRAME_BIT(FRAME_HELLO), CHANGE_NONE, TWIST_NONE, STAGE_HELLO,
     ENDS(PROTOCOL)},
    {"before WELCOME", ALL & ~FRAME_BIT(FRAME_WELCOME) & ~FRAME_BIT(FRAME_REFUSE), CHANGE_NONE,
     TWIST_NONE, STAGE_ANSWER, ENDS(PROTOCOL)},
    {"after BYE", ALL, CHANGE_NONE, TWIST_NONE, STAGE_BYE, ENDS(PEER_CLOSE) | ENDS(PROTOCOL)},
    {"twice with one number", FRAME_NUMBERED, CHANGE_TWICE, TWIST_BACK, STAGE_UP, ENDS(PROTOCOL)},
};

static void pack(struct form_step *step) {
    struct form_step inner = *step;
    *step =
        (struct form_step){.type = FRAME_COALESCED, .length = COALESCE_ITEM_BYTES + inner.length};
    step->word[0] = inner.type | (uint64_t)inner.length << 32;
    step->word[1] = inner.total;
    for (unsigned i = 0; i + 2 < FORM_WORDS; i++)
        step->word[i + 2] = inner.word[i];
}

static void change(struct form_step *step, enum way_change change) {
    switch (change) {
    case CHANGE_EMPTY:
        step->length = 0;
        break;
    case CHANGE_MORE:
        step->length++;
        break;
    case CHANGE_LESS:
        step->length--;
        break;
    case CHANGE_TOTAL:
        step->total = UINT64_MAX;
        break;
    case CHANGE_FLAGS:
        step->flags |= 0x80;
        break;
    case CHANGE_KNOWN:
        step->flags = FRAME_FIRST | FRAME_LAST | FRAME_RESERVED;
        break;
    case CHANGE_CREDITS:
        step->credits = UINT16_MAX;
        break;
    case CHANGE_ACK:
        step->ack = 5;
        break;
    case CHANGE_PACKED:
        pack(step);
        break;
    case CHANGE_TWICE:
    case CHANGE_NONE:
        break;
    }
}

unsigned frame_way_count(void) {
    return sizeof ways / sizeof ways[0];
}

bool frame_way_get(unsigned i, unsigned type, struct frame_form *out) {
    const struct way *way = &ways[i];
    if (!(way->types >> type & 1))
        return false;
    *out = (struct frame_form){
        .name = way->name, .type = (uint8_t)type, .stage = way->stage, .outcomes = way->outcomes};
    struct form_step *step = out->step;
    if (way->change == CHANGE_TWICE)
        *step++ = frame_specimen[type];
    *step = frame_specimen[type];
    change(step, (enum way_change)way->change);
    step->twist = way->twist;
    return true;
}
