/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * profile.h - which other device the software device is like.
 *
 * SLUICE_SOFT_PROFILE names a kind of device. The software device then says of itself what a device of
 * that kind says, keeps back what that kind does not have, and leaves out what it does not do. So what a
 * program does on such a device can be tried without one. It stays a software device, and its name says so.
 *
 * Without the variable, and without a plan of faults in the environment that says profile=, nothing changes.
 * A word that names no profile makes opening the device fail with EINVAL, and is told on standard error.
 *
 * Read from the environment once, when first needed, and constant from then on. Any thread.
 */
#ifndef SOFT_VERBS_PROFILE_H
#define SOFT_VERBS_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#define SOFT_PART_PLAIN                                                                            \
    1u /* vendor_part_id of the device without a profile; profiles have others */

struct soft_profile {
    const char *name; /* NULL: none */
    uint32_t vendor_id, vendor_part_id;
    uint32_t inline_most; /* bytes of inline data a queue pair may have */
    bool last_wqe_event;  /* IBV_EVENT_QP_LAST_WQE_REACHED of a QP with an SRQ that enters ERR */
    bool iwarp; /* RC alone, connected by MPA's rules (mpa.h), with TCP's idea of completion */
    uint8_t depth_most; /* READs, either way */
    uint32_t sge_most, sge_read_most;
    bool windows, atomics;
    bool user_events; /* rdma_write_cm_event() is known; otherwise EINVAL, as of an old kernel */
};

/* The one in force. Of a word that names none: the plain one. */
const struct soft_profile *soft_profile(void);
/* The word that names no profile, or NULL. */
const char *soft_profile_unknown(void);
/* By its word; NULL: there is none. */
const struct soft_profile *soft_profile_find(const char *name);
/* "nic, rxe, iwarp" */
const char *soft_profile_names(void);

#endif
