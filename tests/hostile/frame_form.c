/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* frame_form.c - the forms that only one type has: docs/protocol.md, "Checks". Pure functions, any thread. */
#include "hostile/frame_form.h"

#include <stddef.h>

#define UP(name, type, outcomes, ...)                                                              \
    {                                                                                              \
        name, type, STAGE_UP, NEED_NOTHING, outcomes, {                                            \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define AFTER(need, name, type, outcomes, ...)                                                     \
    {                                                                                              \
        name, type, STAGE_UP, need, outcomes, {                                                    \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define AT(stage, name, type, outcomes, ...)                                                       \
    {                                                                                              \
        name, type, stage, NEED_NOTHING, outcomes, {                                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

#define FRAG(f, all, bytes)                                                                        \
    { .type = FRAME_FRAG, .flags = (f), .total = (all), .length = (bytes) }
#define REQUEST(id)                                                                                \
    { .type = FRAME_REQUEST, .total = (id), .length = 8 }
#define REPLY(f, tw, id, bytes)                                                                    \
    { .type = FRAME_REPLY, .flags = (f), .twist = (tw), .total = (id), .length = (bytes) }
#define COALESCED(f, bytes, ...)                                                                   \
    {                                                                                              \
        .type = FRAME_COALESCED, .flags = (f), .length = (bytes), .word = { __VA_ARGS__ }          \
    }
#define ITEM(type, length) ((uint64_t)(type) | (uint64_t)(length) << 32)
#define RTS(f, size, ...)                                                                          \
    {                                                                                              \
        .type = FRAME_RTS, .flags = (f), .total = (size), .length = FRAME_RTS_BYTES, .word = {     \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define WORD(number, type, way, rkey)                                                              \
    ((uint64_t)(number) | (uint64_t)(type) << 16 | (uint64_t)(way) << 24 | (uint64_t)(rkey) << 32)
#define RTR(number, ...)                                                                           \
    {                                                                                              \
        .type = FRAME_RTR, .total = (number), .length = FRAME_RTR_BYTES, .word = { __VA_ARGS__ }   \
    }
#define WITH_TOTAL(t, value)                                                                       \
    { .type = (t), .total = (value) }
#define BYTES(t, bytes, ...)                                                                       \
    {                                                                                              \
        .type = (t), .length = (bytes), .word = { __VA_ARGS__ }                                    \
    }
#define REJ 0x508004c53ull

enum { DATA = FRAME_DATA, READ = 1, WRITE = 2, ABOVE = (1 << 20) + 1 };

static const struct frame_form forms[] = {
    /* ---- messages ---- */
    UP("more than there are credits for", DATA, ENDS(CREDITS),
       {.type = DATA, .length = 16, .times = FORM_MANY}),
    UP("between the fragments of another", DATA, GOES_ON, FRAG(FRAME_FIRST, 10000, 100),
       {.type = DATA, .length = 16}),
    UP("a first one while another is under way", FRAME_FRAG, ENDS(PROTOCOL),
       FRAG(FRAME_FIRST, 10000, 100), FRAG(FRAME_FIRST, 10000, 100)),
    UP("a middle of nothing", FRAME_FRAG, ENDS(PROTOCOL), FRAG(0, 0, 100)),
    UP("an end of nothing", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_LAST, 0, 100)),
    UP("all of it in the first", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_FIRST, 100, 100)),
    UP("a total below its bytes", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_FIRST, 1, 100)),
    UP("a total of nothing", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_FIRST, 0, 100)),
    UP("a message above what was agreed", FRAME_FRAG, ENDS(PROTOCOL),
       FRAG(FRAME_FIRST, ABOVE, 100)),
    UP("more than the message", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_FIRST, 150, 100),
       FRAG(FRAME_LAST, 0, 100)),
    UP("an end before it is there", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_FIRST, 10000, 100),
       FRAG(FRAME_LAST, 0, 100)),
    UP("all there and no end", FRAME_FRAG, ENDS(PROTOCOL), FRAG(FRAME_FIRST, 200, 100),
       FRAG(0, 0, 100)),
    /* ---- credits and signs of life ---- */
    UP("one more than the most", FRAME_CREDIT, ENDS(PROTOCOL),
       {.type = FRAME_CREDIT, .credits = 14}),
    UP("the most, and one more", FRAME_CREDIT, ENDS(PROTOCOL),
       {.type = FRAME_CREDIT, .credits = 13}, {.type = FRAME_CREDIT, .credits = 1}),
    AFTER(NEED_REQUEST, "an acknowledgement taken back", FRAME_CREDIT, ENDS(PROTOCOL),
          {.type = FRAME_CREDIT, .ack = 1}, {.type = FRAME_CREDIT}),
    UP("more than there are credits for", FRAME_ALIVE, ENDS(CREDITS) | GOES_ON,
       {.type = FRAME_ALIVE, .times = FORM_MANY}),
    UP("credits with the farewell", FRAME_BYE, ENDS(PROTOCOL), {.type = FRAME_BYE, .credits = 14}),
    UP("below what may be kept", FRAME_RECALL, ENDS(PROTOCOL), WITH_TOTAL(FRAME_RECALL, 3)),
    UP("all of them", FRAME_RECALL, ENDS(PROTOCOL), WITH_TOTAL(FRAME_RECALL, 0)),
    UP("more than 16 bits hold", FRAME_RECALL, ENDS(PROTOCOL), WITH_TOTAL(FRAME_RECALL, 65536)),
    UP("twice", FRAME_RECALL, ENDS(PROTOCOL) | GOES_ON,
       {.type = FRAME_RECALL, .total = 4, .times = 2}),
    UP("nothing that nobody wanted", FRAME_RETURN, ENDS(PROTOCOL), WITH_TOTAL(FRAME_RETURN, 0)),
    UP("all that it has", FRAME_RETURN, ENDS(PROTOCOL), WITH_TOTAL(FRAME_RETURN, 4)),
    UP("that was not lost", FRAME_AGAIN, ENDS(PROTOCOL),
       {.type = FRAME_AGAIN,
        .length = FRAME_RTS_BYTES,
        .total = FORM_LARGE,
        .word = {FRAME_DATA << 16 | 2 << 24}}),
    UP("which was not agreed", FRAME_SWITCH, ENDS(PROTOCOL), {.type = FRAME_SWITCH}),
    UP("which was not agreed", FRAME_MOVE, ENDS(PROTOCOL), {.type = FRAME_MOVE}),
    UP("4 billion", FRAME_RETURN, ENDS(PROTOCOL), WITH_TOTAL(FRAME_RETURN, UINT32_MAX)),
    /* ---- greeting ---- */
    AT(STAGE_HELLO, "a byte too short", FRAME_HELLO, ENDS(MALFORMED), BYTES(FRAME_HELLO, 49)),
    AT(STAGE_HELLO, "nothing in it", FRAME_HELLO, ENDS(MALFORMED), BYTES(FRAME_HELLO, 0)),
    AT(STAGE_HELLO, "a byte behind it", FRAME_HELLO, ENDS(MALFORMED), BYTES(FRAME_HELLO, 51)),
    AT(STAGE_HELLO, "longer than any", FRAME_HELLO, ENDS(PROTOCOL), BYTES(FRAME_HELLO, 3000)),
    AT(STAGE_HELLO, "a proof that was not agreed on", FRAME_HELLO, ENDS(PROTOCOL),
       BYTES(FRAME_HELLO, 50, 1)),
    AT(STAGE_HELLO, "with a flag", FRAME_HELLO, ENDS(PROTOCOL),
       {.type = FRAME_HELLO, .flags = 1, .length = 50}),
    AT(STAGE_HELLO, "with a total", FRAME_HELLO, ENDS(PROTOCOL),
       {.type = FRAME_HELLO, .total = 1, .length = 50}),
    AT(STAGE_ANSWER, "with a payload", FRAME_WELCOME, ENDS(PROTOCOL), BYTES(FRAME_WELCOME, 12)),
    AT(STAGE_ANSWER, "with a flag", FRAME_WELCOME, ENDS(PROTOCOL),
       {.type = FRAME_WELCOME, .flags = 1}),
    AT(STAGE_ANSWER, "with a total", FRAME_WELCOME, ENDS(PROTOCOL), WITH_TOTAL(FRAME_WELCOME, 1)),
    AT(STAGE_ANSWER, "twice", FRAME_WELCOME, ENDS(PROTOCOL), {.type = FRAME_WELCOME, .times = 2}),
    AT(STAGE_ANSWER, "nothing in it", FRAME_REFUSE, ENDS(PROTOCOL), BYTES(FRAME_REFUSE, 0)),
    AT(STAGE_ANSWER, "a byte too short", FRAME_REFUSE, ENDS(PROTOCOL), BYTES(FRAME_REFUSE, 7, REJ)),
    AT(STAGE_ANSWER, "of another protocol", FRAME_REFUSE, ENDS(PROTOCOL),
       BYTES(FRAME_REFUSE, 8, REJ + 1)),
    AT(STAGE_ANSWER, "of another layout", FRAME_REFUSE, ENDS(PROTOCOL),
       BYTES(FRAME_REFUSE, 8, REJ | 1 << 16)),
    AT(STAGE_ANSWER, "a text behind its end", FRAME_REFUSE, ENDS(PROTOCOL),
       BYTES(FRAME_REFUSE, 8, REJ | 0x80 << 24)),
    AT(STAGE_ANSWER, "longer than any", FRAME_REFUSE, ENDS(PROTOCOL),
       BYTES(FRAME_REFUSE, 3000, REJ)),
    AT(STAGE_ANSWER, "and a welcome", FRAME_REFUSE, ENDS(REFUSED), BYTES(FRAME_REFUSE, 8, REJ),
       {.type = FRAME_WELCOME}),
    /* ---- requests ---- */
    UP("a place that is taken", FRAME_REQUEST, ENDS(PROTOCOL), REQUEST(0x107), REQUEST(0x107)),
    UP("another of that place", FRAME_REQUEST, ENDS(PROTOCOL), REQUEST(0x107), REQUEST(0x207)),
    UP("a time that is over", FRAME_REQUEST, GOES_ON, REQUEST(0x107 | 1ull << 32)),
    UP("to nothing", FRAME_REPLY, ENDS(PROTOCOL), REPLY(0, 0, 0x100, 8)),
    UP("to nothing, without a credit", FRAME_REPLY, ENDS(CREDITS),
       REPLY(FRAME_RESERVED, 0, 0x100, 8)),
    AFTER(NEED_REQUEST, "to another of that place", FRAME_REPLY, ENDS(PROTOCOL),
          REPLY(FRAME_RESERVED, TWIST_ID, 0x100, 8)),
    AFTER(NEED_REQUEST, "to a place without a request", FRAME_REPLY, ENDS(PROTOCOL),
          REPLY(FRAME_RESERVED, TWIST_ID, 1, 8)),
    AFTER(NEED_REQUEST, "twice, without a credit", FRAME_REPLY, ENDS(CREDITS),
          REPLY(FRAME_RESERVED, TWIST_ID, 0, 8), REPLY(FRAME_RESERVED, TWIST_ID, 0, 8)),
    AFTER(NEED_REQUEST, "twice", FRAME_REPLY, ENDS(PROTOCOL), REPLY(FRAME_RESERVED, TWIST_ID, 0, 8),
          REPLY(0, TWIST_ID, 0, 8)),
    AFTER(NEED_REQUEST, "a code with a payload", FRAME_REPLY, ENDS(PROTOCOL),
          REPLY(FRAME_RESERVED, TWIST_ID, 1ull << 32, 8)),
    AFTER(NEED_REQUEST, "a code that there is not", FRAME_REPLY, ENDS(PROTOCOL),
          REPLY(FRAME_RESERVED, TWIST_ID, 17ull << 32, 0)),
    AFTER(NEED_REQUEST, "with a credit", FRAME_REPLY, ENDS(PROTOCOL), REPLY(0, TWIST_ID, 0, 8)),
    UP("of what was never asked", FRAME_CANCEL, GOES_ON, WITH_TOTAL(FRAME_CANCEL, 0x1ff)),
    UP("what is not an id", FRAME_CANCEL, ENDS(PROTOCOL), WITH_TOTAL(FRAME_CANCEL, 1ull << 32)),
    UP("three times", FRAME_CANCEL, GOES_ON, REQUEST(0x107), {.type = FRAME_CANCEL, .total = 0x107},
       {.type = FRAME_CANCEL, .total = 0x207}),
    UP("more than 32 bits", FRAME_NOTIFY, ENDS(PROTOCOL), WITH_TOTAL(FRAME_NOTIFY, 1ull << 32)),
    UP("of no put", FRAME_NOTIFY, GOES_ON, WITH_TOTAL(FRAME_NOTIFY, UINT32_MAX)),
    /* ---- packs ---- */
    UP("shorter than an item", FRAME_COALESCED, ENDS(PROTOCOL), COALESCED(0, 8, ITEM(DATA, 0))),
    UP("an item longer than the frame", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 24, ITEM(DATA, 9))),
    UP("an item of 4 GiB", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 24, ITEM(DATA, UINT32_MAX))),
    UP("a length that wraps", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 24, ITEM(DATA, UINT32_MAX - 15))),
    UP("a second item cut off", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 32, ITEM(DATA, 8), 0, 0, ITEM(DATA, 0))),
    UP("a word behind the last item", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 24, ITEM(DATA, 0))),
    UP("an item of no type", FRAME_COALESCED, ENDS(PROTOCOL), COALESCED(0, 16, ITEM(0, 0))),
    UP("bytes next to the type", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 16, ITEM(DATA | 0x100, 0))),
    UP("a message with a total", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 16, ITEM(DATA, 0), 1)),
    UP("a request of a place that is taken", FRAME_COALESCED, ENDS(PROTOCOL),
       COALESCED(0, 32, ITEM(FRAME_REQUEST, 0), 0x107, ITEM(FRAME_REQUEST, 0), 0x107)),
    UP("replies to nothing, without a credit", FRAME_COALESCED, ENDS(CREDITS),
       COALESCED(FRAME_RESERVED, 16, ITEM(FRAME_REPLY, 0), 0x100)),
    AFTER(NEED_REQUEST, "a message in the place of a reply", FRAME_COALESCED, ENDS(PROTOCOL),
          COALESCED(FRAME_RESERVED, 16, ITEM(DATA, 0))),
    /* ---- large messages ---- */
    UP("a number that there is not", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(16, DATA, WRITE, 0))),
    UP("a number in use", FRAME_RTS, ENDS(PROTOCOL), RTS(0, FORM_LARGE, WORD(3, DATA, WRITE, 0)),
       RTS(0, FORM_LARGE, WORD(3, DATA, WRITE, 0))),
    UP("of a fragment", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(0, FRAME_FRAG, WRITE, 0))),
    UP("of nothing", FRAME_RTS, ENDS(PROTOCOL), RTS(0, FORM_LARGE, WORD(0, 0, WRITE, 0))),
    UP("no way", FRAME_RTS, ENDS(PROTOCOL), RTS(0, FORM_LARGE, WORD(0, DATA, 0, 0))),
    UP("a third way", FRAME_RTS, ENDS(PROTOCOL), RTS(0, FORM_LARGE, WORD(0, DATA, 3, 0))),
    UP("a key to be written with", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(0, DATA, WRITE, 1))),
    UP("an address to be written from", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(0, DATA, WRITE, 0), 4096)),
    UP("a message with a total", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(0, DATA, WRITE, 0), 0, 1)),
    UP("bytes that are not used", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(0, DATA, WRITE, 0), 0, 0, 1)),
    UP("nothing", FRAME_RTS, ENDS(PROTOCOL), RTS(0, 0, WORD(0, DATA, WRITE, 0))),
    UP("what fits a frame", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, 4096 - FRAME_BYTES, WORD(0, DATA, WRITE, 0))),
    UP("above what was agreed", FRAME_RTS, ENDS(PROTOCOL), RTS(0, ABOVE, WORD(0, DATA, WRITE, 0))),
    UP("a reply to nothing, with a credit", FRAME_RTS, ENDS(PROTOCOL),
       RTS(0, FORM_LARGE, WORD(0, FRAME_REPLY, WRITE, 0))),
    UP("a reply to nothing", FRAME_RTS, ENDS(CREDITS),
       RTS(FRAME_RESERVED, FORM_LARGE, WORD(0, FRAME_REPLY, WRITE, 0))),
    AFTER(NEED_REQUEST, "a message in the place of a reply", FRAME_RTS, ENDS(PROTOCOL),
          RTS(FRAME_RESERVED, FORM_LARGE, WORD(0, DATA, WRITE, 0))),
    UP("a key that opens nothing", FRAME_RTS, ENDS(PEER_LOST),
       RTS(0, FORM_LARGE, WORD(0, DATA, READ, 0x12345678), 4096)),
    UP("to nothing", FRAME_RTR, ENDS(PROTOCOL), RTR(0, 4096, 1, FORM_LARGE)),
    UP("to a number that there is not", FRAME_RTR, ENDS(PROTOCOL), RTR(16, 4096, 1, FORM_LARGE)),
    UP("to a number of 33 bits", FRAME_RTR, ENDS(PROTOCOL), RTR(1ull << 32, 4096, 1, FORM_LARGE)),
    AFTER(NEED_LARGE, "for what is to be read", FRAME_RTR, ENDS(PROTOCOL),
          RTR(0, 4096, 1, FORM_LARGE)),
    AFTER(NEED_PIECES, "for what was never announced", FRAME_RTR, ENDS(PROTOCOL),
          RTR(1, 4096, 1, FORM_LARGE)),
    AFTER(NEED_PIECES, "of another size", FRAME_RTR, ENDS(PROTOCOL),
          RTR(0, 4096, 1, FORM_LARGE + 1)),
    AFTER(NEED_PIECES, "a key of 33 bits", FRAME_RTR, ENDS(PROTOCOL),
          RTR(0, 4096, 1ull << 32, FORM_LARGE)),
    AFTER(
        NEED_PIECES, "twice", FRAME_RTR, ENDS(PROTOCOL) | ENDS(PEER_LOST),
        {.type = FRAME_RTR, .times = 2, .length = FRAME_RTR_BYTES, .word = {4096, 1, FORM_LARGE}}),
    AFTER(NEED_PIECES, "a key that opens nothing", FRAME_RTR, ENDS(PEER_LOST),
          RTR(0, 4096, 0x12345678, FORM_LARGE)),
    UP("of nothing", FRAME_ATS, ENDS(PROTOCOL), WITH_TOTAL(FRAME_ATS, 0)),
    UP("of a number that there is not", FRAME_ATS, ENDS(PROTOCOL), WITH_TOTAL(FRAME_ATS, 16)),
    AFTER(NEED_LARGE, "an outcome that there is not", FRAME_ATS, ENDS(PROTOCOL),
          WITH_TOTAL(FRAME_ATS, 2ull << 32)),
    AFTER(NEED_LARGE, "twice", FRAME_ATS, ENDS(PROTOCOL), {.type = FRAME_ATS, .times = 2}),
    AFTER(NEED_PIECES, "of what was not written", FRAME_ATS, ENDS(PROTOCOL),
          WITH_TOTAL(FRAME_ATS, 0)),
    AFTER(NEED_PIECES, "an outcome that there is not", FRAME_ATS, ENDS(PROTOCOL),
          WITH_TOTAL(FRAME_ATS, 2ull << 32)),
    UP("of nothing", FORM_WRITE, ENDS(PROTOCOL), WITH_TOTAL(FORM_WRITE, 0)),
    UP("of a number that there is not", FORM_WRITE, ENDS(PROTOCOL), WITH_TOTAL(FORM_WRITE, 16)),
    UP("of all numbers", FORM_WRITE, ENDS(PROTOCOL), WITH_TOTAL(FORM_WRITE, UINT32_MAX)),
    UP("of what is to be read", FORM_WRITE, ENDS(PROTOCOL) | ENDS(PEER_LOST),
       RTS(0, FORM_LARGE, WORD(0, DATA, READ, 1), 4096), WITH_TOTAL(FORM_WRITE, 0)),
    AT(STAGE_HELLO, "before HELLO", FORM_WRITE, UNTOLD, WITH_TOTAL(FORM_WRITE, 0)),
    /* ---- what there is not ---- */
    UP("type 0", 0, ENDS(PROTOCOL), {.type = 0, .length = 16}),
    UP("the first type that there is not", 0, ENDS(PROTOCOL), {.type = FRAME_TYPES}),
    UP("the last type", 0, ENDS(PROTOCOL), {.type = 255, .length = 16}),
    AT(STAGE_HELLO, "type 0 before HELLO", 0, ENDS(PROTOCOL), {.type = 0, .length = 16}),
};

unsigned frame_form_own(void) {
    return sizeof forms / sizeof forms[0];
}

unsigned frame_form_count(void) {
    return frame_form_own() + frame_way_count() * (FRAME_TYPES - 1);
}

void frame_form_get(unsigned i, struct frame_form *out) {
    unsigned own = frame_form_own();
    if (i < own)
        *out = forms[i];
    else if (!frame_way_get((i - own) / (FRAME_TYPES - 1), 1 + (i - own) % (FRAME_TYPES - 1), out))
        *out = (struct frame_form){.name = NULL};
}
