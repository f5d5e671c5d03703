/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_hostile.h - what the tests of hostile peers share: random numbers that break things, and
 * the control connection spoken by hand.
 */
#ifndef TESTS_SUPPORT_SOFTVERBS_HOSTILE_H
#define TESTS_SUPPORT_SOFTVERBS_HOSTILE_H

#include "support/softverbs.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/object/ring.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/un.h>

/* A number out of the sequence. */
uint32_t hostile_random(uint64_t *state);
/* Words that break things more often than any other. */
uint32_t hostile_nasty(uint64_t *state);
/* Connects to an abstract name. */
int hostile_dial_name(const char *name);
/* Connects to the control socket of the process with that queue pair. */
int hostile_dial(uint32_t qpn);
/* Sends one packet with these descriptors; nothing is expected of it. */
void hostile_say(int sock, const void *data, size_t bytes, const int *fds, unsigned count);

struct hello { /* as on the wire: head and body */
    uint32_t type, bytes;
    uint32_t magic, version;
    uint8_t uuid[16];
    uint32_t fence_free, zero;
};

/* A file in memory that begins like a shared page or ring. */
int hostile_shm_file(bool sealed, size_t bytes, uint32_t magic);
/* A bell of ours that somebody can ring; the end that hears it, if anybody wants to. */
int hostile_bell(int *hears);
/* A greeting that is accepted; what follows is up to the caller. */
int hostile_greet(uint32_t qpn, const struct hello *hello, int shm_page);

extern const struct hello hostile_hello;

/* Many connections that say nonsense. */
void hostile_noise(uint32_t qpn, uint64_t *seed);

/*
 * One end of a TCP connection with unsent data that lingers for an hour: closing its last reference
 * waits until the other end is gone.
 */
int hostile_lingering(int *other);

/* ---- honest peers, both in this process, that go on meanwhile --------------------------------------- */

extern struct sv_end hostile_a, hostile_b;

/* With none in the engine's hands. */
unsigned hostile_fds(void);
/* Two honest ends, connected and mapped. */
void hostile_pair_open(void);
/* A message goes from the one to the other. */
void hostile_still_serves(uint32_t seed);
/* It still does, and both are closed. */
void hostile_pair_close(void);

#endif
