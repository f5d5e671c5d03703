/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_places.h - the addresses that a dial was given as text: "host:port", or several with commas.
 *
 * Any thread, before the CM thread has the dial.
 */
#ifndef CM_DIAL_PLACES_H
#define CM_DIAL_PLACES_H

#include "core/cm_conn.h"

/* 0, or EADDRESS and *e. Numbers and localhost have their addresses then; names are looked up later. */
int dial_places_read(struct cm_places *out, const char *text, sluice_error *e);
/* What the dial has to keep of them: NULL where there are no names and no second address. False: no memory. */
bool dial_places_copy(const struct cm_places *places, struct cm_places **out);
/* The dial is to those; the copy goes with its connection. */
void dial_places_give(struct cm_conn *conn, const struct cm_places *places, struct cm_places *copy);
/* Their addresses as candidates, in the order they were given; how many. Where there are more than room, each place has some. */
unsigned dial_places_candidates(const struct cm_places *places, union address out[CM_CANDIDATES]);

#endif
