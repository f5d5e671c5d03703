/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * default_context.c - the context and default PD that rdma_cm shows as id->verbs and id->pd: opened with the
 * first id that needs it, shared by all, closed with the last; a new one once the device was removed.
 * As in librdmacm, applications may put their own objects on it, which then keep it open. Owner: its
 * own mutex, above the control lock.
 */
#include "soft/cm/default_context.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <urcu/list.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/object/device.h"
#include "soft/object/mr.h"
#include "soft/rc/completer.h"
#include "soft/soft.h"

struct shared {
    struct ibv_context *context;
    struct ibv_pd *pd;
    unsigned users;
    struct cds_list_head link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The one in use, then older ones: of a device that was removed, until their users are gone. */
static CDS_LIST_HEAD(list);
static uint32_t generation; /* of the process that owns them */

static struct shared *open_shared(void) {
    struct shared *one = calloc(1, sizeof *one);
    struct ibv_device **devices = one ? soft_get_device_list(NULL) : NULL;
    if (!devices) { /* no memory, or a setting is refused */
        int error = errno;
        free(one);
        errno = error;
        return NULL;
    }
    struct ibv_device *device = devices[0];
    soft_free_device_list(devices);
    if (!device)
        errno = ENODEV;
    one->context = device ? soft_open_device(device) : NULL;
    if (!one->context)
        goto fail;
    one->pd = soft_alloc_pd(one->context);
    if (one->pd)
        return one;
    int err = errno;
    soft_close_device(one->context);
    errno = err;
fail:;
    err = errno;
    free(one);
    errno = err;
    return NULL;
}

/* Taken before the engine's locks, as everywhere here. */
void soft_default_context_fork(bool begins) {
    if (begins)
        pthread_mutex_lock(&lock);
    else
        pthread_mutex_unlock(&lock);
}

/* A forked child starts afresh. */
static void check_generation(void) {
    if (generation != soft_generation_now)
        CDS_INIT_LIST_HEAD(&list);
    generation = soft_generation_now;
}

/* NULL: none of ours. */
static struct shared *find(const struct ibv_context *context) {
    struct shared *one;
    cds_list_for_each_entry(one, &list, link) {
        if (one->context == context)
            return one;
    }
    return NULL;
}

struct ibv_context *soft_cm_context_get(void) {
    UNCANCELLED;
    pthread_mutex_lock(&lock);
    check_generation();
    struct ibv_context *result = NULL;
    struct shared *one = NULL;
    if (!cds_list_empty(&list))
        one = cds_list_first_entry(&list, struct shared, link);
    if (!one || soft_removed(one->context)) {
        one = open_shared();
        if (!one)
            goto unlock;
        cds_list_add(&one->link, &list);
    }
    one->users++;
    result = one->context;
unlock:
    pthread_mutex_unlock(&lock);
    return result;
}

void soft_cm_context_put(struct ibv_context *context) {
    UNCANCELLED;
    pthread_mutex_lock(&lock);
    check_generation();
    struct shared *one = find(context);
    if (one && one->users > 0 && --one->users == 0 && !soft_dropin &&
        atomic_load(&soft_pd_of(one->pd)->users) == 0 &&
        atomic_load(&soft_context_of(context)->users) == 1) {
        cds_list_del(&one->link);
        soft_dealloc_pd(one->pd);
        soft_close_device(context);
        free(one);
    }
    pthread_mutex_unlock(&lock);
}

struct ibv_pd *soft_cm_pd(struct ibv_context *context) {
    pthread_mutex_lock(&lock);
    check_generation();
    struct shared *one = find(context);
    struct ibv_pd *result = one ? one->pd : NULL;
    pthread_mutex_unlock(&lock);
    return result;
}
