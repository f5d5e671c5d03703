/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session.h - one run of the targets that drive a session by bytes: the real library on one side, a stranger
 * on the other, connected anew for each input, which says what either does next.
 *
 * Input: how they connect, then acts of a few bytes each, chosen from the target's own menu. What was posted
 * moves with a TURN, until nothing moves any more, so that the same input is the same run, whatever the
 * device's own thread does meanwhile. Time passes where the input says so.
 *
 * SLUICE_FUZZ_TRACE=1 prints each act and what came of it.
 */
#ifndef TESTS_FUZZ_SESSION_H
#define TESTS_FUZZ_SESSION_H

#include "honest.h"
#include "stranger.h"

enum act {
    ACT_TURN,
    /* of the stranger: a frame each */
    SAY_DATA,
    SAY_FRAGMENT,
    SAY_CREDIT,
    SAY_BYE,
    SAY_ALIVE,
    SAY_REQUEST,
    SAY_REPLY,
    SAY_PACK,
    SAY_ANNOUNCE,
    SAY_READY,
    SAY_TAKEN,
    SAY_CANCEL,
    SAY_NOTIFY,
    SAY_RECALL,
    SAY_RETURN,
    SAY_HELLO,
    SAY_WELCOME,
    SAY_REFUSE,
    SAY_NOISE, /* any bytes */
    /* of its device */
    DEV_WRITE, /* to where it was told RTR */
    DEV_READ,  /* what was announced */
    DEV_WILD,  /* anywhere, by any key */
    DEV_LEAVE, /* disconnects */
    DEV_ERROR, /* its queue pair ends */
    /* of the honest side's application */
    APP_SEND,
    APP_SEND_LARGE,
    APP_REQUEST,
    APP_REPLY,
    APP_KEEP,
    APP_FREE,
    APP_CANCEL,
    APP_REACH,
    APP_PLACE,
    APP_DECIDE,
    APP_HANGUP,
    APP_CLOCK,
    ACTS
};

/* How the two come together; more than the menu wants is masked away. */
struct session_menu {
    const uint8_t *acts;
    uint32_t count;
    bool
        greets; /* the acts begin before HELLO; else the session is up first, and nobody is asked */
};

int session_run(const struct session_menu *menu, const uint8_t *data, size_t size);
/* say.c: one act of the stranger's. False: it is none of its. */
bool session_say(struct stranger *st, enum act act, struct fuzz_input *in);

#endif
