/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * facts.h - where the devices legitimately differ: one member for each difference, one table for
 * each device (facts.c). A new device that this suite is run on gets a table, not looser tests.
 */
#ifndef CONTRACT_FACTS_H
#define CONTRACT_FACTS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

enum ct_rounding {
    CT_EXACT,
    CT_POWER,       /* up to a power of two */
    CT_POWER_LESS_1 /* up to one less than that */
};

struct facts {
    const char *device;
    /* Time: how long to wait for what must come, and for what must not. */
    int wait_ms, silence_ms;
    unsigned limit_s; /* of a whole program: then a call has hung */
    /* Does a request with the QP number of a live connection count as stale (reject reason 10)? */
    bool stale_numbers;
    /* Resolving a host that the device cannot reach: errno of the call, or 0 and the event's status. */
    int resolve_elsewhere_call, resolve_elsewhere_event;
    /* It reaches other hosts over TCP, and some resolve that nobody is at. */
    bool reaches_elsewhere;
    /* Does an end hear of the other's QP number, flow control, retry counts and SRQ? MPA has no place for them. */
    bool tells_parameters;
    /* Does a listener hear why a dialer refuses its reply, and does rdma_reject_ece have a reason of its own? */
    bool tells_refusals;
    /* Does a disconnect leave the peer's queue pair as it is? The end of a stream ends both. */
    bool disconnects_one;
    /* connect, accept, resolve_route and create_qp crash on an id that has no device yet. */
    bool crashes_without_device;
    /* A client whose process dies with the reply in hand: 4 (gone) or 28 (as if it had refused). */
    int reject_of_dead_client;
    /* A server whose process dies before it let the client know that it has the request: this, or 28. */
    int reject_of_lost_request;
    /* Destroying an id that rejected what it had accepted waits until the answer is not repeated any more. */
    bool repeats_rejected;
    /* What rdma_set_local_ece says on an id without a QP. */
    int ece_error;
    /* rdma_disconnect of a listener returns 0 instead of EINVAL. */
    bool listeners_disconnect;
    /* rdma_accept without parameters on an id without a QP crashes instead of EINVAL. */
    bool crashes_without_param;
    /* The time until CM timers give up, far above the sum of all repetitions. */
    int patience_ms;
    /* Does a request or reply that an application leaves unanswered end within that time? */
    bool hesitation_ends;
    /* An unfetched request is lost when its listener migrates: its id stays on the old channel. */
    bool migration_loses_requests;
    /*
     * iWARP: the device itself connects, so an id has a QP by then, which it drives. Both sides are told ESTABLISHED, and
     * there is neither CONNECT_RESPONSE nor rdma_establish() nor TIMEWAIT_EXIT, nor the number of the peer's QP.
     */
    bool device_connects;
    int rejected;       /* the status of a refusal: InfiniBand's reason, or an errno */
    int route_paths;    /* of a resolved route */
    int accept_of_gone; /* errno of accepting a dialer who gave up */
    /* ---- verbs */
    /* The most that there is of each. */
    unsigned wr_most, srq_wr_most, cqe_most, sge_most, srq_sge_most, depth_most, inline_most;
    unsigned members_most; /* of a multicast group */
    /* What a QP has of inline data unasked; or as much as its pieces take, which then are as many as fit there. */
    unsigned inline_free;
    bool inline_is_pieces;
    bool inline_silently; /* each has the most, which only a query tells */
    bool by_hand;         /* ibv_modify_qp() connects queue pairs */
    bool atomics, windows, partitions;
    /* Sizes of queues of requests, of completions, and of READs under way, for what was asked for. */
    enum ct_rounding rounding, cq_rounding, depth_rounding;
    bool rounds_silently; /* creation says what was asked for, a query what there is */
    /* How many requests a queue of 64 takes beyond the size that its QP was said to have. */
    unsigned queue_spare;
    /* A refused one-sided request: does the target hear of it (where access was refused, or the request
     * itself), and does its QP end? */
    bool access_events, request_events, refusal_ends_target;
    /* May a completion with an error be polled before its QP shows ERR? */
    bool completes_before_err;
    /* The target's QP (not its region) lacks the right: the requester's status, the target's event. */
    enum ibv_wc_status qp_right_status;
    enum ibv_event_type qp_right_event;
    /* The receive that was too short for its message, and that message. */
    enum ibv_wc_status too_long_receive, too_long_send;
    /* A local buffer with a key that is not valid here, or one that does not cover it. */
    enum ibv_wc_status wrong_send_key, wrong_send_range;
    /* Either of both in a receive; a wrong key for the target of a READ. */
    enum ibv_wc_status wrong_receive_buffer, wrong_read_buffer;
    /* Is a misaligned atomic refused by the post? Otherwise the target refuses it. */
    bool misaligned_post_fails;
    /* The least time until nobody's silence counts as RETRY_EXC_ERR, for two timeouts of 33.6 ms. */
    unsigned no_qp_retries_ms;
    /* Does a QP take messages of its own peer only, not of other QPs at the same address? */
    bool checks_sender;
    /* Is RESET to ERR a transition? The InfiniBand specification says so, Linux says EINVAL. */
    bool reset_to_err;
    /* Is a receive that is posted in ERR flushed by itself? */
    bool err_flushes_later_receives;
    /* If not: it may be, when what else is posted makes the device look; else setting ERR again does. */
    bool err_may_flush;
    /* Do sends that were posted in SQD go out when the QP returns to RTS? */
    bool rts_resumes;
    /* Does a post that the state forbids say which request it was? */
    bool bad_wr_of_state;
    /* Is the first message of a QP in RTR announced by IBV_EVENT_COMM_EST? */
    bool comm_est_event;
    /* Does arming tell of a completion that lies there already? */
    bool arming_tells_of_old;
    /* Are completions of a destroyed QP still polled? */
    bool destroy_keeps_completions;
    /* IBV_EVENT_QP_LAST_WQE_REACHED of a QP with an SRQ that enters ERR. */
    bool last_wqe_event;
    /* Can an SRQ be asked for its size? */
    bool srq_query;
    /* How many receives an SRQ takes beyond the size that a query tells. */
    unsigned srq_spare;
    /* May an SRQ be made for no receives at all? */
    bool empty_srq;
    /* Is a window's end checked? Otherwise its key opens the whole region. */
    bool window_bounds;
    /* Does the receive of a SEND_WITH_INV show IBV_WC_WITH_INV and the key? */
    bool invalidate_shown;
    /* Deregistering a region in which a window is bound. */
    int dereg_under_window;
    /* Does timeout 0 wait for a peer that is not there yet? */
    bool timeout_0_waits;
    /* Does a QP in SQD drain whose queue of sends was used all around? Else only ERR ends it, all else is EINVAL. */
    bool used_queue_drains;
    /* Do sends that were under way when the QP went to RESET count as under way in its next life? Then SQD may not drain. */
    bool reset_counts_sends;
    /* Does a flush count as solicited, so that a CQ armed for those alone tells of it? */
    bool flush_is_solicited;
    /* Is what the peer's device took by one queue pair complete before what its program sends then by another? */
    bool orders_queue_pairs;
    /* What a window gets that is bound to a region which does not allow it. */
    enum ibv_wc_status bind_refused;
    /* The access flags that rdma_init_qp_attr gives a listener's QP for INIT. */
    unsigned passive_access;
};

/* Constant from facts_choose() on, which a program calls first. */
extern struct facts facts;
void facts_choose(void);
/* One line of them: "facts: NAME=VALUE ...", which tools/contract-table reads. */
void facts_tell(void);

#endif
