/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attack.h - what takes a victim's time, memory, descriptors or names, or tries to: attacks of sessions, of the
 * software device below them, and of the names by which processes find each other. Each goes on until its process is
 * killed, if it does not die by itself.
 */
#ifndef HOSTILE_ATTACK_H
#define HOSTILE_ATTACK_H

#include <stdbool.h>
#include <stdint.h>

struct attack_target {
    unsigned port;    /* where the victim listens for hostile peers */
    unsigned welcome; /* and for honest ones, by a wildcard */
    uint32_t qpn;     /* of the victim's process */
    int pid;          /* and its id */
    uint64_t address; /* of a region that a token opens, */
    uint32_t rkey;    /* and its key */
};

enum {
    ATTACK_ONCE = 1,     /* it works at once, or not at all: the slowest set-up counts */
    ATTACK_STOPS = 2,    /* its process is stopped when it is ready */
    ATTACK_STRANGER = 4, /* only another user's; to our own it is promised */
    ATTACK_NAMES = 8,    /* takes names that others would miss: in a network namespace of its own */
    ATTACK_HUNG_UP = 16, /* the victim hangs up when it is ready */
    ATTACK_ZEROS = 32,   /* a large message is delivered, of zeros */
    ATTACK_DIES = 64,    /* by itself */
    ATTACK_FORGES = 128, /* the tool asks for the status of process ATTACK_FORGED */
};

#define ATTACK_FORGED 1 /* it never opens the device */

struct attack {
    const char *name;
    void (*run)(const struct attack_target *target, unsigned arg);
    unsigned arg, flags;
    unsigned need;    /* what the victim does with its sessions (enum form_need) */
    uint32_t reasons; /* for which they may end */
};

unsigned attack_count(void);
const struct attack *attack_get(unsigned i);

/* In the attacker: says that it has begun; and stays as it is. */
void attack_ready(void);
void attack_stay(void) __attribute__((noreturn));

/* attack_session.c */
void attack_stays_inside(const struct attack_target *target, unsigned dies);
void attack_inside_while_others_end(const struct attack_target *target, unsigned arg);
void attack_writes_nothing(const struct attack_target *target, unsigned arg);
void attack_reaches_before_hello(const struct attack_target *target, unsigned arg);
void attack_holds_landings(const struct attack_target *target, unsigned arg);
void attack_begins_messages(const struct attack_target *target, unsigned arg);
void attack_waits(const struct attack_target *target, unsigned deaf);
void attack_half_opens(const struct attack_target *target, unsigned arg);
void attack_dies(const struct attack_target *target, unsigned step);
void attack_makes_noise(const struct attack_target *target, unsigned mode);

/* attack_device.c */
void attack_calls(const struct attack_target *target, unsigned arg);
void attack_talks(const struct attack_target *target, unsigned arg);
void attack_passes_slow(const struct attack_target *target, unsigned by_bell);
void attack_does_not_read(const struct attack_target *target, unsigned arg);
void attack_is_many(const struct attack_target *target, unsigned arg);
void attack_holds_connections(const struct attack_target *target, unsigned arg);

/* attack_name.c */
void attack_takes_numbers(const struct attack_target *target, unsigned arg);
void attack_takes_groups(const struct attack_target *target, unsigned arg);
void attack_takes_ports(const struct attack_target *target, unsigned arg);
void attack_takes_exact_name(const struct attack_target *target, unsigned arg);
void attack_forges_status(const struct attack_target *target, unsigned arg);
void attack_crowds_control(const struct attack_target *target, unsigned arg);

#endif
