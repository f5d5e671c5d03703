/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* profile.c - the kinds of device that the software device can be like, and which is asked for. */
#define _GNU_SOURCE /* secure_getenv */
#include "soft/object/profile.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/object/cq.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/object/upcalls.h"
#include "soft/soft.h"

#define SPECIFIED                                                                                  \
    .tells_target_access = true, .tells_target_request = true, .reset_to_err = true,               \
    .flushes_later = true, .flush_is_solicited = true, .checks_window_end = true,                  \
    .shows_invalidation = true, .posts_misaligned = true, .too_long_receive = IBV_WC_LOC_LEN_ERR,  \
    .too_long_nak = SOFT_NAK_INVALID_REQUEST, .wrong_receive = IBV_WC_LOC_PROT_ERR,                \
    .wrong_send_key = IBV_WC_LOC_PROT_ERR, .wrong_send_range = IBV_WC_LOC_PROT_ERR,                \
    .bind_refused = IBV_WC_MW_BIND_ERR, .no_right_nak = SOFT_NAK_REMOTE_ACCESS,                    \
    .dereg_bound = EBUSY

/* Common to all versions of the kernel's device that were looked at. */
#define SOFT_ROCE                                                                                  \
    .vendor_id = 0xffffff, .inline_most = 512, .inline_is_pieces = true, .depth_most = 128,        \
    .sge_most = 32, .sge_read_most = 32, .srq_sge_most = 27, .wr_most = 1u << 20,                  \
    .srq_wr_most = 1u << 20, .cqe_most = 32767, .members_most = 56, .rounding = SOFT_POWER_LESS_1, \
    .cq_rounding = SOFT_POWER_LESS_1, .depth_rounding = SOFT_POWER, .srq_query = true,             \
    .windows = true, .atomics = true, .keeps_completions = true,                                   \
    .too_long_receive = IBV_WC_LOC_QP_OP_ERR, .too_long_nak = SOFT_NAK_REMOTE_OPERATION,           \
    .wrong_receive = IBV_WC_LOC_QP_OP_ERR, .no_right_nak = SOFT_NAK_INVALID_REQUEST,               \
    .dereg_bound = EINVAL

#define PLAIN_SGE 16
#define PLAIN_WR 16384

/* Vendors, as src/fabric tells devices apart: rxe reports an id that is no vendor's, a NIC an organisation's. */
static const struct soft_profile plain = {
    SPECIFIED,
    .srq_query = true,
    .vendor_id = 0xffffff,
    .vendor_part_id = SOFT_PART_PLAIN,
    .inline_most = SOFT_MAX_INLINE,
    .last_wqe_event = true,
    .depth_most = SOFT_RD_ATOMIC,
    .sge_most = PLAIN_SGE,
    .srq_sge_most = PLAIN_SGE,
    .wr_most = PLAIN_WR,
    .srq_wr_most = PLAIN_WR,
    .cqe_most = SOFT_MAX_CQE,
    .members_most = SOFT_UD_MEMBERS,
    .windows = true,
    .atomics = true,
    .user_events = true,
};

static const struct soft_profile profiles[] = {
    {
        SPECIFIED,
        .srq_query = true,
        .name = "nic", /* an InfiniBand or RoCE adapter on a new kernel: all of the specification */
        .vendor_id = 0x02c9,
        .vendor_part_id = 2,
        .inline_most = 64, /* a small adapter's; more is refused, as it is there */
        .last_wqe_event = true,
        .depth_most = SOFT_RD_ATOMIC,
        .sge_most = 30,
        .srq_sge_most = 30,
        .wr_most = 32768,
        .srq_wr_most = 32768,
        .cqe_most = SOFT_MAX_CQE,
        .members_most = SOFT_UD_MEMBERS,
        .rounding = SOFT_POWER,
        .cq_rounding = SOFT_POWER_LESS_1,
        .windows = true,
        .atomics = true,
        .user_events = true,
    },
    {
        SOFT_ROCE,
        .name = "rxe", /* of Linux 6.1 */
        .vendor_part_id = 3,
        .rounds_silently = true,
        .flush_is_solicited = true,
        .wrong_send_key = IBV_WC_LOC_QP_OP_ERR,
        .wrong_send_range = IBV_WC_LOC_PROT_ERR,
        .bind_refused = IBV_WC_MW_BIND_ERR,
    },
    {
        SOFT_ROCE,
        .name = "rxe7", /* of Linux 7.2 */
        .vendor_part_id = 5,
        .last_wqe_event = true,
        .user_events = true,
        .tells_target_access = true,
        .wrong_send_key = IBV_WC_WR_FLUSH_ERR,
        .wrong_send_range = IBV_WC_WR_FLUSH_ERR,
        .bind_refused = IBV_WC_WR_FLUSH_ERR,
    },
    {
        SPECIFIED,
        .keeps_completions = true,
        .name = "iwarp", /* Soft-iWARP of Linux 7.2 */
        .vendor_id = 0x626d74,
        .vendor_part_id = 4,
        .inline_most = 80,
        .iwarp = true,
        .depth_most = 128,
        .sge_most = 6,
        .sge_read_most = 1,
        .srq_sge_most = 6,
        .wr_most = 32768,
        .srq_wr_most = 327680,
        .cqe_most = 3276800,
        .rounding = SOFT_POWER,
        .cq_rounding = SOFT_POWER,
        .rounds_silently = true,
        .inline_silently = true,
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
        text && *text ? soft_profile_find(text) : soft_object_upcalls.profile_of_plan();
    if (found)
        chosen = found;
    else if (text)
        snprintf(unknown, sizeof unknown, "%s", text);
}

const struct soft_profile *soft_profile(void) {
    pthread_once(&once, choose);
    return chosen;
}

const char *soft_profile_name(void) {
    return soft_profile()->name;
}

const char *soft_profile_unknown(void) {
    pthread_once(&once, choose);
    return unknown[0] ? unknown : NULL;
}

uint32_t soft_rounded(enum soft_rounding rounding, uint32_t wanted) {
    uint32_t less = rounding == SOFT_POWER_LESS_1, power = 1;
    if (rounding == SOFT_EXACT || wanted == 0)
        return wanted;
    while (power < wanted + less)
        power *= 2;
    return power - less;
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
