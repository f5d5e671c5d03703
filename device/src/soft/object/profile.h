/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * profile.h - which other device the software device is like.
 *
 * SLUICE_SOFT_PROFILE names a kind of device. The software device then reports of itself what a device of
 * that kind reports, hides what that kind does not have, and leaves out what it does not do. So a
 * program can be tried on such a device without having one. It stays a software device, and its name says so.
 *
 * Without the variable, and without a plan of faults in the environment that has profile=, nothing changes.
 * A value that names no profile makes opening the device fail with EINVAL, and is reported on standard error.
 *
 * Read from the environment once, when first needed, and constant from then on. Any thread.
 */
#ifndef SOFT_OBJECT_PROFILE_H
#define SOFT_OBJECT_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#define SOFT_UD_MEMBERS 128 /* members of a group, on this host */

/* How many entries a queue has for which so many were asked. */
enum soft_rounding {
    SOFT_EXACT,
    SOFT_POWER,       /* the next power of two */
    SOFT_POWER_LESS_1 /* the next number that is one less than that */
};

struct soft_profile {
    const char *name; /* NULL: none */
    uint32_t vendor_id, vendor_part_id;
    uint32_t inline_most; /* bytes of inline data a queue pair may have */
    bool
        inline_is_pieces; /* they lie where the list of pieces does: as long as the longer of both */
    bool last_wqe_event;  /* IBV_EVENT_QP_LAST_WQE_REACHED of a QP with an SRQ that enters ERR */
    bool iwarp; /* RC alone, connected by MPA's rules (mpa.h), with TCP's idea of completion */
    uint8_t depth_most; /* READs, either way; SOFT_RD_ATOMIC of them are under way */
    uint32_t sge_most, sge_read_most, srq_sge_most;
    uint32_t wr_most, srq_wr_most, cqe_most; /* entries of queues */
    uint32_t members_most;                   /* of a multicast group */
    enum soft_rounding rounding, cq_rounding, depth_rounding;
    bool inline_silently; /* every queue pair has the most, and creation says what was asked for */
    bool rounds_silently; /* creation says what was asked for, and only a query what there is */
    bool windows, atomics;
    bool user_events; /* rdma_write_cm_event() is known; otherwise EINVAL, as of an old kernel */
    /*
     * Where devices differ from the specification. The values for a device of the kernel are
     * those of tests/contract/facts.c, and the contract suite holds both to that.
     */
    bool tells_target_access,
        tells_target_request; /* of what was refused: QP_ACCESS_ERR, _REQ_ERR */
    bool srq_query;           /* an SRQ can be asked for its size */
    bool reset_to_err;        /* is a transition */
    bool flushes_later; /* receives that are posted in ERR; else only the next move to ERR does */
    bool flush_is_solicited; /* as other errors are */
    bool keeps_completions;  /* of a QP that is destroyed */
    bool checks_window_end;  /* else its key opens the region from its beginning on */
    bool shows_invalidation; /* IBV_WC_WITH_INV at the receive of a SEND_WITH_INV */
    bool posts_misaligned;   /* atomics; else the post fails, and not the target */
    uint8_t too_long_receive, too_long_nak;   /* enum ibv_wc_status; enum soft_nak for the sender */
    uint8_t wrong_receive;                    /* status of one whose buffer cannot be written */
    uint8_t wrong_send_key, wrong_send_range; /* of a SEND or WRITE */
    uint8_t bind_refused;                     /* status of one to a region that does not allow it */
    uint8_t no_right_nak; /* for a requester that has no right from the target's QP */
    int dereg_bound;      /* errno of deregistering a region in which a window is bound */
};

/* The one in force. If the value names none: the plain one. */
const struct soft_profile *soft_profile(void);
/* The value that names no profile, or NULL. */
const char *soft_profile_unknown(void);
/* By its word; NULL: there is none. */
const struct soft_profile *soft_profile_find(const char *name);
uint32_t soft_rounded(enum soft_rounding rounding, uint32_t wanted); /* 0 stays 0 */
/* "nic, rxe, rxe7, iwarp" */
const char *soft_profile_names(void);

#endif
