/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma.c - RDMA WRITE, RDMA READ and atomics.
 *
 * Mapped path: the requester's CPU is the DMA engine. When the target is of our uid, the key's entry
 * in the target's key table says which of its regions the memory lies in, and that region is
 * mapped here, the access is checked against the entry (rkey_reach.h) and then done with loads and stores; the
 * target takes no part. Bytes are stored in increasing address order as far as a poller of the last
 * byte can tell. While it touches foreign memory the requester says so in the ring's header, and
 * a target that takes a key back waits for that, so a revoked key is useless at once. Long accesses, and those of
 * memory that is not mapped but of a process of our uid, are done piece by piece (rdma_piece.c).
 *
 * Ring path, for peers of another uid and for memory that is not mapped: the request travels in the
 * ring, and the thread that makes progress for the target checks and executes it; READs and atomics are
 * answered through the opposite ring.
 *
 * Order: a mapped access never overtakes a request of the ring path or a message that waits for a
 * receive. It may be seen before an earlier SEND is *polled*, never before it can be polled.
 *
 * Owner: the QP's lock.
 */
#include "soft/rc/rdma.h"

#include <stdatomic.h>
#include <string.h>

#include "soft/ipc/peer_internal.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/rdma_piece.h"
#include "soft/rc/rdma_target.h"
#include "soft/rc/region_pages.h"
#include "soft/rc/requester.h"
#include "soft/rc/rkey_cache.h"
#include "soft/rc/rkey_reach.h"
#include "soft/rc/slot.h"
#include "soft/rc/store_ordered.h"

/* ---- mapped path -------------------------------------------------------------------------------- */

/*
 * A key for the second time in a row: remembers where it leads. rkey_reach() checked its result, but the table may
 * have changed since, so all of it is checked again; `to` is where `at` lies.
 */
static __attribute__((noinline)) void rkey_cache_take(struct soft_qp *qp, uint64_t at,
                                                      uint32_t rkey, uint8_t *to) {
    struct soft_peer *peer = qp->link_peer;
    const struct soft_key *keys = atomic_load_explicit(&peer->keys, memory_order_acquire);
    struct soft_rkey_cache *cache = &qp->rkey_cache;
    struct soft_key key;
    uint32_t last = cache->rkey;
    cache->entry = NULL;
    cache->rkey = rkey;
    if (last != rkey || !rkey_reach_read(keys, rkey, &key) || (key.access & SOFT_KEY_WINDOW) ||
        key.pd != qp->remote_pd || !(key.access & IBV_ACCESS_REMOTE_WRITE) || key.region < 0 ||
        key.region >= SOFT_MAX_REGIONS || at < key.start || at - key.start > key.length)
        return;
    const struct soft_peer_region *region = &peer->regions[key.region];
    const uint8_t *mapped = atomic_load_explicit(&region->addr, memory_order_acquire);
    if (!mapped || ld(region->serial) != key.serial || !ld(region->writable) ||
        key.offset > region->bytes || key.length > region->bytes - key.offset ||
        mapped + key.offset + (at - key.start) != to)
        return;
    const struct soft_key *entry = &keys[rkey >> 16];
    cache->start = key.start;
    cache->length = key.length;
    cache->base = to - (at - key.start);
    cache->region = region;
    cache->mapped = mapped;
    cache->serial = key.serial;
    cache->version = key.version;
    cache->entry = entry;
}

static bool write_mapped(struct soft_qp *qp, const struct soft_wqe *wqe, const struct ibv_sge *sge,
                         const uint8_t *inlined, uint8_t *to) {
    if (inlined) {
        store_ordered(to, inlined, wqe->total, true);
        return true;
    }
    uint32_t left = wqe->total;
    for (unsigned i = 0; i < wqe->num_sge && left; i++) {
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        const uint8_t *from = mr ? soft_mr_range(mr, sge[i].addr, sge[i].length, 0) : NULL;
        if (!from)
            return false;
        left -= sge[i].length;
        store_ordered(to, from, sge[i].length, left == 0);
        to += sge[i].length;
    }
    return true;
}

static bool read_mapped(struct soft_qp *qp, const struct soft_wqe *wqe, const struct ibv_sge *sge,
                        const uint8_t *from) {
    for (unsigned i = 0; i < wqe->num_sge; i++) {
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        uint8_t *to =
            mr ? soft_mr_range(mr, sge[i].addr, sge[i].length, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (!to)
            return false;
        memcpy(to, from, sge[i].length);
        from += sge[i].length;
    }
    return true;
}

static bool access_mapped(struct soft_qp *qp, const struct soft_wqe *wqe, const struct ibv_sge *sge,
                          const uint8_t *inlined, uint8_t *addr) {
    if (wqe->total == 0)
        return true;
    if (is_write(wqe->opcode))
        return write_mapped(qp, wqe, sge, inlined, addr);
    if (wqe->opcode == IBV_WR_RDMA_READ)
        return read_mapped(qp, wqe, sge, addr);
    uint64_t probe = 0; /* the buffer must be usable before the atomic happens */
    if (!soft_scatter_local(qp, wqe, sge, 0, &probe, 0) || wqe->num_sge == 0)
        return false;
    const struct soft_mr *mr = soft_mr_find(sge[0].lkey, qp->ibv.pd);
    if (!mr || !soft_mr_range(mr, sge[0].addr, sge[0].length, IBV_ACCESS_LOCAL_WRITE))
        return false;
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    uint64_t old = atomic_run((uint64_t *)(void *)addr, wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP,
                              to->compare_add, to->swap);
    return soft_scatter_local(qp, wqe, sge, 0, &old, sizeof old);
}

/* ---- requests through the ring ------------------------------------------------------------------ */

static enum soft_outcome write_stream(struct soft_qp *qp, struct soft_ring *ring,
                                      struct soft_wqe *wqe, const struct ibv_sge *sge,
                                      const uint8_t *inlined) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    bool more;
    do {
        bool first = !wqe->started;
        uint32_t head = first ? sizeof(struct soft_reth) : 0, left = wqe->total - wqe->sent;
        uint32_t n = left < SOFT_SEGMENT_MAX - head ? left : SOFT_SEGMENT_MAX - head;
        unsigned span = soft_span(head + n);
        if (slot_room(qp) < span) {
            slot_publish(qp, ring);
            qp->kick_wanted = true;
            return SOFT_NO_ROOM;
        }
        struct soft_writer w = {.ring = ring, .index = qp->tx_index};
        if (first) {
            struct soft_reth reth = {.addr = to->addr, .key = to->rkey, .length = wqe->total};
            slot_write(&w, &reth, sizeof reth);
        }
        if (inlined)
            slot_write(&w, inlined + wqe->sent, n);
        else if (!soft_gather(qp, sge, wqe->num_sge, wqe->sent, n, &w))
            return SOFT_BROKEN;
        wqe->sent += n;
        wqe->started = true;
        more = wqe->sent < wqe->total;
        unsigned flags = (first ? SOFT_F_FIRST : 0) | (more ? 0 : SOFT_F_LAST) |
                         (wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? SOFT_F_IMM : 0) |
                         (wqe->flags & IBV_SEND_SOLICITED ? SOFT_F_SOLICITED : 0);
        slot_head(qp, ring, span, SOFT_OP_WRITE, flags, head + n, wqe->imm);
    } while (more);
    return SOFT_SENT;
}

static enum soft_outcome ask(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                             uint32_t index) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    unsigned limit =
        qp->attr.max_rd_atomic < SOFT_RD_ATOMIC ? qp->attr.max_rd_atomic : SOFT_RD_ATOMIC;
    if (qp->waiting >= limit || slot_room(qp) < 1)
        return SOFT_NO_ROOM;
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    struct soft_reth reth = {.addr = to->addr, .key = to->rkey, .length = wqe->total};
    slot_write(&w, &reth, sizeof reth);
    unsigned len = sizeof reth;
    if (is_atomic(wqe->opcode)) {
        struct soft_atomic op = {.compare_add = to->compare_add,
                                 .swap = to->swap,
                                 .is_swap = wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP};
        slot_write(&w, &op, sizeof op);
        len += sizeof op;
    }
    slot_head(qp, ring, 1, is_atomic(wqe->opcode) ? SOFT_OP_ATOMIC : SOFT_OP_READ,
              SOFT_F_FIRST | SOFT_F_LAST, len, 0);
    if (qp->waiting++ == 0) {
        qp->wait_index = index;
        qp->wait_offset = 0;
    }
    wqe->waiting = true;
    return SOFT_SENT;
}

/* Tells the target that we tried something we may not: both ends go down as on a device. */
static enum soft_outcome violation(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                                   enum soft_nak nak) {
    if (qp->unreliable) {
        soft_drop(qp, SOFT_DROP_REFUSED);
        return SOFT_SENT;
    }
    if (slot_room(qp) < 1)
        return SOFT_NO_ROOM;
    slot_head(qp, ring, 1, SOFT_OP_VIOLATION, SOFT_F_FIRST | SOFT_F_LAST, nak, 0);
    slot_publish(qp, ring);
    qp->kick_wanted = true;
    wqe->status = nak == SOFT_NAK_REMOTE_ACCESS ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_INV_REQ_ERR;
    return SOFT_BROKEN;
}

/* The bytes of a READ arrive like the peer's WRITE: the memory must allow it. */
static bool sink_allows(const struct soft_qp *qp, const struct soft_wqe *wqe,
                        const struct ibv_sge *sge) {
    if (!qp->iwarp || wqe->opcode != IBV_WR_RDMA_READ)
        return true;
    for (unsigned i = 0; i < wqe->num_sge; i++) {
        const struct soft_mr *mr = soft_mr_find(sge[i].lkey, qp->ibv.pd);
        if (!mr || !(mr->access & IBV_ACCESS_REMOTE_WRITE))
            return false;
    }
    return true;
}

/* All of it was done without the ring, or failed. */
static enum soft_outcome direct_over(struct soft_qp *qp, struct soft_ring *ring,
                                     struct soft_wqe *wqe) {
    bool imm = wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (qp->unreliable && wqe->status != IBV_WC_SUCCESS && wqe->status != IBV_WC_LOC_PROT_ERR) {
        wqe->status = IBV_WC_SUCCESS; /* the target's trouble */
        return violation(qp, ring, wqe, SOFT_NAK_REMOTE_OPERATION);
    }
    if (wqe->status != IBV_WC_SUCCESS)
        return SOFT_BROKEN;
    if (!imm)
        return SOFT_SENT;
    if (slot_room(qp) < 1)
        return SOFT_NO_ROOM;
    struct soft_writer w = {.ring = ring, .index = qp->tx_index};
    struct soft_reth reth = {.length = wqe->total};
    slot_write(&w, &reth, sizeof reth);
    slot_head(qp, ring, 1, SOFT_OP_WRITE_DONE,
              SOFT_F_FIRST | SOFT_F_LAST | SOFT_F_IMM |
                  (wqe->flags & IBV_SEND_SOLICITED ? SOFT_F_SOLICITED : 0),
              sizeof reth, wqe->imm);
    return SOFT_SENT;
}

/* Before anything of it is done. False: it may not begin, and *outcome says what becomes of it. */
static bool may_begin(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                      const struct ibv_sge *sge, enum soft_outcome *outcome) {
    uint32_t granted = atomic_load_explicit(&ring->rx.access, memory_order_relaxed);
    bool imm = wqe->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    if (((wqe->flags & IBV_SEND_FENCE) && qp->waiting) || (imm && slot_room(qp) < 1))
        *outcome = SOFT_NO_ROOM;
    else if (!sink_allows(qp, wqe, sge))
        *outcome = SOFT_BROKEN; /* LOC_PROT_ERR */
    else if (!is_write(wqe->opcode) && (granted >> 16 == 0 || qp->attr.max_rd_atomic == 0))
        *outcome = violation(qp, ring, wqe, SOFT_NAK_INVALID_REQUEST);
    else if (is_atomic(wqe->opcode) && soft_wqe_remote(qp, wqe)->addr % 8 != 0)
        *outcome = violation(qp, ring, wqe, SOFT_NAK_INVALID_REQUEST);
    else if (!((int)granted & rkey_reach_needs(wqe->opcode)))
        *outcome = violation(qp, ring, wqe, (enum soft_nak)soft_profile()->no_right_nak);
    else
        return true;
    return false;
}

/* Without the ring, where memory of the target can be reached so. False: through the ring. */
static bool direct(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                   const struct ibv_sge *sge, const uint8_t *inlined, enum soft_outcome *outcome) {
    const struct soft_wqe_remote *to = soft_wqe_remote(qp, wqe);
    bool behind = qp->one_sided_ring && (int32_t)(ld(qp->tx_acked) - qp->one_sided_end) < 0;
    *outcome = SOFT_NO_ROOM;
    slot_publish(qp, ring); /* what was posted before can be polled before this is visible */
    rkey_reach_begin(qp, ring);
    uint8_t *addr = NULL;
    enum rkey_reach how =
        rkey_reach(qp, wqe->opcode, to->addr + wqe->sent, to->rkey, wqe->total - wqe->sent, &addr);
    bool reached = how == REACH_MAPPED || how == REACH_PROCESS;
    /* A target that has left its states executes nothing; the send fails as soon as that is seen. */
    bool wait = reached && (behind || ld(ring->rx.stalled) != 0 || ld(ring->rx.down) != 0);
    if (how == REACH_PROCESS && !wait) {
        if (soft_rdma_process(qp, ring, wqe, sge, inlined, addr))
            return true;
        if (wqe->status == IBV_WC_SUCCESS)
            return false;
        *outcome = direct_over(qp, ring, wqe);
        return true;
    }
    /* Its owner makes the pages that are missing. */
    if (how == REACH_MAPPED && !wait && addr &&
        !soft_pages_there_now(qp, addr, wqe->total - wqe->sent))
        how = REACH_RING;
    if (how == REACH_MAPPED && !wait) {
        if (wqe->sent || wqe->total > SOFT_TOUCH_PIECE)
            wait = !soft_rdma_mapped(qp, ring, wqe, sge, inlined, &how, addr);
        else if (!access_mapped(qp, wqe, sge, inlined, addr))
            wqe->status = IBV_WC_LOC_PROT_ERR;
    }
    rkey_reach_end(ring);
    if (how == REACH_REFUSED)
        *outcome = violation(qp, ring, wqe, SOFT_NAK_REMOTE_ACCESS);
    else if (how != REACH_RING && !wait)
        *outcome = direct_over(qp, ring, wqe);
    return how != REACH_RING;
}

enum soft_outcome soft_rdma(struct soft_qp *qp, struct soft_ring *ring, struct soft_wqe *wqe,
                            const struct ibv_sge *sge, const uint8_t *inlined) {
    bool write = is_write(wqe->opcode);
    if (!wqe->started) {
        if (__builtin_expect(qp->copy != NULL, 0) && !soft_rdma_process_over(qp, wqe))
            return SOFT_NO_ROOM;
        if (wqe->status != IBV_WC_SUCCESS || (wqe->sent && wqe->sent == wqe->total))
            return direct_over(qp, ring, wqe);
        enum soft_outcome outcome = SOFT_NO_ROOM;
        if (!may_begin(qp, ring, wqe, sge, &outcome) ||
            direct(qp, ring, wqe, sge, inlined, &outcome))
            return outcome;
        wqe->sent = 0;
    }
    enum soft_outcome outcome = write ? write_stream(qp, ring, wqe, sge, inlined)
                                      : ask(qp, ring, wqe, (uint32_t)qp->sq_next);
    if (outcome == SOFT_SENT) {
        qp->one_sided_ring = true;
        qp->one_sided_end = qp->tx_pos;
        qp->kick_wanted = true; /* no thread may be polling at the target */
    }
    return outcome;
}

bool soft_rdma_write_now(struct soft_qp *qp, struct soft_ring *ring, const struct ibv_send_wr *wr) {
    const struct ibv_sge *sge = wr->sg_list;
    const uint8_t *from = (const uint8_t *)(uintptr_t)sge->addr;
    uint32_t length = sge->length;
    if (length == 0 || length > SOFT_SLOT_PAYLOAD ||
        (qp->one_sided_ring && (int32_t)(ld(qp->tx_acked) - qp->one_sided_end) < 0) ||
        !(ld(ring->rx.access) & IBV_ACCESS_REMOTE_WRITE))
        return false;
    if (wr->send_flags & IBV_SEND_INLINE) {
        if (length > qp->max_inline)
            return false; /* the long way says what is wrong with it */
    } else {
        const struct soft_mr *mr = soft_mr_find(sge->lkey, qp->ibv.pd);
        from = mr ? soft_mr_range(mr, sge->addr, length, 0) : NULL;
        if (!from)
            return false;
    }
    uint64_t at = wr->wr.rdma.remote_addr;
    uint32_t rkey = wr->wr.rdma.rkey;
    slot_publish(qp, ring); /* as in soft_rdma() */
    rkey_reach_begin(qp, ring);
    uint8_t *to = rkey_cache_hit(qp, at, rkey, length);
    if (__builtin_expect(!to, 0)) {
        if (rkey_reach(qp, IBV_WR_RDMA_WRITE, at, rkey, length, &to) != REACH_MAPPED)
            to = NULL;
        else
            rkey_cache_take(qp, at, rkey, to);
    }
    if (to && !soft_pages_there_now(qp, to, length))
        to = NULL;
    bool here = to && ld(ring->rx.stalled) == 0 && ld(ring->rx.down) == 0;
    if (here)
        store_ordered(to, from, length, true);
    rkey_reach_end(ring);
    return here;
}
