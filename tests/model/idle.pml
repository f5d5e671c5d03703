/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * idle.pml - src/datapath/loop/wait.c: a loop arms its CQ, takes one more turn and sleeps on the completion
 * channel only if that found nothing.
 *
 * The device adds completions one by one. Arming is one shot: the first completion after it, and that
 * one only, puts an event into the channel. A turn polls a batch and may leave a part of it for the next
 * one (the caller's array is full). The loop spins for any number of turns before it sleeps.
 *
 * Mutants, each of which must fail: ARM_AFTER_LOOK, NO_RECHECK, NO_REARM (the event does not end the
 * arming), NO_ARM, IGNORE_REST (sleeps on a batch half looked at), ARM_TWICE (asks although an arming is
 * out: events pile up).
 *
 * Proved: a loop that sleeps for good has no completion left, in the queue or in its batch; and the
 * channel never holds more than one event.
 */
#define COMPLETIONS 4
#define BATCH 2

byte cq = 0;          /* completions to be polled */
bool notify = false;  /* the device's: the next one makes an event */
byte events = 0;      /* in the completion channel */

active proctype device() {
    byte i;
    for (i : 1 .. COMPLETIONS) {
        cq++;
        atomic { /* a driver holds the CQ's lock for this and for arming */
            if
            :: notify -> notify = false; events++; assert(events <= 1)
            :: else
            fi
        }
    }
}

inline turn() {
    found = 0;
    if
    :: batch == 0 ->
        atomic {
            if
            :: cq >= BATCH -> batch = BATCH
            :: else -> batch = cq
            fi;
            cq = cq - batch
        }
    :: else
    fi;
    do
    :: batch > 0 -> batch--; found++
    :: break /* no room for more, or nothing is left */
    od
}

inline arm() {
    if
#ifdef ARM_TWICE
    :: true -> armed = true; notify = true
#else
    :: !armed ->
        armed = true;
#ifndef NO_ARM
        notify = true
#endif
#endif
    :: armed
    fi
}

inline drain() {
    if
    :: events > 0 ->
        events--;
#ifndef NO_REARM
        armed = false
#endif
    :: else
    fi
}

#ifdef IGNORE_REST
#define NOTHING_LEFT true
#else
#define NOTHING_LEFT (batch == 0)
#endif

active proctype loop() {
    bool armed = false; /* the loop's own note, cq_armed */
    byte batch = 0, found = 0;
    do
    :: turn() /* spinning */
    ::
#ifdef ARM_AFTER_LOOK
        turn();
        arm();
#else
        arm();
#ifndef NO_RECHECK
        turn();
#endif
#endif
        if
        :: found == 0 && NOTHING_LEFT ->
            if
            :: events > 0
            :: timeout -> assert(cq == 0 && batch == 0); goto asleep
            fi;
            drain()
        :: else
        fi
    od;
asleep:
    skip
}
