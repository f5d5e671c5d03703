/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * settings.h - what variables of the environment say that have a word or a number, and which of them say something that
 * they cannot (docs/settings.md). What a variable does not know is refused when a node or the software device is
 * opened, with a sentence; where it is read it says nothing, and so is never taken for its opposite.
 *
 * A program with more rights than its user has none of them. An empty one says nothing. Any thread, as getenv(3).
 */
#ifndef COMMON_SETTINGS_H
#define COMMON_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum setting {
    SETTING_HUGE_PAGES,
    SETTING_POOL_DEBUG,
    SETTING_SOFT_NET,
    SETTING_SOFT_CRC,
    SETTING_SOFT_ORDER,
    SETTING_SOFT_CM_TIMEOUT_MS,
    SETTING_SOFT_CM_TRIES,
    SETTING_SOFT_CM_WAIT_MS,
    SETTING_SOFT_CM_REFUSE_MS,
    SETTING_SOFT_CM_END_MS,
    SETTING_SOFT_MPA_MS,
    SETTING_SOFT_TIMEWAIT_MS,
    SETTINGS
};

/* The words of the variables, in the order of the table. */
enum { SETTING_OFF, SETTING_ON };
enum { SETTING_NET_OFF, SETTING_NET_ON, SETTING_NET_REQUIRE };
enum { SETTING_ORDER_OFF, SETTING_ORDER_ALL };
enum { SETTING_HUGE_NO, SETTING_HUGE_2M, SETTING_HUGE_1G };

/* The number, or which of its words: a word in any case, for on and off also 1, yes and true, 0, no and false. */
unsigned setting_value(enum setting which, unsigned fallback);

#define SETTINGS_SENTENCE 160
/* The first that says what it does not know: the sentence about it is written. */
bool settings_wrong(char *sentence, size_t bytes);
/* For calls that have no place for a sentence: it is told once in a process on standard error, and errno is EINVAL. */
bool settings_refused(void);

#endif
