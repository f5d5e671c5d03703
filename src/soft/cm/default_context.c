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

#include "soft/ipc/engine.h"
#include "soft/rc/completer.h"
#include "soft/soft.h"
#include "soft/verbs/device.h"
#include "soft/verbs/mr.h"

struct shared {
    struct ibv_context *context;
    struct ibv_pd *pd;
    unsigned users;
    struct shared *next; /* older: of a device that was removed, until their users are gone */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared *list;
static uint32_t generation; /* of the process whose they are */

static struct shared *open_shared(void) {
    struct shared *one = calloc(1, sizeof *one);
    struct ibv_device **devices = one ? soft_get_device_list(NULL) : NULL;
    if (!devices) {
        free(one);
        errno = ENOMEM;
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
        list = NULL;
    generation = soft_generation_now;
}

struct ibv_context *soft_cm_context_get(void) {
    pthread_mutex_lock(&lock);
    check_generation();
    if (!list || soft_removed(list->context)) {
        struct shared *fresh = open_shared();
        if (!fresh) {
            pthread_mutex_unlock(&lock);
            return NULL;
        }
        fresh->next = list;
        list = fresh;
    }
    list->users++;
    struct ibv_context *result = list->context;
    pthread_mutex_unlock(&lock);
    return result;
}

void soft_cm_context_put(struct ibv_context *context) {
    pthread_mutex_lock(&lock);
    check_generation();
    struct shared **at = &list;
    while (*at && (*at)->context != context)
        at = &(*at)->next;
    struct shared *one = *at;
    if (one && one->users > 0 && --one->users == 0 && !soft_dropin &&
        atomic_load(&soft_pd_of(one->pd)->users) == 0 &&
        atomic_load(&soft_context_of(context)->users) == 1) {
        *at = one->next;
        soft_dealloc_pd(one->pd);
        soft_close_device(context);
        free(one);
    }
    pthread_mutex_unlock(&lock);
}

struct ibv_pd *soft_cm_pd(struct ibv_context *context) {
    pthread_mutex_lock(&lock);
    check_generation();
    struct shared *one = list;
    while (one && one->context != context)
        one = one->next;
    struct ibv_pd *result = one ? one->pd : NULL;
    pthread_mutex_unlock(&lock);
    return result;
}
