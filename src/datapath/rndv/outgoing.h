/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * outgoing.h - large messages of this side: the answers RTR and ATS.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RNDV_OUTGOING_H
#define DATAPATH_RNDV_OUTGOING_H

#include "datapath/loop/loop.h"
#include "datapath/tx/post.h"

struct frame;

/* RTR or ATS, with its payload (hostile, to be read once). NULL, or what is wrong. */
const char *rndv_answer_arrived(struct sluice_loop *l, struct session *s, const struct frame *f,
                                const uint8_t *payload);

#endif
