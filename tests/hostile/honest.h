/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * honest.h - the honest pair: round trips of mixed sizes, each byte of which is looked at, on a thread that turns both
 * loops.
 */
#ifndef HOSTILE_HONEST_H
#define HOSTILE_HONEST_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/sluice.h>

struct honest {
    sluice_node *node; /* whose end begins the round trips */
    sluice_loop *here, *there;
    sluice_session session; /* on `here` */
    /* An event of the loop `there`, on the thread. True: it was the honest session's. */
    bool (*on_event)(const sluice_event *event);
};

void honest_start(const struct honest *honest);
void honest_stop(void); /* its round trip is over, and nothing is under way */

uint64_t honest_rounds(void);
/*
 * The worst round trip since the last call: by the processor time of the thread, and by the clock without the time in
 * which the thread could run and the machine ran others.
 */
void honest_worst(uint64_t *own_ns, uint64_t *wall_ns);

#endif
