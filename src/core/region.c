/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * region.c - opening, closing and revoking regions, and making tokens of them.
 *
 * Whether a region is in use is one atomic count. Closing and revoking need it to be zero and shut it with
 * the same compare-and-swap; a call that comes meanwhile finds it shut and fails.
 *
 * Any thread.
 */
#include "core/region.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/uncancelled.h"
#include "core/wire/token.h"
#include "core/context.h"
#include "core/forked.h"
#include "pool/arena.h"
#include "pool/limit_text.h"

/* The application's pointer is to something that does not change; our count does. */
static struct sluice_region *own(const sluice_region *region) {
    return (struct sluice_region *)(uintptr_t)region;
}

int region_hold(const sluice_region *region) {
    _Atomic uint32_t *uses = &own(region)->uses;
    uint32_t count = atomic_load_explicit(uses, memory_order_relaxed);
    do {
        if (count & REGION_SHUT)
            return SLUICE_EINVAL;
    } while (!atomic_compare_exchange_weak_explicit(uses, &count, count + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    if (atomic_load_explicit(&region->usable, memory_order_acquire))
        return SLUICE_OK;
    region_drop(region);
    return SLUICE_EDEVICE;
}

void region_drop(const sluice_region *region) {
    atomic_fetch_sub_explicit(&own(region)->uses, 1, memory_order_release);
}

static bool shut(sluice_region *r) {
    uint32_t none = 0;
    return atomic_compare_exchange_strong_explicit(&r->uses, &none, REGION_SHUT,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* ---- registration: the call has it, or the lock for regions is held ----------------------------- */

static struct ibv_mr *reg(const sluice_region *r) {
    const sluice_node *n = r->node;
    int access = IBV_ACCESS_LOCAL_WRITE;
    if (r->rights & SLUICE_MAY_READ)
        access |= IBV_ACCESS_REMOTE_READ;
    if (r->rights & SLUICE_MAY_WRITE)
        access |= IBV_ACCESS_REMOTE_WRITE;
    if (r->rights & SLUICE_MAY_ATOMIC)
        access |= IBV_ACCESS_REMOTE_ATOMIC;
    errno = 0;
    struct ibv_mr *mr =
        n->fabric->reg_mr(n->pd, r->addr, (size_t)r->bytes, access | IBV_ACCESS_MW_BIND);
    if (!mr && (errno == EINVAL || errno == EOPNOTSUPP)) /* some devices have no memory windows */
        mr = n->fabric->reg_mr(n->pd, r->addr, (size_t)r->bytes, access);
    return mr;
}

static int enroll(sluice_region *r) {
    r->mr = reg(r);
    if (!r->mr)
        return errno ? errno : ENOMEM;
    atomic_store_explicit(&r->lkey, r->mr->lkey, memory_order_relaxed);
    atomic_store_explicit(&r->rkey, r->mr->rkey, memory_order_relaxed);
    atomic_store_explicit(&r->usable, true, memory_order_release);
    return 0;
}

/* False: the device will not let go of it. */
static bool expel(sluice_region *r) {
    if (r->mr && r->node->fabric->dereg_mr(r->mr) != 0)
        return false;
    r->mr = NULL;
    atomic_store_explicit(&r->usable, false, memory_order_release);
    return true;
}

/* Memory that the device may still write to is never unmapped. */
static void free_region(sluice_region *r) {
    if (r->found && !r->mr)
        r->node->fabric->mem_free(r->addr, r->found);
    free(r);
}

/* ---- the node's -------------------------------------------------------------------------------- */

/* From here to call_end() the caller has its region's registration for itself. False: the device is gone. */
static bool call_begin(struct regions *set) {
    pthread_mutex_lock(&set->lock);
    bool there = !set->gone;
    set->calls++;
    pthread_mutex_unlock(&set->lock);
    return there;
}

/* The lock is held. */
static void call_end(struct regions *set) {
    if (--set->calls == 0)
        pthread_cond_broadcast(&set->idle);
}

void regions_init(struct regions *set) {
    pthread_mutex_init(&set->lock, NULL);
    pthread_cond_init(&set->idle, NULL);
    CDS_INIT_LIST_HEAD(&set->list);
    set->calls = 0;
}

void regions_close(struct regions *set) {
    sluice_region *r, *next;
    cds_list_for_each_entry_safe(r, next, &set->list, link) {
        cds_list_del(&r->link);
        expel(r);
        free_region(r);
    }
    pthread_cond_destroy(&set->idle);
    pthread_mutex_destroy(&set->lock);
}

void regions_detach(struct regions *set) {
    pthread_mutex_lock(&set->lock);
    set->gone = true;
    while (set->calls > 0) /* they began before; what begins now registers nothing */
        pthread_cond_wait(&set->idle, &set->lock);
    sluice_region *r;
    cds_list_for_each_entry(r, &set->list, link)
        expel(r);
    pthread_mutex_unlock(&set->lock);
}

/* ---- calls ------------------------------------------------------------------------------------- */

static int not_registered(sluice_error *e, int error, uint64_t bytes, bool locks) {
    if (error == ENODEV)
        return error_set(e, SLUICE_EDEVICE, SLUICE_REASON_DEVICE_REMOVED, error,
                         "the device is gone");
    if (error == ENOMEM || error == EAGAIN || error == EPERM) {
        char why[200];
        struct limit_text shortage = {bytes, UINT64_MAX, error, locks, 0};
        limit_text_explain(why, sizeof why, &shortage);
        return error_set(e, SLUICE_ENOMEM, SLUICE_REASON_NO_MEMORY, error, "%s", why);
    }
    if (error == EINVAL || error == EFAULT || error == EACCES)
        return error_set(e, SLUICE_EINVAL, 0, error,
                         "%llu bytes cannot be registered: not mapped, or not writable",
                         (unsigned long long)bytes);
    return error_set(e, SLUICE_EDEVICE, SLUICE_REASON_DEVICE_ERROR, error,
                     "the device does not register %llu bytes: %s", (unsigned long long)bytes,
                     strerror(error));
}

static int open_region(sluice_region *r, sluice_error *e) {
    sluice_node *n = r->node;
    if (!r->addr) {
        errno = 0;
        r->found = page_round((size_t)r->bytes);
        r->addr = n->fabric->mem_alloc(r->found);
        if (!r->addr)
            return not_registered(e, errno ? errno : ENOMEM, r->bytes, !n->traits.unpinned);
    }
    int error = call_begin(&n->regions) ? enroll(r) : ENODEV;
    pthread_mutex_lock(&n->regions.lock);
    if (error == 0)
        cds_list_add(&r->link, &n->regions.list);
    call_end(&n->regions);
    pthread_mutex_unlock(&n->regions.lock);
    if (error == 0)
        return SLUICE_OK;
    if (r->found)
        n->fabric->mem_free(r->addr, r->found);
    return not_registered(e, error, r->bytes, !r->node->traits.unpinned);
}

int sluice_region_open(sluice_node *n, void *addr, uint64_t bytes, uint32_t rights,
                       sluice_region **out, sluice_error *e) {
    UNCANCELLED;
    if (forked_node(n))
        return error_set(e, SLUICE_EFORKED, 0, 0, FORKED_TEXT);
    if (!n || !out)
        return error_set(e, SLUICE_EINVAL, 0, 0, "no node, or nowhere to put the region");
    if (bytes == 0 || bytes > SIZE_MAX / 2 || (uintptr_t)addr > UINTPTR_MAX - (size_t)bytes)
        return error_set(e, SLUICE_EINVAL, 0, 0,
                         bytes == 0 ? "a region of %llu bytes"
                                    : "a region of %llu bytes ends beyond all addresses",
                         (unsigned long long)bytes);
    if (rights & ~TOKEN_RIGHTS)
        return error_set(e, SLUICE_EINVAL, 0, 0, "unknown rights 0x%x", rights);
    if (!context_call_begin(n))
        return error_set(e, SLUICE_ECLOSED, 0, 0, "the node is closed");
    if ((rights & SLUICE_MAY_ATOMIC) && n->device_attr.atomic_cap == IBV_ATOMIC_NONE) {
        context_call_end(n);
        return error_set(e, SLUICE_EDEVICE, 0, 0, "device %s has no atomic operations",
                         n->choice.device);
    }
    int status = SLUICE_ENOMEM;
    sluice_region *r = calloc(1, sizeof *r);
    if (r) {
        r->node = n;
        r->addr = addr;
        r->bytes = bytes;
        r->rights = rights;
        status = open_region(r, e);
    } else {
        error_set(e, SLUICE_ENOMEM, SLUICE_REASON_NO_MEMORY, ENOMEM, "out of memory");
    }
    if (status == SLUICE_OK)
        *out = r;
    else
        free(r);
    context_call_end(n);
    return status;
}

int sluice_region_close(sluice_region *r) {
    UNCANCELLED;
    if (forked_region(r))
        return SLUICE_EFORKED;
    if (!r)
        return SLUICE_OK;
    if (!shut(r))
        return SLUICE_EINVAL;
    struct regions *set = &r->node->regions;
    (void)call_begin(set); /* without a device it has no registration to end */
    bool gone = expel(r);
    pthread_mutex_lock(&set->lock);
    if (gone)
        cds_list_del(&r->link);
    call_end(set);
    pthread_mutex_unlock(&set->lock);
    if (gone) {
        free_region(r);
        return SLUICE_OK;
    }
    atomic_store_explicit(&r->uses, 0, memory_order_release); /* it can be tried again */
    return SLUICE_EDEVICE;
}

void *sluice_region_data(const sluice_region *r) {
    return r ? r->addr : NULL;
}

uint64_t sluice_region_size(const sluice_region *r) {
    return r ? r->bytes : 0;
}

int sluice_region_token(const sluice_region *r, uint64_t offset, uint64_t bytes, uint32_t rights,
                        sluice_token *out) {
    if (forked_region(r))
        return SLUICE_EFORKED;
    if (!r || !out || bytes == 0 || !region_has(r, offset, bytes) || rights == 0 ||
        (rights & ~r->rights))
        return SLUICE_EINVAL;
    if (!atomic_load_explicit(&r->usable, memory_order_acquire))
        return SLUICE_EDEVICE;
    token_put(out, &(struct token){.rights = rights,
                                   .rkey = atomic_load_explicit(&r->rkey, memory_order_relaxed),
                                   .addr = (uint64_t)(uintptr_t)r->addr + offset,
                                   .bytes = bytes});
    return SLUICE_OK;
}

/* No thread uses the region. 0 or errno: then it has no registration, or one that no peer knows. */
static int renew(sluice_region *r) {
    uint32_t before = atomic_load_explicit(&r->rkey, memory_order_relaxed);
    if (!expel(r))
        return EBUSY;
    int error = enroll(r);
    if (error != 0 || r->mr->rkey != before)
        return error;
    /* The device gave the same key again: another one, while it has this. */
    struct ibv_mr *same = r->mr;
    error = enroll(r);
    if (r->node->fabric->dereg_mr(same) != 0)
        return EBUSY;
    if (error != 0)
        atomic_store_explicit(&r->usable, false, memory_order_release);
    return error;
}

int sluice_region_revoke(sluice_region *r, sluice_error *e) {
    UNCANCELLED;
    if (forked_region(r))
        return error_set(e, SLUICE_EFORKED, 0, 0, FORKED_TEXT);
    if (!r)
        return error_set(e, SLUICE_EINVAL, 0, 0, "no region");
    if (!shut(r))
        return error_set(e, SLUICE_EINVAL, 0, 0, "the region is in use");
    struct regions *set = &r->node->regions;
    int error = ENODEV;
    if (call_begin(set))
        error = renew(r);
    pthread_mutex_lock(&set->lock);
    call_end(set);
    pthread_mutex_unlock(&set->lock);
    atomic_store_explicit(&r->uses, 0, memory_order_release);
    return error == 0 ? SLUICE_OK : not_registered(e, error, r->bytes, !r->node->traits.unpinned);
}
