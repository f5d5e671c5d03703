/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shared.c - the context and default PD that rdma_cm shows as id->verbs and id->pd: opened with the
 * first id that needs it, shared by all, closed with the last. As in librdmacm, applications may put their
 * own objects on it, which then keep it open. Owner: its own mutex, above the control lock.
 */
#include <errno.h>

#include "soft/object.h"
#include "soft/soft.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *context;
static struct ibv_pd *pd;
static uint32_t generation; /* of the process that opened it */
static unsigned users;

static int open_shared(void) {
    struct ibv_device **list = soft_get_device_list(NULL);
    if (!list)
        return -1;
    context = soft_open_device(list[0]);
    soft_free_device_list(list);
    if (!context)
        return -1;
    pd = soft_alloc_pd(context);
    if (!pd) {
        int err = errno;
        soft_close_device(context);
        context = NULL;
        errno = err;
        return -1;
    }
    generation = soft_generation_now;
    return 0;
}

struct ibv_context *soft_cm_context_get(void) {
    pthread_mutex_lock(&lock);
    if (generation != soft_generation_now) { /* a forked child starts afresh */
        context = NULL;
        users = 0;
    }
    struct ibv_context *result = NULL;
    if (context || open_shared() == 0) {
        users++;
        result = context;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

void soft_cm_context_put(void) {
    pthread_mutex_lock(&lock);
    if (generation == soft_generation_now && users > 0 && --users == 0 &&
        atomic_load(&soft_pd_of(pd)->users) == 0 &&
        atomic_load(&soft_context_of(context)->users) == 1) {
        soft_dealloc_pd(pd);
        soft_close_device(context);
        context = NULL;
        pd = NULL;
    }
    pthread_mutex_unlock(&lock);
}

struct ibv_pd *soft_cm_pd(void) {
    pthread_mutex_lock(&lock);
    struct ibv_pd *result = generation == soft_generation_now ? pd : NULL;
    pthread_mutex_unlock(&lock);
    return result;
}
