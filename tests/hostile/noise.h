/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * noise.h - sessions that go wrong at random, in either role.
 *
 * Modes: records   private data that was tampered with, in requests or in answers
 *        frames    a proper session, then frames whose headers make no sense
 *        flood     a proper session, then more frames than it has credits for
 *        mute      a proper session that takes nothing and gives nothing
 *        half      never completes the handshake
 *        vanish    destroys everything as soon as the session is made
 *        scribble  a proper session, then noise over the shared ring (software device only)
 */
#ifndef HOSTILE_NOISE_H
#define HOSTILE_NOISE_H

#include "hostile/link.h"

/* One connection each. */
void noise_dial(const char *mode, unsigned port);
void noise_serve(const char *mode);

void noise_flood(struct link *l);
void noise_scribble(struct link *l);

#endif
