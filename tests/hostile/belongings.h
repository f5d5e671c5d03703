/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * belongings.h - what this process has, which a peer must not make it keep: descriptors, threads, sessions, buffers,
 * memory. Left out is what pools grow by, and keep, within what their nodes may have.
 */
#ifndef HOSTILE_BELONGINGS_H
#define HOSTILE_BELONGINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sluice/sluice.h>

struct belongings {
    unsigned fds, threads;
    unsigned late; /* closers, and descriptors that they have: what peers left behind */
    unsigned sessions;
    uint64_t buffers, registered;
    size_t resident;
};

struct belongings belongings_count(sluice_node *const *nodes, unsigned count);
bool belongings_returned(const struct belongings *now, const struct belongings *before);
void belongings_tell(const struct belongings *now, const struct belongings *before);

#endif
