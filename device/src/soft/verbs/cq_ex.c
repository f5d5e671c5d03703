/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cq_ex.c - extended CQs: one completion at a time, read field by field (ibv_start_poll and what
 * follows); and changing a CQ's size.
 *
 * A reader belongs to one thread from start_poll to end_poll; others wait, unless the CQ was made for a
 * single thread. A time stamp is the time at which the completion was taken: the device has no clock of
 * its own that saw it earlier.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/cq.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/rc/progress.h"
#include "soft/rc/requester.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"

struct soft_reader {
    soft_spin lock;
    bool single, stamped;
    struct ibv_wc wc; /* under the reader's eyes */
    uint64_t taken, taken_wallclock;
};

static struct soft_cq *cq_of(struct ibv_cq_ex *cq) {
    return (struct soft_cq *)cq;
}

static uint64_t now_ns(clockid_t clock) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- polling ---------------------------------------------------------------------------------------- */

static int take(struct ibv_cq_ex *cq) {
    struct soft_reader *r = cq_of(cq)->reader;
    int n = soft_poll_cq(&cq_of(cq)->ibv, 1, &r->wc);
    if (n <= 0)
        return n == 0 ? ENOENT : EIO;
    cq->wr_id = r->wc.wr_id;
    cq->status = r->wc.status;
    if (r->stamped) {
        r->taken = now_ns(CLOCK_MONOTONIC);
        r->taken_wallclock = now_ns(CLOCK_REALTIME);
    }
    return 0;
}

static void release(struct soft_reader *r) {
    if (!r->single)
        spin_unlock(&r->lock);
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) {
    struct soft_reader *r = cq_of(cq)->reader;
    if (attr->comp_mask)
        return EINVAL;
    if (!r->single)
        spin_lock(&r->lock);
    int rc = take(cq);
    if (rc != 0)
        release(r); /* no end_poll follows */
    return rc;
}

static void end_poll(struct ibv_cq_ex *cq) {
    release(cq_of(cq)->reader);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.byte_len;
}

/* The invalidated key, too: the header reads it through this one. */
static __be32 read_imm_data(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->taken;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *cq) {
    return cq_of(cq)->reader->taken_wallclock;
}

/* ---- creation ----------------------------------------------------------------------------------------- */

static int check(const struct ibv_cq_init_attr_ex *attr) {
    const uint64_t readable = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                              IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    if (attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))
        return EINVAL;
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
        (attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED))
        return EOPNOTSUPP; /* an overrun is never ignored */
    if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) && attr->parent_domain)
        return EOPNOTSUPP;
    if (attr->cqe > soft_profile()->cqe_most || attr->comp_vector != 0)
        return EINVAL;
    return attr->wc_flags & ~readable ? EOPNOTSUPP : 0;
}

struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr) {
    UNCANCELLED;
    int err = check(attr);
    struct soft_reader *reader = err ? NULL : calloc(1, sizeof *reader);
    if (!reader) {
        errno = err ? err : ENOMEM;
        return NULL;
    }
    struct ibv_cq *plain = soft_create_cq(ctx, (int)attr->cqe, attr->cq_context, attr->channel, 0);
    if (!plain) {
        err = errno;
        free(reader);
        errno = err;
        return NULL;
    }
    reader->single = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
                     (attr->flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
    reader->stamped = (attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                         IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)) != 0;
    soft_cq_of(plain)->reader = reader;
    struct ibv_cq_ex *cq = &soft_cq_of(plain)->ibv_ex;
    cq->start_poll = start_poll;
    cq->next_poll = take;
    cq->end_poll = end_poll;
    cq->read_opcode = read_opcode;
    cq->read_vendor_err = read_vendor_err;
    cq->read_byte_len = read_byte_len;
    cq->read_imm_data = read_imm_data;
    cq->read_qp_num = read_qp_num;
    cq->read_src_qp = read_src_qp;
    cq->read_wc_flags = read_wc_flags;
    cq->read_slid = read_slid;
    cq->read_sl = read_sl;
    cq->read_dlid_path_bits = read_dlid_path_bits;
    cq->read_completion_ts = read_completion_ts;
    cq->read_completion_wallclock_ns = read_completion_wallclock_ns;
    return cq;
}

void soft_reader_free(struct soft_cq *cq) {
    free(cq->reader);
    cq->reader = NULL;
}

/* ---- size ------------------------------------------------------------------------------------------------ */

#define AT_ONCE 16
#define SPARE 64 /* places in the ring for what others push while we move ours, having seen room */

/* poll_lock. The ring itself never shrinks: a thread that pushes may have looked for room under the old limit. */
static struct ibv_wc *ring_replace(struct soft_cq *cq, struct ibv_wc *ring, uint32_t capacity) {
    spin_assert_held(&cq->poll_lock);
    struct ibv_wc *unused = ring;
    spin_lock(&cq->ring_lock);
    if (capacity > cq->ring_capacity) {
        uint32_t count = ld(cq->ring_count);
        for (uint32_t i = 0; i < count; i++)
            ring[i] = cq->ring[(cq->ring_head + i) % cq->ring_capacity];
        unused = cq->ring;
        cq->ring = ring;
        cq->ring_head = 0;
        cq->ring_capacity = capacity;
    }
    spin_unlock(&cq->ring_lock);
    return unused;
}

/*
 * poll_lock. Most completions are made when a thread polls for them; on a device they would lie in the CQ
 * already. Those of this QP are moved into the ring, until it holds more than cqe.
 */
static void collect(struct soft_cq *cq, struct soft_qp *qp, uint32_t cqe) {
    spin_assert_held(&cq->poll_lock);
    struct ibv_wc wc[AT_ONCE];
    bool armed = ld(cq->armed) != 0;
    for (bool more = true; more && ld(cq->ring_count) <= cqe;) {
        uint32_t places = cqe + 1 - ld(cq->ring_count);
        struct sink sink = {.cq = cq, .wc = wc, .ne = places < AT_ONCE ? (int)places : AT_ONCE};
        spin_lock(&qp->lock); /* until they are in the ring: no other QP's may come between */
        soft_progress_locked(qp, &sink);
        soft_qp_flush_ack(qp);
        for (int i = 0; i < sink.n; i++)
            if (!soft_cq_push(cq, &wc[i], false))
                soft_cq_overrun(cq);
        spin_unlock(&qp->lock);
        more = sink.n > 0;
    }
    if (armed && ld(cq->armed) == 0)
        st(cq->untold, false); /* it fired for them */
}

/*
 * The completions of sends that a device would have put there when it took them, as it waits for no receiver: here they wait
 * until the way to that receiver is made.
 */
static uint32_t owed(struct soft_cq *cq, struct soft_qp *qp) {
    uint32_t count = 0;
    if (!qp->unreliable || soft_cq_of(qp->ibv.send_cq) != cq)
        return 0;
    spin_lock(&qp->lock);
    for (uint32_t i = qp->sq_head; i != qp->sq_tail; i++)
        count += (wqe_at(qp, i)->flags & IBV_SEND_SIGNALED) != 0;
    spin_unlock(&qp->lock);
    return count;
}

/* A device refuses to make a CQ smaller than what is in it: EINVAL, and it stays as it is. */
int soft_resize_cq(struct ibv_cq *ibcq, int cqe) {
    UNCANCELLED;
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    if (soft_removed(ibcq->context))
        return EIO;
    if (cqe < 1 || (uint32_t)cqe > soft_profile()->cqe_most)
        return EINVAL;
    cqe = (int)soft_rounded(soft_profile()->cq_rounding, (uint32_t)cqe);
    uint32_t limit = (uint32_t)cqe, before = ld(cq->limit);
    uint32_t capacity = (limit > before ? limit : before) + SPARE;
    struct ibv_wc *ring = calloc(capacity, sizeof *ring);
    if (!ring)
        return ENOMEM;
    spin_lock(&cq->poll_lock);
    ring = ring_replace(cq, ring, capacity);
    uint32_t due = 0;
    for (unsigned i = 0; i < cq->qp_count; i++) {
        collect(cq, cq->polled[i].qp, limit);
        due += owed(cq, cq->polled[i].qp);
    }
    spin_lock(&cq->ring_lock);
    bool fits = ld(cq->ring_count) + due <= limit;
    if (fits) {
        st(cq->limit, limit);
        ibcq->cqe = cqe;
    }
    spin_unlock(&cq->ring_lock);
    spin_unlock(&cq->poll_lock);
    free(ring);
    return fits ? 0 : EINVAL;
}
