/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resume.h - sessions of a pair that outlive their connection: how it is lost, and what both sides are told then.
 *
 * Failures end the test. Owner: the test's thread.
 */
#ifndef SUPPORT_RESUME_H
#define SUPPORT_RESUME_H

#include "support/pair.h"

#define SECOND 1000000000ull
#define RESUME_NS (60 * SECOND)

struct connection *resume_connection(struct side *side);
/* Both nodes, a listener, and a session that is up; rendezvous: of both nodes. */
void resume_open_with(struct pair *p, const sluice_link_options *link, uint32_t rendezvous);
void resume_open(struct pair *p, const sluice_link_options *link);
/* The connection ends as if the network had cut it; neither application has done anything. */
void resume_cut(struct side *side);
/* This side finds its queue pair broken; the other does not know. */
void resume_break_alone(struct side *side);
/* The walks' chance: which of so many; the seed says which walk it is. */
extern uint64_t resume_seed;
uint32_t resume_chance(uint32_t below);
/* One of the two ways, by chance; nothing where the session is not up. */
void resume_lose(struct side *side);
/* The dialer's session begins to move to another connection, on the loop it is on. False: it does already, or cannot. */
bool resume_move(struct side *side);
/* Not yet done with it. */
bool resume_moves(struct side *side);
/* DOWN, and UP again so many times so far: the next event of this side, and all of both. */
void resume_expect_down(struct pair *p, struct side *side);
void resume_expect_up(struct pair *p, struct side *side, uint64_t times);
void resume_down_and_up(struct pair *p, uint64_t times);
/* Only this side's loop goes on, and both CM threads; the next event, or none. */
bool resume_goes_on(struct pair *p, struct side *side, sluice_event *event);
/* The next event of that side alone; it is of this type. */
sluice_event resume_alone_next(struct pair *p, struct side *side);
sluice_event resume_alone(struct pair *p, struct side *side, sluice_event_type type);

#endif
