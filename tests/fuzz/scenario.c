/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * scenario.c - inputs that lead deep, for the targets that are driven by acts: what two sides say to each
 * other when all is well, a way of it each. What an act takes of the input stands where it is done (say.c,
 * session.c, teller.c, slot_fuzz.c); a 0 is behind each frame, which is then not changed.
 */
#include "fuzz/fuzz.h"
#include "menu.h"
#include "seeds.h"

#include "base/stats.h"

#define A(act) (0x100 | (act)) /* by its place in the menu; what is below are bytes as they are */
#define TURN A(ACT_TURN)
#define END (-1)

struct scenario {
    int16_t step[48];
};

static void write_one(const struct scenario *scenario, uint8_t how, const uint8_t *menu,
                      size_t count) {
    uint8_t bytes[48];
    size_t n = 0;
    bool frame = false; /* its last byte says whether it is changed */
    for (const int16_t *step = scenario->step; *step != END; step++) {
        size_t at = 0;
        while (*step >= 0x100 && menu[at] != (*step & 0xff)) {
            at++;
            PROVE(at < count);
        }
        if (*step >= 0x100)
            frame = (*step & 0xff) >= SAY_DATA && (*step & 0xff) <= SAY_REFUSE;
        else if (frame && (step[1] == END || step[1] >= 0x100))
            seed_mark(n + 1, SEED_SAY);
        bytes[n++] = (uint8_t)(*step >= 0x100 ? at : (size_t)*step);
    }
    seed_write(&how, 1, bytes, n);
}

/* As dialer and as listener, by both ways of a large message, over these links. */
static void write_all(const struct scenario *list, size_t count, const uint8_t *menu, size_t acts,
                      unsigned links) {
    for (size_t i = 0; i < count; i++)
        for (uint8_t how = 0; how < 4; how++)
            write_one(&list[i], (uint8_t)(how | (i % links) << 2 | (i & 1) << 7), menu, acts);
}
#define WRITE_ALL(list, menu, links)                                                               \
    write_all(list, sizeof list / sizeof *list, menu, sizeof menu, links)

void scenario_rendezvous(void) {
    static const struct scenario list[] = {
        {{A(SAY_ANNOUNCE), 26, 0, TURN, TURN, END}},
        {{A(SAY_ANNOUNCE), 27, 0, TURN, A(DEV_WRITE), 1, TURN, END}},
        {{A(SAY_ANNOUNCE), 26, 0, TURN, A(APP_PLACE), 1, TURN, END}},
        {{A(SAY_ANNOUNCE), 27, 0, TURN, A(DEV_WRITE), 0, A(DEV_WRITE), 1, TURN, END}},
        {{A(APP_SEND_LARGE), 101, TURN, A(DEV_READ), 0, TURN, A(SAY_TAKEN), 0, 0, TURN, END}},
        {{A(SAY_ANNOUNCE), 27, 0, TURN, A(APP_PLACE), 0, TURN, A(DEV_WRITE), 1, TURN, END}},
        {{A(APP_SEND_LARGE), 101, TURN, A(SAY_READY), 0, 0, TURN, END}},
        {{A(SAY_FRAGMENT), 80, 0, A(SAY_FRAGMENT), 80, 0, A(SAY_FRAGMENT), 80, 0, TURN, END}},
        {{A(APP_REQUEST), 200, 0, TURN, A(SAY_TAKEN), 0, 0, TURN, A(SAY_ANNOUNCE), 1, 26, 0, TURN,
          END}},
        {{A(APP_REQUEST), 200, 0, TURN, A(SAY_READY), 0, 0, TURN, A(SAY_ANNOUNCE), 1, 27, 0, TURN,
          A(DEV_WRITE), 1, TURN, END}},
        {{A(SAY_ANNOUNCE), 24, 0, TURN, A(APP_REPLY), 2, TURN, A(SAY_READY), 0, 0, TURN, END}},
        {{A(SAY_ANNOUNCE), 26, 0, A(SAY_ANNOUNCE), 27, 0, A(SAY_DATA), 9, 0, TURN, A(DEV_WRITE), 17,
          TURN, END}},
        {{A(APP_SEND_LARGE), 255, A(APP_SEND_LARGE), 9, TURN, A(DEV_LEAVE), TURN, END}},
        {{A(APP_SEND_LARGE), 255, TURN, A(SAY_BYE), 0, TURN, A(APP_HANGUP), 200, TURN, END}},
        {{A(SAY_ANNOUNCE), 250, 0, TURN, A(DEV_ERROR), TURN, END}},
        {{A(SAY_ANNOUNCE), 27, 0, TURN, A(SAY_CREDIT), 0, A(APP_HANGUP), 0, TURN, END}},
        {{A(SAY_ANNOUNCE), 27, 0, TURN, A(DEV_WRITE), 0x1f, TURN, END}}, /* before it may */
        /* The number of the first, again. */
        {{A(SAY_ANNOUNCE), 27, 0, TURN, A(SAY_ANNOUNCE), 27, 224, 8, 0, 0, TURN, END}},
        /* What was its own, sent, and is then the place for what is not written. */
        {{A(APP_KEEP), 1,    A(SAY_ANNOUNCE), 154, 0, TURN, A(APP_FREE),  1, TURN, A(SAY_TAKEN), 0,
          0,           TURN, A(SAY_ANNOUNCE), 155, 0, TURN, A(DEV_WRITE), 2, TURN, END}},
    };
    WRITE_ALL(list, menu_rendezvous, 3);
}

void scenario_credit(void) {
    static const struct scenario list[] = {
        {{A(SAY_DATA), 5, 0, A(SAY_DATA), 5, 0, TURN, A(SAY_DATA), 5, 0, A(SAY_DATA), 5, 0, TURN,
          A(SAY_DATA), 250, 0, TURN, END}},
        {{A(APP_KEEP), 1, A(SAY_DATA), 5, 0,    A(SAY_DATA), 5, 0, A(SAY_DATA), 9,  0, TURN,
          A(APP_FREE), 0, A(APP_FREE), 1, TURN, A(SAY_DATA), 5, 0, TURN,        END}},
        {{A(SAY_DATA), 5,           0,
          A(SAY_DATA), 5,           0,
          TURN,        A(SAY_DATA), 5,
          0,           A(SAY_DATA), 5,
          0,           TURN,        A(APP_CLOCK),
          20,          TURN,        A(APP_CLOCK),
          20,          TURN,        A(SAY_RETURN),
          0,           TURN,        END}},
        {{A(SAY_RECALL), 0, 0, TURN, A(SAY_CREDIT), 0, TURN, A(APP_SEND), 41, TURN, END}},
        {{A(APP_SEND), 41, A(APP_SEND), 43, A(APP_SEND), 45, TURN, A(SAY_CREDIT), 0, TURN,
          A(APP_SEND), 41, A(APP_SEND), 41, TURN, A(SAY_CREDIT), 0, TURN, END}},
        {{A(SAY_PACK), 3, 0, TURN, A(SAY_ALIVE), 0, TURN, A(SAY_NOTIFY), 7, 0, TURN, END}},
        /* Two credits more than it has, where receives are posted for replies. */
        {{A(APP_REQUEST),
          1,
          0,
          A(APP_REQUEST),
          3,
          0,
          TURN,
          A(SAY_DATA),
          5,
          0,
          A(SAY_DATA),
          5,
          0,
          A(SAY_DATA),
          5,
          0,
          A(SAY_DATA),
          5,
          0,
          A(SAY_DATA),
          251,
          5,
          0,
          A(SAY_DATA),
          251,
          5,
          0,
          TURN,
          END}},
        {{A(APP_CLOCK), 24, TURN, A(APP_CLOCK), 24, TURN, END}},
        {{A(APP_REACH), 3, A(APP_REACH), 0, A(APP_REACH), 1, A(APP_REACH), 4, TURN, END}},
    };
    WRITE_ALL(list, menu_credit, 3);
}

void scenario_request(void) {
    static const struct scenario list[] = {
        {{A(APP_REQUEST), 11, 0, TURN, A(SAY_REPLY), 0, 0, TURN, END}},
        {{A(SAY_REQUEST), 7, 0, TURN, A(APP_REPLY), 3, TURN, A(SAY_CREDIT), 0, TURN, END}},
        {{A(SAY_REQUEST), 4, 0, TURN, A(APP_CLOCK), 20, TURN, A(APP_REPLY), 1, A(APP_REPLY), 0,
          TURN, END}},
        {{A(APP_REQUEST),
          11,
          0,
          A(APP_REQUEST),
          13,
          200,
          TURN,
          A(APP_CANCEL),
          1,
          TURN,
          A(APP_CLOCK),
          18,
          TURN,
          A(SAY_REPLY),
          5,
          0,
          A(SAY_REPLY),
          0,
          0,
          TURN,
          END}},
        {{A(SAY_REQUEST), 1, 0, A(SAY_CANCEL), 0, 0, TURN, A(APP_REPLY), 3, TURN, END}},
        {{A(SAY_PACK), 0xab, 0, TURN, A(APP_REPLY), 3, A(APP_REPLY), 4, A(APP_REPLY), 0, TURN,
          END}},
        {{A(APP_REQUEST), 1, 0, A(APP_REQUEST), 3, 0, A(APP_REQUEST), 5, 0, TURN, A(SAY_PACK), 1, 2,
          0, TURN, END}},
        {{A(APP_REQUEST), 1, 0, TURN, A(SAY_REPLY), 7, 0, A(SAY_REQUEST), 9, 0, TURN, A(APP_REPLY),
          2, TURN, A(SAY_READY), 0, 0, TURN, END}},
        {{A(APP_REQUEST), 1, 0, A(SAY_REQUEST), 9, 0, TURN, A(DEV_LEAVE), TURN, END}},
        /* A second reply to the same. */
        {{A(APP_REQUEST), 1, 0, TURN, A(SAY_REPLY), 0, 0, TURN, A(SAY_REPLY), 251, 0, 0, TURN,
          END}},
    };
    WRITE_ALL(list, menu_request, 3);
}

/* The first byte is that of the record, which is altered above 200. */
void scenario_greeting(void) {
    static const struct scenario list[] = {
        {{0, TURN, A(SAY_HELLO), 5, 0, TURN, A(SAY_DATA), 5, 0, TURN, END}},
        {{0, TURN, A(SAY_HELLO), 5, 0, TURN, A(APP_DECIDE), 0, TURN, A(SAY_DATA), 5, 0, TURN, END}},
        {{0, TURN, A(SAY_HELLO), 0, 0, TURN, A(APP_DECIDE), 255, TURN, END}},
        {{0, TURN, A(SAY_WELCOME), 0, TURN, A(APP_SEND), 9, TURN, END}},
        {{0, TURN, A(SAY_REFUSE), 6, 0, TURN, END}},
        {{0, TURN, A(APP_CLOCK), 25, TURN, END}},
        {{201, 12, 1, TURN, A(SAY_HELLO), 5, 0, TURN, END}},
    };
    for (uint8_t how = 0; how < 20; how++)
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)
            write_one(&list[i], how, menu_greeting, sizeof menu_greeting);
}

/* A message is 0, its place in the list of types, a choice and 0; the rest are acts of this process. */
void scenario_control(void) {
    static const struct scenario list[] = {
        {{0, 16, 0, 0, 144, 0, 146, 0, 0, 21, 0, 0, 144, 0, 0, 23, 0, 0, 144, 0, 148, 0, END}},
        {{0, 16, 0, 0, 144, 0, 146, 128, 0, 21, 0, 0, 144, 0, 148, 0, 0, 24, 0, 0, 144, 0, END}},
        {{145, 1, 144, 0, 144, 0, 0, 19, 0, 0, 144, 0, 148, 0, 0, 24, 0, 0, 144, 0, END}},
        {{145, 0, 144, 0, 144, 0, 0, 18, 0, 0, 0, 22, 32, 0, 144, 0, 149, 0, END}},
        {{150, 0, 150, 0, 0, 0, 8, 0, 0, 1, 8, 0, 150, 0, END}},
        {{150, 0, 0, 0, 8, 0, 0, 0, 8, 0, 150, 0, 150, 0, END}},
        {{150, 2, 150, 2, 151, 0, 0, 7, 12, 0, 151, 0, 0, 9, 12, 0, 150, 2, END}},
        {{150, 2, 150, 2, 0, 6, 8, 0, 0, 6, 8, 0, 0, 9, 8, 0, 150, 2, END}},
        {{0, 25, 0, 0, 144, 0, 146, 128, 0, 25, 128, 0, 147, 0, END}},
        {{0, 2, 0, 0, 0, 2, 16, 0, 0, 5, 0, 0, 0, 4, 0, 0, END}},
        {{0, 10, 0, 0, 0, 11, 1, 0, 0, 11, 5, 0, 0, 12, 1, 0, 0, 13, 0, 0, END}},
        {{0, 27, 0, 0, 0, 14, 0, 0, 0, 15, 0, 0, END}},
        {{255, 0, 16, 0, 0, 144, 0, END}},
        {{0, 23, 64, 0, 0, 23, 65, 0, 0, 19, 64, 0, 0, 22, 96, 0, END}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (uint8_t greets = 0; greets < 2; greets++) {
            const int16_t *step = list[i].step;
            for (size_t at = 0; step[at] != END; at += step[at] == 0 ? 4 : step[at] < 248 ? 2 : 1)
                if (step[at] == 0)
                    seed_mark(at + 4, SEED_TELL);
            write_one(&list[i], greets, NULL, 0);
        }
    for (uint8_t type = 0; type < 32; type++) {
        const uint8_t changed[] = {0, 0, type, 0, 240, 3, 1, 0, 0, 0, 0, type, 8, 0};
        seed_write("", 0, changed, sizeof changed);
    }
}

/* A forged slot, of which each value is right; then a poll. Returns how many bytes of input. */
static size_t put_slot(uint8_t *bytes, size_t n, uint8_t op, uint8_t size) {
    static const uint8_t values[10] = {[1] = 3, [2] = 3, [3] = 3, [4] = 3, [5] = 4}; /* payload() */
    bytes[n++] = 0;
    bytes[n++] = op;
    bytes[n++] = size;
    for (unsigned i = 0; i < values[op] + 4u; i++) { /* length, word, acknowledgement, sequence */
        seed_mark(n, SEED_ANY);
        bytes[n++] = 0;
    }
    bytes[n++] = 6;
    return n;
}

void scenario_slot(void) {
    for (uint8_t op = 0; op < 10; op++)
        for (uint8_t how = 0; how < 4; how++) {
            uint8_t bytes[64] = {how & 1, 20}; /* a receive */
            size_t n = put_slot(bytes, 2, op, how & 2 ? 41 : 40);
            n = put_slot(bytes, n, 0, 150); /* and a message of several slots */
            seed_write("", 0, bytes, n);
        }
    for (uint8_t opcode = 0; opcode < 8; opcode++)
        for (uint8_t mapped = 0; mapped < 2; mapped++) {
            uint8_t answer =
                opcode < 6 ? 6 : 7; /* of a READ, of an atomic: 14 * 14 / 16 is 12 bytes */
            uint8_t bytes[32] = {mapped, 5, opcode, 14, 6};
            size_t n = put_slot(bytes, 5, answer, 6);
            bytes[n++] = 3;
            bytes[n++] = 0;
            seed_mark(n, SEED_ANY);
            n++;
            bytes[n++] = 6;
            const uint8_t large[] = {mapped, 5, opcode, 255, 6, 3,      0,  0, 6,
                                     3,      0, 0,      6,   5, opcode, 90, 6};
            seed_write("", 0, bytes, n);
            seed_write("", 0, large, sizeof large);
        }
}

/* No end of the name, and none of the device's. */
static void write_names(void) {
    uint8_t bytes[1 + 16 * 10];
    size_t n = 1;
    bytes[0] = 0;
    for (uint16_t i = 0; i < 16; i++, n += 10) {
        uint16_t word = htole16((uint16_t)(offsetof(struct stats_page, name) / 8 + i));
        memcpy(bytes + n, &word, sizeof word);
        memset(bytes + n + 2, 'x', 8);
    }
    seed_write("", 0, bytes, n);
}

/* Words of the page, where something depends on them. */
void scenario_stats(void) {
    static const size_t places[] = {
        0,
        offsetof(struct stats_page, bytes),
        offsetof(struct stats_page, start_ns),
        offsetof(struct stats_page, name),
        offsetof(struct stats_page, name) + 56,
        offsetof(struct stats_page, memory_bytes),
        offsetof(struct stats_page, class_bytes),
        offsetof(struct stats_page, memory[0].numa),
        offsetof(struct stats_page, memory[1].buffers[3].gets),
        offsetof(struct stats_page, cm.events),
        offsetof(struct stats_page, loops[0].cpu),
        offsetof(struct stats_page, loops[0].idle),
        offsetof(struct stats_page, loops[1].polls),
        offsetof(struct stats_page, loops[1].buffers[1][52].puts),
        offsetof(struct stats_page, loops[63].in_use),
    };
    write_names();
    for (uint8_t how = 0; how < 32; how++)
        seed_write(&how, 1, NULL, 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        uint16_t word = htole16((uint16_t)(places[i] / 8));
        uint8_t bytes[11] = {0};
        memcpy(bytes + 1, &word, sizeof word);
        for (int fill = 0; fill < 2; fill++) {
            memset(bytes + 3, fill ? 0xff : 0x9b, 8);
            seed_write("", 0, bytes, sizeof bytes);
        }
    }
}
