/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory_budget.h - the node's budget: the memory that its sessions need at least, connections times depth times size,
 * and whether the caps, the system's limits and the device allow it.
 *
 * Every session has receives of its own from the first moment (CREDITS_INITIAL frames), and gets more only
 * as far as there is memory. So each of three limits must be enough for that least amount, or the node does not open:
 * the cap on receive memory, the limit on locked memory, and the cgroup's limit. The device must have as many queue pairs,
 * and completion queues of such a size: a loop has one, and any loop may get all of the sessions.
 *
 * Pure: a function of its input. Any thread.
 */
#ifndef NODE_MEMORY_BUDGET_H
#define NODE_MEMORY_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/limits.h"

struct memory_budget_input {
    uint32_t sessions;    /* sessions_max */
    bool chosen;          /* by the caller: too many are an error, else fewer are taken */
    uint32_t depth, full; /* frames a session has at least, and by default at most */
    uint64_t frame;       /* bytes one takes in the pool */
    uint64_t receive_bytes_max, memory_bytes_max;
    uint64_t frames_max; /* that the pool for receiving has room for, 0: no matter */
    bool locks;          /* the device locks what is registered */
    const struct limits *limits;
    uint8_t huge_log2; /* huge pages wished for, 0: none; and on which NUMA node, -1: any */
    int16_t numa;
    /* What the device has, 0: it does not say. Of a completion queue each session is promised session_entries. */
    uint32_t queue_entries, session_entries, queue_pairs;
    uint32_t files;      /* descriptors the node opens for itself */
    uint32_t files_peer; /* and for each process it has sessions with, 0: none */
};

struct memory_budget {
    uint32_t sessions;           /* as many as there is room for */
    uint64_t session_bytes;      /* one of them, at least */
    uint64_t receive_bytes;      /* all of them, at least */
    uint64_t receive_bytes_full; /* all of them with all the credits they have by default */
    char warning[200];           /* "": nothing to say; serious: it will go wrong */
    bool serious;
    char files
        [200]; /* the same of descriptors; "": there are enough for as many peers as sessions */
};

/* 0; -EINVAL: the options contradict each other; -ENOMEM, -EMFILE: a limit of the system is in the way. text: the
 * limit, the need and the remedy, less than 160 bytes. */
int memory_budget_make(struct memory_budget *need, const struct memory_budget_input *in, char *text,
                       size_t size);

/* Huge pages of 1 << log2 that are free on a NUMA node, -1: on all of them. */
uint64_t memory_budget_huge_free(const struct limits *limits, unsigned log2, int numa);

#endif
