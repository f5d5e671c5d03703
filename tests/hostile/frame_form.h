/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * frame_form.h - every frame type of the protocol, said wrong in every way that it can be: what is sent, when, and
 * how the victim's session may end for it. Data; frame_speak.h says it.
 *
 * The forms of one type are those of its own (form.c) and those that are made of its specimen (frame_way.c), of which
 * there is one for each type: a type without one, or without a form of its own, fails a test.
 */
#ifndef HOSTILE_FRAME_FORM_H
#define HOSTILE_FRAME_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/status.h>

#include "core/wire/frame.h"

enum form_stage {
    STAGE_UP,       /* in a session that is up */
    STAGE_HELLO,    /* a dialer, in the place of HELLO */
    STAGE_WELCOMED, /* a dialer, behind its HELLO and WELCOME */
    STAGE_ANSWER,   /* a listener, in the place of WELCOME */
    STAGE_BYE,      /* behind BYE */
};

/* What the victim does first. */
enum form_need {
    NEED_NOTHING, /* says a word, as it is up */
    NEED_REQUEST, /* asks, and waits for the reply */
    NEED_LARGE,   /* announces a message to be read */
    NEED_PIECES,  /* and one that it will write */
    NEED_MANY,    /* sends more than is taken */
};

#define FORM_LARGE 100000u /* bytes of these messages */

enum form_twist {
    TWIST_NONE,
    TWIST_HEADLESS, /* so many bytes: `length` */
    TWIST_LONGER,   /* the header says one byte more than there is */
    TWIST_SHORTER,  /* or one less, with a byte there */
    TWIST_HUGE,     /* or 4 GiB */
    TWIST_BACK,     /* the sequence number before */
    TWIST_AHEAD,    /* the one after */
    TWIST_ID,       /* total: behind the id of what the victim asked */
};

#define FORM_WRITE                                                                                 \
    0xfeu             /* type of a step that is no frame: WRITE of nothing with immediate `total` */
#define FORM_MANY 64u /* more than a peer can have credits for, at once */
#define FORM_WORDS 6u

struct form_step {
    uint8_t type, flags, twist, times; /* times 0: once */
    uint16_t credits;
    uint32_t ack, length;
    uint64_t total;
    uint64_t word[FORM_WORDS]; /* the beginning of the payload; the rest is zero */
};

/* Outcomes: what may end the session, as bits. A session that goes on is hung up by the victim. */
#define ENDS(reason) (1u << SLUICE_REASON_##reason)
#define GOES_ON ENDS(LOCAL_CLOSE)
#define UNTOLD 0u /* it ends before it is one, for what the device says */
_Static_assert(SLUICE_REASON_ACCESS < 32, "reasons are bits");

#define FORM_STEPS 3u

struct frame_form {
    const char *name;
    uint8_t type; /* which type it is about; 0: types that there are not, FORM_WRITE: writes */
    uint8_t stage, need;
    uint32_t outcomes;
    struct form_step step[FORM_STEPS]; /* up to one of type 0 with TWIST_NONE and no length */
};

/* A well-formed one, for a session in which nothing was asked; type 0: there is none. */
extern const struct form_step frame_specimen[FRAME_TYPES];

unsigned frame_form_own(void); /* how many are of a type's own: they come first */
unsigned frame_form_count(void);
void frame_form_get(unsigned i, struct frame_form *out);

/* frame_way.c: False: there is no such way to say this type wrong. */
unsigned frame_way_count(void);
bool frame_way_get(unsigned way, unsigned type, struct frame_form *out);

#endif
