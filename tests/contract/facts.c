/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * facts.c - what each device really does where both ways are right, or known to be wrong. The system's
 * tables were seen with Soft-RoCE (rxe) on Linux 6.1 with rdma-core 44, and on Linux 7.2 with rdma-core 65.
 */
#define _GNU_SOURCE /* strerrorname_np */
#include "contract/facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

struct facts facts;

/* Soft-RoCE of Linux 6.1. */
static const struct facts soft_roce = {
    .device = "the kernel's rxe",
    /* An emulated guest on a loaded machine is slow, and the kernel works in the background. */
    .wait_ms = 30000,
    .silence_ms = 200,
    .limit_s = 280,
    .stale_numbers = true,
    .resolve_elsewhere_call = ENETUNREACH, /* no route in the guest */
    .reject_of_dead_client = 28,           /* the kernel destroys its ids */
    .tells_parameters = true,
    .tells_refusals = true,
    .disconnects_one = true,
    .crashes_without_device = true,
    .listeners_disconnect = true,
    .crashes_without_param = true,
    .patience_ms = 150000,    /* 16 times 4.3 s, on a machine that is late */
    .hesitation_ends = false, /* the other is told to wait 69 s, again with each repetition */
    .repeats_rejected = true, /* cm_send_rej_locked() leaves the answer in the queue of MADs */
    .migration_loses_requests = true,
    .access_events = false,
    .request_events = false,
    .refusal_ends_target = true,
    .completes_before_err = true,
    .qp_right_status = IBV_WC_REM_INV_REQ_ERR,
    .qp_right_event = IBV_EVENT_QP_REQ_ERR,
    .wr_most = 1u << 20,
    .srq_wr_most = 1u << 20,
    .by_hand = true,
    .atomics = true,
    .windows = true,
    .partitions = true,
    .route_paths = 1,
    .accept_of_gone = EINVAL,
    .rejected = 28,
    .srq_query = true,
    .cqe_most = 32767,
    .members_most = 56,
    .sge_most = 32,
    .srq_sge_most = 27,
    .depth_most = 128,
    .inline_most = 512,
    .inline_is_pieces = true,
    .rounding = CT_POWER_LESS_1,
    .cq_rounding = CT_POWER_LESS_1,
    .depth_rounding = CT_POWER,
    .rounds_silently = true,
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
    .used_queue_drains = true,
    .window_bounds = false,
    .invalidate_shown = false,
    .dereg_under_window = EINVAL,
    .comm_est_event = false,
    .flush_is_solicited = true,
    .orders_queue_pairs = true,
    .bind_refused = IBV_WC_MW_BIND_ERR,
    .passive_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* Of Linux 7.2: what has changed since, most of it for what the specification asks for. */
static void make_later(struct facts *f) {
    f->access_events = true;
    f->rounds_silently = false; /* creating a QP tells the size that was made of it */
    f->queue_spare = 0;
    f->last_wqe_event = true;
    f->err_may_flush = true;
    f->wrong_send_key = f->wrong_send_range = IBV_WC_WR_FLUSH_ERR;
    f->flush_is_solicited = false;
    f->used_queue_drains = false;
    f->reset_counts_sends = true;
    f->bind_refused = IBV_WC_WR_FLUSH_ERR;
    f->passive_access |=
        0x300; /* IBV_ACCESS_FLUSH_GLOBAL and _PERSISTENT, which older headers lack */
}

/*
 * Soft-iWARP of Linux 7.2, for what is not InfiniBand's alone: addresses, channels, connections and their refusal, objects
 * and limits. What else the suite asks is not iWARP's.
 */
static void be_siw(struct facts *f) {
    f->device = "Soft-iWARP";
    f->wr_most = 32768;
    f->srq_wr_most = 327680;
    f->cqe_most = 3276800;
    f->members_most = 0;
    f->sge_most = f->srq_sge_most = 6;
    f->depth_most = 128;
    f->inline_most = 80;
    f->inline_free = 0;
    f->inline_is_pieces = false;
    f->inline_silently = true;
    f->by_hand = f->srq_query = false;
    f->atomics = f->windows = f->partitions = false;
    f->device_connects = true;
    f->route_paths = 0;
    f->accept_of_gone = ECONNRESET;
    f->rejected = -ECONNRESET;
    f->stale_numbers = false;
    f->listeners_disconnect = false;
    f->rounding = f->cq_rounding = CT_POWER;
    f->depth_rounding = CT_EXACT;
    f->rounds_silently = true;
}

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
    .tells_parameters = true,
    .tells_refusals = true,
    .disconnects_one = true,
    .reject_of_dead_client = 4,
    .reject_of_lost_request = 8, /* asks again, and nobody listens any more */
    .access_events = true,
    .request_events = true,
    .refusal_ends_target = true,
    .wr_most = 16384,
    .srq_wr_most = 16384,
    .by_hand = true,
    .atomics = true,
    .windows = true,
    .partitions = true,
    .route_paths = 1,
    .accept_of_gone = EINVAL,
    .rejected = 28,
    .srq_query = true,
    .cqe_most = 1u << 20,
    .members_most = 128,
    .sge_most = 16,
    .srq_sge_most = 16,
    .depth_most = 16,
    .inline_most = 448,
    .inline_free = 112,
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
    .used_queue_drains = true,
    .window_bounds = true,
    .invalidate_shown = true,
    .dereg_under_window = EBUSY,
    .comm_est_event = false,
    .flush_is_solicited = true,
    .orders_queue_pairs = true,
    .bind_refused = IBV_WC_MW_BIND_ERR,
    .passive_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
};

/* SLUICE_SOFT_NET=require: what MPA does not carry, and TCP cannot tell. */
static void go_over_tcp(struct facts *f) {
    f->tells_parameters = f->tells_refusals = f->disconnects_one = false;
    f->orders_queue_pairs = false; /* each has a connection of its own */
    /* A stream ends, and does not say why. */
    f->reject_of_dead_client = 28;
    f->reject_of_lost_request = 4;
}

/* SLUICE_SOFT_PROFILE=nic: as the specification says, and narrow. */
static void be_like_nic(struct facts *f) {
    f->device = "the software device, like a NIC";
    f->wr_most = f->srq_wr_most = 32768;
    f->sge_most = f->srq_sge_most = 30;
    f->inline_most = f->inline_free = 64;
    f->rounding = CT_POWER;
    f->cq_rounding = CT_POWER_LESS_1;
}

/*
 * SLUICE_SOFT_PROFILE=rxe and rxe7: what these say of Soft-RoCE is what was seen of it above. The rest is the
 * software device's own: its connection manager, how it waits for a peer, and where it is stricter.
 */
static void be_like_rxe(struct facts *f, bool later) {
    struct facts rxe = soft_roce;
    if (later)
        make_later(&rxe);
    f->device = later ? "the software device, like rxe of 7.x" : "the software device, like rxe";
    f->access_events = rxe.access_events;
    f->request_events = rxe.request_events;
    f->refusal_ends_target = rxe.refusal_ends_target;
    f->wr_most = rxe.wr_most;
    f->srq_wr_most = rxe.srq_wr_most;
    f->cqe_most = rxe.cqe_most;
    f->members_most = rxe.members_most;
    f->sge_most = rxe.sge_most;
    f->srq_sge_most = rxe.srq_sge_most;
    f->depth_most = rxe.depth_most;
    f->inline_most = rxe.inline_most;
    f->inline_free = rxe.inline_free;
    f->inline_is_pieces = rxe.inline_is_pieces;
    f->rounding = rxe.rounding;
    f->cq_rounding = rxe.cq_rounding;
    f->depth_rounding = rxe.depth_rounding;
    f->rounds_silently = rxe.rounds_silently;
    f->queue_spare = rxe.queue_spare;
    f->qp_right_status = rxe.qp_right_status;
    f->qp_right_event = rxe.qp_right_event;
    f->too_long_receive = rxe.too_long_receive;
    f->too_long_send = rxe.too_long_send;
    f->wrong_send_key = rxe.wrong_send_key;
    f->wrong_send_range = rxe.wrong_send_range;
    f->wrong_receive_buffer = rxe.wrong_receive_buffer;
    f->wrong_read_buffer = rxe.wrong_read_buffer;
    f->misaligned_post_fails = rxe.misaligned_post_fails;
    f->reset_to_err = rxe.reset_to_err;
    f->destroy_keeps_completions = rxe.destroy_keeps_completions;
    f->err_flushes_later_receives = rxe.err_flushes_later_receives;
    f->err_may_flush = rxe.err_may_flush;
    f->comm_est_event = rxe.comm_est_event;
    f->last_wqe_event = rxe.last_wqe_event;
    f->empty_srq = rxe.empty_srq;
    f->window_bounds = rxe.window_bounds;
    f->invalidate_shown = rxe.invalidate_shown;
    f->dereg_under_window = rxe.dereg_under_window;
    f->flush_is_solicited = rxe.flush_is_solicited;
    f->bind_refused = rxe.bind_refused;
}

void facts_choose(void) {
    const char *profile = getenv("SLUICE_SOFT_PROFILE");
    facts = soft;
    if (profile && strcmp(profile, "nic") == 0)
        be_like_nic(&facts);
    if (profile && strcmp(profile, "rxe") == 0)
        be_like_rxe(&facts, false);
    if (profile && strcmp(profile, "rxe7") == 0)
        be_like_rxe(&facts, true);
    if (profile && strcmp(profile, "iwarp") == 0)
        be_siw(&facts);
    const char *net = getenv("SLUICE_SOFT_NET");
    facts.reaches_elsewhere = (!net || strcmp(net, "off") != 0) && !facts.device_connects;
    if (facts.reaches_elsewhere)
        facts.resolve_elsewhere_event = 0; /* by way of a router, whoever is there */
    if (net && strcmp(net, "require") == 0)
        go_over_tcp(&facts);
}

#else

#define LATER                                                                                      \
    7 /* the first of the kernels that the second table is of; between the two nobody has looked */

void facts_choose(void) {
    struct utsname kernel;
    facts = soft_roce;
    if (uname(&kernel) == 0 && atoi(kernel.release) >= LATER)
        make_later(&facts);
    const char *driver = getenv("KERNEL_DRIVER"); /* of the guest: docs/kernel.md */
    if (driver && strcmp(driver, "siw") == 0)
        be_siw(&facts);
}

#endif

/* ---- telling them ------------------------------------------------------------------------------------ */

/* What is a device's; times and what a program needs to know of them are the machine's. */
/* clang-format off */
#define FACTS_LIST(N, D, B, S, R, E) \
    B(device_connects) B(reaches_elsewhere) N(route_paths) D(rejected) E(accept_of_gone) B(stale_numbers) \
    E(resolve_elsewhere_call) E(resolve_elsewhere_event) B(crashes_without_device) \
    B(listeners_disconnect) B(migration_loses_requests) N(wr_most) N(srq_wr_most) N(cqe_most) \
    N(sge_most) N(srq_sge_most) N(depth_most) N(inline_most) N(members_most) N(inline_free) \
    B(inline_is_pieces) B(inline_silently) B(by_hand) B(atomics) B(windows) B(partitions) \
    R(rounding) R(cq_rounding) R(depth_rounding) B(rounds_silently) B(srq_query) B(empty_srq)
/* Of what a device that connects by itself is not asked. */
#define FACTS_LIST_BY_HAND(N, D, B, S, R, E) \
    B(tells_parameters) B(tells_refusals) B(disconnects_one) N(reject_of_dead_client) \
    N(reject_of_lost_request) E(ece_error) B(crashes_without_param) B(completes_before_err) \
    B(hesitation_ends) B(repeats_rejected) N(queue_spare) B(access_events) B(request_events) B(refusal_ends_target) \
    S(qp_right_status) S(too_long_receive) S(too_long_send) S(wrong_send_key) S(wrong_send_range) \
    S(wrong_receive_buffer) S(wrong_read_buffer) B(misaligned_post_fails) B(checks_sender) \
    B(reset_to_err) B(err_flushes_later_receives) B(err_may_flush) B(rts_resumes) \
    B(bad_wr_of_state) B(comm_est_event) B(arming_tells_of_old) B(destroy_keeps_completions) \
    B(last_wqe_event) N(srq_spare) B(window_bounds) B(invalidate_shown) E(dereg_under_window) \
    B(timeout_0_waits) B(used_queue_drains) B(reset_counts_sends) B(flush_is_solicited) S(bind_refused) N(passive_access)
/* clang-format on */

static const char *status_name(enum ibv_wc_status status) {
    static const char *const names[] = {
        [IBV_WC_SUCCESS] = "SUCCESS",
        [IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
        [IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
        [IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
        [IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
        [IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
        [IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
        [IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
        [IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
    };
    const char *name =
        (unsigned)status < sizeof names / sizeof *names ? names[(unsigned)status] : NULL;
    return name ? name : "another";
}

static const char *rounding_name(enum ct_rounding rounding) {
    return rounding == CT_EXACT ? "exact" : rounding == CT_POWER ? "2^n" : "2^n-1";
}

static void tell_error(const char *name, int error) {
    int number = error < 0 ? -error : error;
    fprintf(stderr, " %s=%s%s", name, error < 0 ? "-" : "", number ? strerrorname_np(number) : "0");
}

void facts_tell(void) {
    fprintf(stderr, "facts:");
#define N(name) fprintf(stderr, " " #name "=%u", (unsigned)facts.name);
#define D(name) fprintf(stderr, " " #name "=%d", facts.name);
#define B(name) fprintf(stderr, " " #name "=%s", facts.name ? "yes" : "no");
#define S(name) fprintf(stderr, " " #name "=%s", status_name(facts.name));
#define R(name) fprintf(stderr, " " #name "=%s", rounding_name(facts.name));
#define E(name) tell_error(#name, facts.name);
    FACTS_LIST(N, D, B, S, R, E)
    if (!facts.device_connects) {
        FACTS_LIST_BY_HAND(N, D, B, S, R, E)
    }
#undef N
#undef D
#undef B
#undef S
#undef R
#undef E
    fprintf(stderr, "\n");
}
