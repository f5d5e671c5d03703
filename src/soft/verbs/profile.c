/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* profile.c - the kinds of device that the software device can be like, and which is asked for. */
#define _GNU_SOURCE /* secure_getenv */
#include "soft/verbs/profile.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/fault/inject.h"
#include "soft/verbs/object.h"

/* Vendors, as src/fabric tells devices apart: rxe gives nobody's number, a NIC an organisation's. */
static const struct soft_profile plain = {
    .vendor_id = 0xffffff,
    .vendor_part_id = SOFT_PART_PLAIN,
    .inline_most = SOFT_MAX_INLINE,
    .last_wqe_event = true,
    .depth_most = SOFT_RD_ATOMIC,
    .sge_most = SOFT_MAX_SGE,
    .windows = true,
    .atomics = true,
    .user_events = true,
};

static const struct soft_profile profiles[] = {
    {
        .name = "nic", /* an InfiniBand or RoCE adapter on a new kernel: all of the specification */
        .vendor_id = 0x02c9,
        .vendor_part_id = 2,
        .inline_most = 64, /* a small adapter's; more is refused, as it is there */
        .last_wqe_event = true,
        .depth_most = SOFT_RD_ATOMIC,
        .sge_most = SOFT_MAX_SGE,
        .windows = true,
        .atomics = true,
        .user_events = true,
    },
    {
        .name = "rxe", /* Soft-RoCE of Linux 6.1 */
        .vendor_id = 0xffffff,
        .vendor_part_id = 3,
        .inline_most = SOFT_MAX_INLINE,
        .last_wqe_event = false,
        .depth_most = SOFT_RD_ATOMIC,
        .sge_most = SOFT_MAX_SGE,
        .windows = true,
        .atomics = true,
        .user_events = false,
    },
    {
        .name = "iwarp", /* Soft-iWARP of Linux 7.2 */
        .vendor_id = 0x626d74,
        .vendor_part_id = 4,
        .inline_most = 80,
        .iwarp = true,
        .depth_most = 128,
        .sge_most = 6,
        .sge_read_most = 1,
        .user_events = true,
    },
};

#define PROFILES (sizeof profiles / sizeof profiles[0])

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct soft_profile *chosen = &plain;
static char unknown[64];

const struct soft_profile *soft_profile_find(const char *name) {
    for (size_t i = 0; i < PROFILES; i++)
        if (strcmp(name, profiles[i].name) == 0)
            return &profiles[i];
    return NULL;
}

static void choose(void) {
    const char *text = secure_getenv("SLUICE_SOFT_PROFILE");
    const struct soft_profile *found =
        text && *text ? soft_profile_find(text) : soft_fault_profile();
    if (found)
        chosen = found;
    else if (text)
        snprintf(unknown, sizeof unknown, "%s", text);
}

const struct soft_profile *soft_profile(void) {
    pthread_once(&once, choose);
    return chosen;
}

const char *soft_profile_unknown(void) {
    pthread_once(&once, choose);
    return unknown[0] ? unknown : NULL;
}

static pthread_once_t listed = PTHREAD_ONCE_INIT;
static char names[64];

static void list(void) {
    for (size_t i = 0, at = 0; i < PROFILES && at < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "",
                               profiles[i].name);
}

const char *soft_profile_names(void) {
    pthread_once(&listed, list);
    return names;
}
