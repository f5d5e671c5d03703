/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * seeds.h - what the first inputs of the targets are made with: seeds.c has those of parsers and records,
 * scenario.c those of targets that are driven by acts.
 */
#ifndef TESTS_FUZZ_SEEDS_H
#define TESTS_FUZZ_SEEDS_H

#include <stddef.h>
#include <stdint.h>

/* One input, in two parts. */
void seed_write(const void *front, size_t front_bytes, const void *data, size_t bytes);

/*
 * Of the input that is written next: at this byte begins what is changed where that is wanted; here it is not
 * (SEED_SAY: of saying.c, SEED_TELL: of teller.c, SEED_ANY: of slot_fuzz.c).
 */
enum seed_change { SEED_SAME, SEED_SAY, SEED_TELL, SEED_ANY };
void seed_mark(size_t at, enum seed_change change);

void scenario_rendezvous(void);
void scenario_credit(void);
void scenario_request(void);
void scenario_greeting(void);
void scenario_control(void);
void scenario_slot(void);
void scenario_stats(void);

#endif
