/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * wakeup.pml - src/fabric/wakeup.c and mailbox.h with the two threads' loops that sleep on them.
 *
 * Two producers post records and ring, a stopper sets a flag and rings, one owner sleeps. Relaxed
 * stores wait in a store buffer of one entry a thread until a fence or until the memory feels like it;
 * loads see the memory. That is what a processor of the x86 kind does; weaker ones differ in the order
 * of loads, which the fences order too. A record is one step: a producer that is half way has not rung.
 *
 * Variants: USER (rdma_write_cm_event, which may fail; else eventfd alone) and CM_TURN (the order of
 * cm_progress(); else that of loop_sleep()).
 * Mutants, each of which must fail: NO_FENCE, NO_RING_FENCE, NO_RECHECK, ARM_AFTER_LOOK,
 * RING_BEFORE_POST, NO_MERGE, DRAIN_AFTER_ARM, NO_STOP_CHECK, NO_FALLBACK (with USER).
 *
 * Proved: an owner that sleeps for good has no record, no stop and no readable descriptor (the assertion at
 * `timeout`, which is true when nobody else can move); a stop ends the owner (stops); and one arming
 * lets one system call through, so a kernel never queues more events than the owner slept times.
 */
#define AWAKE 0
#define ARMED 1
#define RUNG 2

#ifndef RECORDS
#define RECORDS 2 /* of the first producer; the other posts one */
#endif
#define DRAIN_MAX 1 /* user events taken in one drain, smaller than what can be queued */

byte state = AWAKE;  /* the wakeup's word, in memory */
byte buffered = 0;   /* the owner's store on its way there */
bool pending = false;
byte queue = 0;      /* records that can be taken */
byte unseen[2];      /* records a producer has written and nobody sees yet */
bool stop = false, stop_unseen = false;
bool event_fd = false;
byte queued = 0;     /* user events in the kernel */
bool rung = false;   /* somebody won since the owner armed */
bool left = false;

inline reach_memory() {
    if
    :: pending ->
        state = buffered;
        if
        :: buffered == ARMED -> rung = false
        :: else
        fi;
        buffered = 0;
        pending = false
    :: else
    fi
}

inline owner_stores(value) {
    d_step {
        reach_memory();
        buffered = value;
        pending = true
    }
}

inline owner_fence() {
    d_step { reach_memory() }
}

/* Stores become visible without a fence too, some time. */
active proctype memory() {
end:
    do
    :: d_step { pending -> reach_memory() }
    :: atomic { unseen[0] > 0 -> unseen[0]--; queue++ }
    :: atomic { unseen[1] > 0 -> unseen[1]--; queue++ }
    :: atomic { stop_unseen -> stop_unseen = false; stop = true }
    od
}

inline system_call() {
    atomic {
#ifdef USER
        if
        :: queued++
#ifdef NO_FALLBACK
        :: skip /* the write failed */
#else
        :: event_fd = true
#endif
        fi
#else
        event_fd = true
#endif
    }
}

/* After the fence. won and seen are the ringer's own. */
inline ring() {
    seen = state;
    if
    :: seen == ARMED ->
#ifdef NO_MERGE
        atomic { won = true; assert(!rung); rung = true }
#else
        atomic {
            won = (state == ARMED);
            if
            :: won -> state = RUNG; assert(!rung); rung = true
            :: else
            fi
        }
#endif
        if
        :: won -> system_call()
        :: else
        fi
    :: else /* awake, or rung by somebody */
    fi;
    seen = 0;
    won = false
}

proctype producer(byte me) {
    byte i, seen;
    bool won;
    for (i : 1 .. (me == 0 -> RECORDS : 1)) {
#ifdef RING_BEFORE_POST
        ring();
#endif
        unseen[me]++;
#ifndef NO_RING_FENCE
        atomic { queue = queue + unseen[me]; unseen[me] = 0 }
#endif
#ifndef RING_BEFORE_POST
        ring()
#endif
    }
}

proctype stopper() {
    byte seen;
    bool won;
    if
    :: true ->
        stop_unseen = true;
        atomic { stop_unseen = false; stop = true }
        ring()
    :: true /* nobody closes the node */
    fi
}

/* A turn's records: bounded, and here by the smallest bound. */
inline look() {
    d_step {
        found = (queue > 0);
        if
        :: found -> queue--
        :: else
        fi
    }
}

inline arm() {
    owner_stores(ARMED);
#ifndef NO_FENCE
    owner_fence()
#endif
}

inline disarm() {
    owner_stores(AWAKE);
    owner_fence()
}

inline drain() {
    event_fd = false;
    d_step {
        if
        :: queued > DRAIN_MAX -> queued = queued - DRAIN_MAX
        :: else -> queued = 0
        fi
    }
}

/* Returns when a descriptor is readable. Nobody can move and none is: then there must be no reason to. */
inline sleep() {
    if
    :: event_fd || queued > 0
    :: timeout -> assert(queue == 0 && !stop); goto asleep
    fi
}

#ifdef NO_STOP_CHECK
#define MUST_LEAVE false
#else
#define MUST_LEAVE stop
#endif

active proctype owner() {
    bool found;
    atomic { run producer(0); run producer(1); run stopper() }
    do
    :: stop -> break
    :: else ->
#ifdef CM_TURN
        look();
#ifdef NO_RECHECK
        arm();
        if
        :: found || MUST_LEAVE
        :: else -> sleep()
        fi;
#else
#ifdef ARM_AFTER_LOOK
        found = found || queue > 0;
        arm();
        if
        :: found || MUST_LEAVE
        :: else -> sleep()
        fi;
#else
        arm();
#ifdef DRAIN_AFTER_ARM
        drain();
#endif
        if
        :: found || queue > 0 || MUST_LEAVE
        :: else ->
#ifdef DRAIN_AFTER_ARM
            drain();
#endif
            sleep()
        fi;
#endif
#endif
        disarm();
        drain();
        look()
#else
        look();
        if
        :: found
        :: else ->
#ifdef ARM_AFTER_LOOK
            look();
            arm();
#else
            arm();
#ifndef NO_RECHECK
            look();
#endif
#endif
            if
            :: !found && (queue == 0
#if defined(NO_RECHECK) || defined(ARM_AFTER_LOOK)
                || true
#endif
                ) ->
#ifdef DRAIN_AFTER_ARM
                drain();
#endif
                if
                :: MUST_LEAVE
                :: else -> sleep(); drain()
                fi
            :: else
            fi;
            disarm()
        fi
#endif
    od;
    left = true;
asleep:
    skip
}

ltl stops { [] (stop -> <> left) }
