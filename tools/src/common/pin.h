/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pin.h - the CPU of a tool's own thread. Nodes and tools of one host claim CPUs by binding an
 * abstract socket name for each, which the kernel gives back when the process ends, however it
 * ends: so a server and a client that are started beside each other do not land on one CPU.
 *
 * Owner: the main thread.
 */
#ifndef PIN_H
#define PIN_H

#include <stdbool.h>
#include <stdint.h>

struct pin {
    int cpu;      /* -1: not pinned */
    int claim_fd; /* -1: the CPU is not ours alone */
    int allowed;  /* how many CPUs this process may run on */
};

/* Claims cpu, or the first free one for cpu < 0. Says what went wrong and returns an exit status. */
int pin_claim(struct pin *pin, int64_t cpu);
/* Pins the calling thread to the claimed CPU, if there is one. 0 or an exit status. */
int pin_apply(const struct pin *pin);
void pin_release(struct pin *pin);
/*
 * To another CPU than the one that it claimed, which the peer runs on: it was told to, or is in a container, where claims are
 * others. The calling thread is pinned there. False: no other is free.
 */
bool pin_move(struct pin *pin);
/* Some allowed CPU other than this one, -1 if there is none. */
int pin_other(int cpu);
bool pin_is_allowed(int cpu);
/* A number that every process of this host (not of this container only) gets, 0 if unknown. */
uint64_t pin_host_key(void);

#endif
