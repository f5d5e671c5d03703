/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * scatter.c - payload of arrived messages into memory: from slots, or from the sender's mapped
 * regions that a message describes. Descriptors are copied once and then checked.
 *
 * Owner: the QP's lock.
 */
#include "soft/rc/scatter.h"

#include <stdatomic.h>
#include <string.h>

#include "common/guarded_copy.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/mr.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "soft/rc/described.h"
#include "soft/rc/region_pages.h"

enum scatter_result soft_scatter(struct soft_qp *qp, const struct soft_rqe *rqe,
                                 const uint8_t *from, uint64_t bytes) {
    uint64_t at = qp->rx_offset;
    qp->rx_offset += bytes;
    for (unsigned i = 0; bytes && i < rqe->num_sge; i++) {
        const struct ibv_sge *sge = &rqe->sge[i];
        if (at >= sge->length) {
            at -= sge->length;
            continue;
        }
        struct soft_mr *mr = soft_mr_find(sge->lkey, qp->ibv.pd);
        uint8_t *to = mr ? soft_mr_range(mr, sge->addr, sge->length, IBV_ACCESS_LOCAL_WRITE) : NULL;
        if (!to)
            return SCATTER_BAD_BUFFER;
        uint64_t n = sge->length - at < bytes ? sge->length - at : bytes;
        if (!soft_mr_store(mr, to + at, from, n))
            return SCATTER_BAD_BUFFER;
        from += n;
        bytes -= n;
        at = 0;
    }
    return bytes ? SCATTER_TOO_LONG : SCATTER_DONE;
}

enum scatter_result soft_scatter_slots(struct soft_qp *qp, const struct soft_rqe *rqe,
                                       struct soft_ring *ring, unsigned len) {
    unsigned index = ld(qp->rx_index);
    enum scatter_result placed = SCATTER_DONE;
    do {
        unsigned n = len < SOFT_SLOT_PAYLOAD ? len : SOFT_SLOT_PAYLOAD;
        placed = soft_scatter(qp, rqe, ring->slot[index].data, n);
        len -= n;
        index = soft_slot_next(index);
    } while (len && placed == SCATTER_DONE);
    return placed;
}

#define READ_PIECE 16384u

/* Pages of it are missing, and are not to be made here. */
static enum scatter_result scatter_read(struct soft_qp *qp, const struct soft_rqe *rqe,
                                        const struct soft_desc *desc) {
    const struct soft_peer_region *region = &qp->link_peer->regions[desc->region];
    uint8_t piece[READ_PIECE];
    enum scatter_result placed = SCATTER_DONE;
    for (uint64_t at = 0, n; at < desc->length && placed == SCATTER_DONE; at += n) {
        n = desc->length - at < READ_PIECE ? desc->length - at : READ_PIECE;
        if (!soft_pages_read(region, desc->offset + at, piece, n))
            return SCATTER_BAD_BUFFER;
        placed = soft_scatter(qp, rqe, piece, n);
    }
    return placed;
}

enum scatter_result soft_scatter_desc(struct soft_qp *qp, const struct soft_rqe *rqe,
                                      struct soft_ring *ring, unsigned count) {
    struct soft_desc desc[SOFT_MAX_DESC];
    unsigned index = ld(qp->rx_index), per_slot = SOFT_SLOT_PAYLOAD / sizeof *desc;
    for (unsigned i = 0; i < count; i++) {
        desc[i] = described_read(ring->slot[index].data + (i % per_slot) * sizeof *desc);
        if (i % per_slot == per_slot - 1)
            index = soft_slot_next(index);
    }
    for (unsigned i = 0; i < count; i++) {
        const uint8_t *from = described_get(qp, desc[i].region, desc[i].offset, desc[i].length);
        if (!from)
            return SCATTER_BAD_BUFFER;
        enum scatter_result placed = soft_pages_there_now(qp, from, desc[i].length)
                                         ? soft_scatter(qp, rqe, from, desc[i].length)
                                         : scatter_read(qp, rqe, &desc[i]);
        if (placed != SCATTER_DONE)
            return placed;
    }
    return SCATTER_DONE;
}

struct slots_copy {
    struct soft_qp *qp;
    struct soft_ring *ring;
    unsigned offset, bytes;
    void *out;
};

static void copy_slots(void *arg) {
    const struct slots_copy *c = arg;
    soft_copy_slots(c->qp, c->ring, c->offset, c->out, c->bytes);
}

bool soft_place_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                      unsigned bytes) {
    return guarded_run(copy_slots, &(struct slots_copy){qp, ring, offset, bytes, out}, out, bytes);
}

/* Bytes of the slots of a message that starts at the reader's index, from offset on. */
void soft_copy_slots(struct soft_qp *qp, struct soft_ring *ring, unsigned offset, void *out,
                     unsigned bytes) {
    unsigned index = ld(qp->rx_index) + offset / SOFT_SLOT_PAYLOAD;
    uint8_t *to = out;
    for (offset %= SOFT_SLOT_PAYLOAD; bytes; offset = 0, index++) {
        unsigned n = SOFT_SLOT_PAYLOAD - offset < bytes ? SOFT_SLOT_PAYLOAD - offset : bytes;
        memcpy(to, ring->slot[index % SOFT_RING_SLOTS].data + offset, n);
        to += n;
        bytes -= n;
    }
}
