/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr.c - protection domains and memory regions: making them and taking them back. The tables are object/mr.c and
 * object/keys.c.
 *
 * A key is index << 16 | random: the index finds the MR in a table without a lock, the random part
 * makes keys of other registrations useless; mr_index.c chooses the index. Registration is bookkeeping
 * only, and a check that the memory is there; it costs the same for any length. Inside of memory from soft_mem_alloc()
 * (rc/region_memory.c) what is sent is moved by one copy instead of two.
 *
 * Owner: control lock for the tables' changes; lookups are lock-free.
 */
#define _GNU_SOURCE
#include "soft/verbs/mr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/guarded_copy.h"
#include "common/uncancelled.h"
#include "soft/fault/inject.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/spinlock.h"
#include "soft/iwarp/qp_tcp.h"
#include "soft/object/async_event.h"
#include "soft/object/device.h"
#include "soft/object/keys.h"
#include "soft/object/mr.h"
#include "soft/object/mw.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/object/ring.h"
#include "soft/rc/completer.h"
#include "soft/rc/process_copy.h"
#include "soft/rc/progress.h"
#include "soft/rc/region_exchange.h"
#include "soft/rc/requester.h"
#include "soft/rc/rkey_fence.h"
#include "soft/soft.h"
#include "soft/verbs/device.h"
#include "soft/verbs/mr_index.h"
#include "soft/verbs/mr_mapped.h"

struct ibv_pd *soft_alloc_pd(struct ibv_context *ibctx) {
    UNCANCELLED;
    struct soft_context *ctx = soft_context_of(ibctx);
    if (soft_stale(ctx)) {
        errno = EPERM;
        return NULL;
    }
    int refused = soft_refuse(ibctx, FAULT_CALL_alloc_pd);
    if (refused) {
        errno = refused;
        return NULL;
    }
    struct soft_pd *pd = calloc(1, sizeof *pd);
    if (!pd)
        return NULL;
    static _Atomic uint32_t next_number = 1;
    pd->ibv.context = ibctx;
    pd->number = atomic_fetch_add(&next_number, 1);
    pd->generation = soft_generation_now;
    atomic_fetch_add(&ctx->users, 1);
    return &pd->ibv;
}

int soft_dealloc_pd(struct ibv_pd *ibpd) {
    UNCANCELLED;
    struct soft_pd *pd = soft_pd_of(ibpd);
    if (soft_stale(pd))
        return EPERM;
    if (atomic_load(&pd->users) != 0)
        return EBUSY;
    atomic_fetch_sub(&soft_context_of(ibpd->context)->users, 1);
    free(pd);
    return 0;
}

/* ---- memory regions ---------------------------------------------------------------------------- */

/* The region that covers [addr, addr + length) whole, or -1. Control lock. */
static int region_of(const uint8_t *addr, size_t length) {
    soft_assert_locked();
    for (int i = 0; i < SOFT_MAX_REGIONS; i++) {
        const struct soft_region *r = &soft_regions[i];
        if (r->addr && addr >= r->addr && length <= r->bytes &&
            (size_t)(addr - r->addr) <= r->bytes - length)
            return i;
    }
    return -1;
}

/* Control lock. Takes a free index and a fresh key; the caller shows it. */
int soft_mr_insert(struct soft_mr *mr) {
    soft_assert_locked();
    uint32_t key;
    int err = soft_mr_index_take(mr->window || (mr->access & SOFT_REMOTE_ACCESS) != 0, &key);
    if (err != 0)
        return err;
    mr->index = key >> 16;
    mr->ibv.lkey = mr->ibv.rkey = key;
    st(mr->key, key);
    atomic_store_explicit(&soft_mr_table[mr->index], mr, memory_order_release);
    return 0;
}

struct ibv_mr *soft_reg_mr(struct ibv_pd *ibpd, void *addr, size_t length, int access) {
    UNCANCELLED;
    uint64_t iova = access & IBV_ACCESS_ZERO_BASED ? 0 : (uintptr_t)addr;
    return soft_reg_mr_iova(ibpd, addr, length, iova, access);
}

/* Asks the kernel whether the bytes are mapped; those in a region of our own are. 0 or an errno. */
static int look(uint8_t *addr, size_t length, int access) {
    const int writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
                       IBV_ACCESS_MW_BIND;
    soft_lock();
    bool ours = region_of(addr, length) >= 0;
    soft_unlock();
    return ours ? 0 : soft_vma_check(addr, length, (access & writes) != 0);
}

/* 0, or what is wrong with a registration. */
int soft_mr_check(const struct soft_pd *pd, void *addr, size_t length, uint64_t iova, int access) {
    const int known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED;
    if (soft_stale(pd))
        return EPERM;
    if ((access & ~known & ~(int)IBV_ACCESS_OPTIONAL_RANGE) != 0)
        return (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB)) ? EOPNOTSUPP : EINVAL;
    if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
        !(access & IBV_ACCESS_LOCAL_WRITE))
        return EINVAL;
    if (length > UINTPTR_MAX - (uintptr_t)addr || length > UINT64_MAX - iova)
        return EINVAL;
    return look(addr, length, access);
}

void soft_mr_describe(struct soft_mr *mr, void *addr, size_t length, uint64_t iova, int access) {
    soft_assert_locked();
    mr->ibv.addr = addr;
    mr->ibv.length = length;
    mr->start = iova;
    mr->end = iova + length;
    mr->shift = (int64_t)((uintptr_t)addr - iova);
    mr->access = access;
    mr->region = region_of(addr, length);
    if (mr->region < 0)
        guarded_copy_arm();
    mr->region_offset =
        mr->region >= 0 ? (uint64_t)((uint8_t *)addr - soft_regions[mr->region].addr) : 0;
}

void soft_mr_show(struct soft_mr *mr) {
    const int writes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
    if (!(mr->access & (writes | IBV_ACCESS_REMOTE_READ)))
        return;
    if (mr->region >= 0 && !soft_regions[mr->region].writable && (mr->access & writes)) {
        soft_regions[mr->region].writable = true;
        soft_region_exchange_writable(mr->region);
    }
    (void)soft_keys_fd();
    soft_key_publish(mr, mr->ibv.rkey);
}

void soft_mr_make(const struct soft_mr *mr) {
    if (mr->region >= 0 && (mr->access & SOFT_REMOTE_ACCESS))
        soft_region_make(mr->region, mr->region_offset, mr->end - mr->start);
}

/* iova: what work requests will call addr. */
struct ibv_mr *soft_reg_mr_iova(struct ibv_pd *ibpd, void *addr, size_t length, uint64_t iova,
                                int access) {
    UNCANCELLED;
    struct soft_pd *pd = soft_pd_of(ibpd);
    int err = soft_mr_check(pd, addr, length, iova, access);
    if (err == 0)
        err = soft_refuse(ibpd->context, FAULT_CALL_reg_mr);
    if (err) {
        errno = err;
        return NULL;
    }
    struct soft_mr *mr = calloc(1, sizeof *mr);
    if (!mr)
        return NULL;
    mr->ibv = (struct ibv_mr){.context = ibpd->context, .pd = ibpd};
    mr->generation = soft_generation_now;
    soft_lock();
    soft_mr_describe(mr, addr, length, iova, access);
    err = soft_mr_insert(mr);
    if (err == 0)
        soft_mr_show(mr);
    soft_unlock();
    if (err) {
        free(mr);
        errno = err;
        return NULL;
    }
    soft_mr_make(mr);
    atomic_fetch_add(&pd->users, 1);
    return &mr->ibv;
}

/* A peer's WRITE that has begun to arrive, or a READ that is being answered: is it in there? */
static bool in_use(const struct soft_qp *qp, uint32_t key) {
    if (qp->rx_left && qp->rx_key == key)
        return true;
    for (uint32_t i = qp->answer_head; i != qp->answer_tail; i++) {
        const struct soft_answer *a = &qp->answer[i % SOFT_RD_ATOMIC];
        if (a->from && a->left && a->key == key)
            return true;
    }
    return false;
}

/* Does what a device does that finds the key gone in the middle: both ends fail. */
static bool take_back(struct soft_qp *qp, const struct soft_mr *mr, uint32_t key) {
    spin_lock(&qp->lock);
    struct soft_ring *rx = ld(qp->rx);
    bool hit = qp->tcp ? soft_tcp_take_back(qp, mr, key) : rx && in_use(qp, key);
    if (hit && rx) {
        uint32_t pos = ld(qp->rx_pos);
        atomic_store_explicit(&rx->rx.acked, pos, memory_order_release);
        atomic_store_explicit(&rx->rx.nak, (uint64_t)pos << 8 | SOFT_NAK_REMOTE_ACCESS,
                              memory_order_release);
        soft_qp_fail(qp);
    }
    spin_unlock(&qp->lock);
    return hit;
}

/* Every holder of a QP's lock may have the pointer it looked up, until it lets go. */
static void take_back_all(const struct soft_mr *mr, uint32_t key) {
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (!qp || !take_back(qp, mr, key))
                continue;
            if (soft_profile()->tells_target_access)
                soft_async_event(qp->ibv.context, IBV_EVENT_QP_ACCESS_ERR, &qp->ibv);
            soft_qp_kick(qp);
            soft_qp_progress(qp);
        }
}

void soft_mr_withdraw(struct soft_mr *mr) {
    uint32_t key = ld(mr->key); /* 0: a window that is not bound */
    st(mr->key, 0);
    if (!mr->window) /* the key of a window gives its owner no access */
        atomic_fetch_add_explicit(&soft_mr_epoch, 1, memory_order_release);
    bool shown = soft_keys && ld(soft_keys[mr->index].key) != 0;
    if (shown)
        soft_key_publish(mr, 0);
    take_back_all(mr, key);
    if (!mr->window)
        soft_process_copy_wait_memory((void *)(uintptr_t)(mr->start + (uint64_t)mr->shift),
                                      mr->end - mr->start);
    if (shown)
        soft_rkey_fence_wait(soft_pd_of(mr->window ? mr->window->ibv.pd : mr->ibv.pd));
}

void soft_mr_remove(struct soft_mr *mr) {
    soft_assert_locked();
    atomic_store_explicit(&soft_mr_table[mr->index], NULL, memory_order_release);
    soft_mr_index_free();
    soft_mr_withdraw(mr);
}

int soft_dereg_mr(struct ibv_mr *ibmr) {
    UNCANCELLED;
    struct soft_mr *mr = soft_mr_of(ibmr);
    if (soft_stale(mr))
        return EPERM;
    if (atomic_load(&mr->windows) != 0)
        return soft_profile()->dereg_bound;
    soft_lock();
    soft_mr_remove(mr);
    soft_unlock();
    atomic_fetch_sub(&soft_pd_of(ibmr->pd)->users, 1);
    free(mr);
    return 0;
}

void soft_mr_forked(void) {
    soft_keys_forked();
    memset((void *)soft_mr_table, 0, sizeof soft_mr_table);
    soft_mr_index_forked();
}
