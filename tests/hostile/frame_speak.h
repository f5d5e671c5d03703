/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* frame_speak.h - a form of a frame, said to a victim in a session of its own. */
#ifndef HOSTILE_FRAME_SPEAK_H
#define HOSTILE_FRAME_SPEAK_H

#include "hostile/frame_form.h"
#include "hostile/link.h"

/* What is said behind a form that the session outlives: so that the victim hangs up. */
#define FRAME_SPEAK_LAST "still here"

/* Dials the victim, or waits to be dialed (STAGE_ANSWER); returns when the session is over. */
void frame_speak(const struct frame_form *form, unsigned port);
/* The steps alone, in a session of the caller's. */
void frame_speak_steps(struct link *l, const struct frame_form *form);

#endif
