/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * victim.h - the node that hostile peers deal with, and an honest pair beside them: its other end is a node of this
 * process, too. One thread of its own turns the victim's loop and the honest one, so whatever a peer does to the
 * victim's loop, to the device's engine or to the locks of either shows in the next round trip.
 *
 * Scheduling is taken out: a round trip is measured by the processor time of the thread, and by the clock without the
 * time in which the thread could run and did not. What seems too long is made again: whom the thread waits for may not
 * have run either.
 *
 * Whatever goes wrong ends the process: must_end_process. The calls are for the main thread.
 */
#ifndef HOSTILE_VICTIM_H
#define HOSTILE_VICTIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <sluice/memory.h>
#include <sluice/sluice.h>

#include "common/sanitize.h"

#ifdef SANITIZE_THREAD /* which makes everything slower, and locks most of all */
#define VICTIM_BOUND_NS 500000000ull
#else
#define VICTIM_BOUND_NS 100000000ull
#endif
#define VICTIM_TRIES 5u
#define VICTIM_OTHER_UID 65534u

/* What became of hostile sessions since victim_forget(). */
struct victim_seen {
    _Atomic unsigned ups, closed;
    _Atomic uint32_t reasons; /* that the application was told, as bits */
    _Atomic uint32_t logged;  /* and of sessions that it was not told of */
    _Atomic unsigned last;    /* peers that said FRAME_SPEAK_LAST, and were hung up */
    _Atomic unsigned large,
        wrong; /* messages above a frame; and of them those that were not zero */
};
extern struct victim_seen victim_seen;

struct victim_worst {
    uint64_t own_ns;    /* a round trip by the thread's processor time */
    uint64_t wall_ns;   /* and with what it waited */
    uint64_t set_up_ns; /* a session, from the dial to UP */
    uint64_t memory_ns; /* opening and closing a region */
};

void victim_open(void);
void victim_close(void);
unsigned victim_port(void);    /* for hostile peers */
unsigned victim_welcome(void); /* for honest ones: the port of a wildcard address */
void victim_move(void);        /* it becomes another, which nobody has dialed yet */
uint32_t victim_qpn(void);     /* of the honest session's end */
/* A region of so many bytes that a token opens to everybody; all of it is `fill`. */
const sluice_token *victim_token(uint8_t fill);
bool victim_untouched(uint8_t fill);

/* What a session of a hostile peer is given when it is up (enum form_need); from then on. */
void victim_serve(unsigned need);
void victim_forget(void);
/* Dials a hostile listener, with something to greet it with. */
void victim_dial(unsigned port);
/* Hangs up whatever hostile session is up. */
void victim_hang_up(void);
/* The honest pair goes on from here. */
void victim_begin(void);
/* So many round trips more. */
void victim_go_on(unsigned rounds);
/* The worst since the last call, of round trips; and sets up others: the quickest of some, or the slowest. */
struct victim_worst victim_measure(bool slowest);
struct victim_worst victim_take(void);
bool victim_withstood(const struct victim_worst *worst);
void victim_worse(struct victim_worst *all, const struct victim_worst *one);
void victim_tell(const char *what, unsigned uid, const struct victim_worst *worst);
/* It stops, and descriptors, threads and memory become what they were at victim_begin(). */
void victim_end(void);

#endif
