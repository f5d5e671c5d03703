/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fast.h - what a device can do beyond verbs and rdma_cm. A fabric has all of it or none: the software device has, a NIC has
 * not. Each call here says what it does where there is none, so that its callers ask for no device.
 */
#ifndef FABRIC_FAST_H
#define FABRIC_FAST_H

#include <errno.h>

#include "fabric/fabric.h"

#define FABRIC_WORDS 14u /* that post_words takes, at most */
#define FABRIC_SLEEP_FDS 2u

struct fabric_fast {
    const char *(*get_profile)(void);
    void (*srq_newest_first)(struct ibv_srq *srq);
    unsigned still_access;
    bool (*share)(struct ibv_qp *qp, const struct ibv_mr *mr, const void *addr, uint64_t bytes,
                  uint32_t *region, uint64_t *at);
    int (*fetch)(struct ibv_qp *qp, uint32_t region, uint64_t at, const struct ibv_sge *to);
    int (*post_words)(struct ibv_qp *qp, const uint64_t *words, unsigned count, bool signalled,
                      uint64_t wr_id);
    bool (*sleep_begin)(struct ibv_cq *cq, bool elsewhere, int fd[FABRIC_SLEEP_FDS]);
    bool (*sleep_end)(struct ibv_cq *cq);
    bool (*sleep_unfinished)(struct ibv_cq *cq);
    uint64_t (*peer_number)(struct ibv_qp *qp);
    unsigned (*transport)(struct ibv_qp *qp);
    const char *(*other_hosts)(unsigned soft_net);
    int (*set_net)(struct rdma_event_channel *channel, unsigned soft_net);
    int (*reach)(struct rdma_cm_id *id, int ms);
    unsigned (*peer_lacks)(struct ibv_qp *qp);
};

/* ---- the device ------------------------------------------------------------------------------------ */

/* It is no NIC, and its figures are not those of one. */
static inline bool fabric_is_software(const struct fabric_ops *fabric) {
    return fabric->fast != NULL;
}

/* Which other device it is told to be like; NULL: none. */
static inline const char *fabric_profile(const struct fabric_ops *fabric) {
    return fabric->fast ? fabric->fast->get_profile() : NULL;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

/*
 * From now on this SRQ gives the receive that was posted last, whose memory is in the cache, and not the one
 * that waits longest. Else the device's order stays.
 */
static inline void fabric_srq_newest_first(const struct fabric_ops *fabric, struct ibv_srq *srq) {
    if (fabric->fast)
        fabric->fast->srq_newest_first(srq);
}

/*
 * An access flag of MRs and windows: the owner leaves the memory as it is while it is sent, or while the window is bound,
 * so that it need not be copied. 0: the device has no such flag.
 */
static inline unsigned fabric_still_access(const struct fabric_ops *fabric) {
    return fabric->fast ? fabric->fast->still_access : 0;
}

/*
 * Where traits.shares: memory that the receiver of a message copies by itself, with no key and no work request. share():
 * how the QP's peer finds these bytes of the MR; false: it cannot reach them so. They stay as they are until the peer
 * says in a message that it has them, or the QP is destroyed. fetch(): copies sge->length of them. 0; EAGAIN: not yet;
 * ECONNRESET: the QP's peer is down; EINVAL: it shares no such bytes; EFAULT: `to` is no memory that may be written.
 */
static inline bool fabric_share(const struct fabric_ops *fabric, struct ibv_qp *qp,
                                const struct ibv_mr *mr, const void *addr, uint64_t bytes,
                                uint32_t *region, uint64_t *at) {
    return fabric->fast && fabric->fast->share(qp, mr, addr, bytes, region, at);
}

static inline int fabric_fetch(const struct fabric_ops *fabric, struct ibv_qp *qp, uint32_t region,
                               uint64_t at, const struct ibv_sge *to) {
    return fabric->fast ? fabric->fast->fetch(qp, region, at, to) : EINVAL;
}

/*
 * There too: an inline SEND of so many words, up to FABRIC_WORDS, as they lie in memory. Not 0: the device posted nothing,
 * and ibv_post_send() will, or will say why not.
 */
static inline int fabric_post_words(const struct fabric_ops *fabric, struct ibv_qp *qp,
                                    const uint64_t *words, unsigned count, bool signalled,
                                    uint64_t wr_id) {
    return fabric->fast ? fabric->fast->post_words(qp, words, count, signalled, wr_id) : EOPNOTSUPP;
}

/* ---- sleeping -------------------------------------------------------------------------------------- */

/* What completes is told of by an interrupt, and a thread that looks before it sleeps is woken no sooner. */
static inline bool fabric_interrupts(const struct fabric_ops *fabric) {
    return !fabric->fast;
}

/*
 * The thread that polls the CQ is about to arm it, for the first time or again, to poll once more and to sleep. Descriptors
 * that it has to sleep on besides, edge-triggered, each never another one; -1 where there is none this time, false where
 * that is so of all, or where the device interrupts. elsewhere: when one of them wakes it the thread may not poll for long.
 */
static inline bool fabric_sleep_begin(const struct fabric_ops *fabric, struct ibv_cq *cq,
                                      bool elsewhere, int fd[FABRIC_SLEEP_FDS]) {
    return fabric->fast && fabric->fast->sleep_begin(cq, elsewhere, fd);
}

/* After true, when it is awake; or fabric_sleep_begin() again. True: the CQ is not armed any more. */
static inline bool fabric_sleep_end(const struct fabric_ops *fabric, struct ibv_cq *cq) {
    return fabric->fast && fabric->fast->sleep_end(cq);
}

/*
 * True, once: the last poll left something to do that may complete nothing, and of which no edge will tell: the thread
 * polls again before it sleeps.
 */
static inline bool fabric_sleep_unfinished(const struct fabric_ops *fabric, struct ibv_cq *cq) {
    return fabric->fast && fabric->fast->sleep_unfinished(cq);
}

/* ---- peers ----------------------------------------------------------------------------------------- */

/* The process behind the QP's peer: QPs with the same number count as one peer. 0: only the peer's address says so. */
static inline uint64_t fabric_peer_number(const struct fabric_ops *fabric, struct ibv_qp *qp) {
    return fabric->fast ? fabric->fast->peer_number(qp) : 0;
}

/* The transport of a connected queue pair, an enum sluice_transport; `own` is that of a device's own network. */
static inline unsigned fabric_transport(const struct fabric_ops *fabric, struct ibv_qp *qp,
                                        unsigned own) {
    return fabric->fast ? fabric->fast->transport(qp) : own;
}

/* Whether peers may lack what this device has: where they are other devices than this one. */
static inline bool fabric_peers_differ(const struct fabric_ops *fabric) {
    return fabric->fast != NULL;
}

/* Features of this device that the QP's peer lacks (enum fabric_lack); asked when the queue pair has a peer. */
static inline unsigned fabric_peer_lacks(const struct fabric_ops *fabric, struct ibv_qp *qp) {
    return fabric->fast ? fabric->fast->peer_lacks(qp) : 0;
}

/* ---- other hosts ----------------------------------------------------------------------------------- */

/* How they are reached, in a line, by an enum sluice_soft_net. */
static inline const char *fabric_other_hosts(const struct fabric_ops *fabric, unsigned soft_net) {
    return fabric->fast ? fabric->fast->other_hosts(soft_net) : "by the device's network";
}

/* Ids made on that channel from now on go that way; fails only for a value that is none. A NIC has one way. */
static inline int fabric_set_net(const struct fabric_ops *fabric,
                                 struct rdma_event_channel *channel, unsigned soft_net) {
    return fabric->fast ? fabric->fast->set_net(channel, soft_net) : 0;
}

/*
 * As resolve_route. 1: ROUTE_RESOLVED will come when the peer's host has answered, or ROUTE_ERROR with the errno of
 * a connect() that it did not, or that no program listens there. No listener hears of an id that goes no further. 0: it
 * is resolve_route, as the device knows no such answer on that way.
 */
static inline int fabric_reach(const struct fabric_ops *fabric, struct rdma_cm_id *id, int ms) {
    return fabric->fast ? fabric->fast->reach(id, ms) : fabric->resolve_route(id, ms);
}

#endif
