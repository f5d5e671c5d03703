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

#include "soft/soft.h"
#include "soft/verbs/extended.h"
#include "soft/verbs/object.h"

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

static void let_go(struct soft_reader *r) {
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
        let_go(r); /* no end_poll follows */
    return rc;
}

static void end_poll(struct ibv_cq_ex *cq) {
    let_go(cq_of(cq)->reader);
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
    if (attr->cqe > SOFT_MAX_CQE || attr->comp_vector != 0)
        return EINVAL;
    return attr->wc_flags & ~readable ? EOPNOTSUPP : 0;
}

struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr) {
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

/* It only ever grows: who makes progress on it may have looked at its size already. */
int soft_resize_cq(struct ibv_cq *ibcq, int cqe) {
    struct soft_cq *cq = soft_cq_of(ibcq);
    if (soft_stale(cq))
        return EPERM;
    if (soft_removed(ibcq->context))
        return EIO;
    if (cqe < 1 || cqe > SOFT_MAX_CQE)
        return EINVAL;
    struct ibv_wc *ring = calloc((size_t)cqe, sizeof *ring), *unused = ring;
    if (!ring)
        return ENOMEM;
    spin_lock(&cq->ring_lock);
    uint32_t count = ld(cq->ring_count), old = ld(cq->ring_capacity);
    bool fits = count <= (uint32_t)cqe;
    if (fits && (uint32_t)cqe > old) {
        for (uint32_t i = 0; i < count; i++)
            ring[i] = cq->ring[(cq->ring_head + i) % old];
        unused = cq->ring;
        cq->ring = ring;
        cq->ring_head = 0;
        st(cq->ring_capacity, (uint32_t)cqe);
        ibcq->cqe = cqe;
    }
    spin_unlock(&cq->ring_lock);
    free(unused);
    return fits ? 0 : EINVAL;
}
