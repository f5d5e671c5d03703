/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * facts.c - what each device really does where both ways are right, or known to be wrong. The system's
 * tables were seen with Soft-RoCE (rxe) on Linux 6.1 with rdma-core 44, and on Linux 7.2 with rdma-core 65.
 */
#include "contract/facts.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/utsname.h>

struct facts facts;

#ifdef CONTRACT_SOFT

static const struct facts soft = {
    .device = "the software device",
    /* Nothing takes longer than a timer of the device; loaded machines and sanitizers do. */
    .wait_ms = 20000,
    .silence_ms = 20,
    .limit_s = 110,
    .patience_ms = 20000, /* ct_start makes it 0.6 and 1.5 s */
    .hesitation_ends = true,
    .resolve_elsewhere_event = -EREMOTE, /* it has this host's addresses and no other */
    .ece_error = EOPNOTSUPP,             /* it has nothing to negotiate */
    .reject_of_dead_client = 4,
    .reject_of_lost_request = 8, /* asks again, and nobody listens any more */
    .access_events = true,
    .request_events = true,
    .refusal_ends_target = true,
    .qp_right_status = IBV_WC_REM_ACCESS_ERR,
    .qp_right_event = IBV_EVENT_QP_ACCESS_ERR,
    .too_long_receive = IBV_WC_LOC_LEN_ERR,
    .too_long_send = IBV_WC_REM_INV_REQ_ERR,
    .wrong_send_key = IBV_WC_LOC_PROT_ERR,
    .wrong_send_range = IBV_WC_LOC_PROT_ERR,
    .wrong_receive_buffer = IBV_WC_LOC_PROT_ERR,
    .wrong_read_buffer = IBV_WC_LOC_PROT_ERR,
    .no_qp_retries_ms = 0, /* a number that no process has is seen at once */
    .checks_sender = true,
    .timeout_0_waits = true,
    .reset_to_err = true,
    .bad_wr_of_state = true,
    .last_wqe_event = true,
    .err_flushes_later_receives = true,
    .rts_resumes = true,
    .window_bounds = true,
    .invalidate_shown = true,
    .dereg_under_window = EBUSY,
    .comm_est_event = false,
    .flush_is_solicited = true,
    .bind_refused = IBV_WC_MW_BIND_ERR,
    .passive_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

void facts_choose(void) {
    facts = soft;
}

#else

#define LATER                                                                                      \
    7 /* the first of the kernels that the second table is of; between the two nobody has looked */

static const struct facts rxe = {
    .device = "the kernel's rxe",
    /* An emulated guest on a loaded machine is slow, and the kernel works in the background. */
    .wait_ms = 30000,
    .silence_ms = 200,
    .limit_s = 280,
    .stale_numbers = true,
    .resolve_elsewhere_call = ENETUNREACH, /* no route in the guest */
    .reject_of_dead_client = 28,           /* the kernel destroys its ids */
    .crashes_without_device = true,
    .listeners_disconnect = true,
    .crashes_without_param = true,
    .patience_ms = 150000,    /* 16 times 4.3 s, on a machine that is late */
    .hesitation_ends = false, /* the other is told to wait 69 s, again with each repetition */
    .migration_loses_requests = true,
    .access_events = false,
    .request_events = false,
    .refusal_ends_target = true,
    .qp_right_status = IBV_WC_REM_INV_REQ_ERR,
    .qp_right_event = IBV_EVENT_QP_REQ_ERR,
    .queue_spare = 63, /* rounded up to a power of two */
    .too_long_receive = IBV_WC_LOC_QP_OP_ERR,
    .too_long_send = IBV_WC_REM_OP_ERR,
    .wrong_send_key = IBV_WC_LOC_QP_OP_ERR,
    .wrong_send_range = IBV_WC_LOC_PROT_ERR,
    .wrong_receive_buffer = IBV_WC_LOC_QP_OP_ERR,
    .wrong_read_buffer = IBV_WC_LOC_PROT_ERR,
    .misaligned_post_fails = true,
    .no_qp_retries_ms = 60,
    .checks_sender = false,
    .timeout_0_waits = false,
    .reset_to_err = false,
    .bad_wr_of_state = false,
    .destroy_keeps_completions = true,
    .err_flushes_later_receives = false, /* the library does not tell the kernel of a receive */
    .rts_resumes = false,
    .window_bounds = false,
    .invalidate_shown = false,
    .dereg_under_window = EINVAL,
    .comm_est_event = false,
    .flush_is_solicited = true,
    .bind_refused = IBV_WC_MW_BIND_ERR,
    .passive_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* What has changed since: most of it for what the specification asks for. */
static void make_later(struct facts *f) {
    f->access_events = true;
    f->queue_spare = 0; /* creating a QP tells the size that was made of it */
    f->last_wqe_event = true;
    f->err_may_flush = true;
    f->wrong_send_key = f->wrong_send_range = IBV_WC_WR_FLUSH_ERR;
    f->flush_is_solicited = false;
    f->sqd_ends_in_err = true;
    f->bind_refused = IBV_WC_WR_FLUSH_ERR;
    f->passive_access |=
        0x300; /* IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT, which older headers lack */
}

void facts_choose(void) {
    struct utsname kernel;
    facts = rxe;
    if (uname(&kernel) == 0 && atoi(kernel.release) >= LATER)
        make_later(&facts);
}

#endif
