/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* queue_pair.c - making the queue pairs of sessions; finding out what inline data the device grants. */
#include "datapath/session/queue_pair.h"

#include <errno.h>

#include "common/uncancelled.h"
#include "core/context.h"
#include "core/techniques.h"
#include "datapath/loop/cq_share.h"
#include "datapath/loop/loop.h"

#define SEND_SGES_MIN 2u /* a header and a slice */

uint32_t queue_pair_sges(const struct sluice_node *n) {
    int sges = n->device_attr.max_sge;
    return sges > (int)LOOP_SGES       ? LOOP_SGES
           : sges < (int)SEND_SGES_MIN ? SEND_SGES_MIN
                                       : (uint32_t)sges;
}

/* Such that extended verbs can post its sends, where the device makes those. */
static struct ibv_qp *create(const struct sluice_node *n, struct ibv_qp_init_attr *init,
                             bool *extended) {
    struct ibv_qp_init_attr wanted = *init;
    if (!(n->options.without & (WITHOUT_EXTENDED | WITHOUT_INLINE))) {
        struct ibv_qp *qp = n->fabric->create_extended_qp(n->pd, init);
        *extended = qp != NULL;
        if (qp)
            return qp;
        *init = wanted; /* a device may write into it before it fails */
    }
    *extended = false;
    return n->fabric->create_qp(n->pd, init);
}

struct ibv_qp *queue_pair_create(struct sluice_node *n, struct ibv_qp_init_attr *init,
                                 bool *extended) {
    uint32_t wanted = atomic_load_explicit(&n->inline_wanted, memory_order_relaxed);
    if (n->options.without & WITHOUT_INLINE)
        wanted = 0;
    struct ibv_qp_cap cap = init->cap;
    for (;;) {
        init->cap = cap; /* a device may write into it before it fails */
        init->cap.max_inline_data = wanted;
        struct ibv_qp *qp = create(n, init, extended);
        if (qp) {
            if (!wanted) /* more than asked for is not used either */
                init->cap.max_inline_data = 0;
            atomic_store_explicit(&n->inline_wanted, wanted, memory_order_relaxed);
            atomic_store_explicit(&n->inline_granted, init->cap.max_inline_data,
                                  memory_order_relaxed);
            return qp;
        }
        /* Some devices answer EINVAL to more inline data than they have. */
        if (errno != EINVAL && errno != ENOMEM)
            return NULL;
        if (wanted > 0) {
            wanted = wanted > 64 ? wanted / 2 : 0;
        } else if (cap.max_send_sge > SEND_SGES_MIN) { /* nor so many entries of such a size */
            cap.max_send_sge = SEND_SGES_MIN;
            wanted = atomic_load_explicit(&n->inline_wanted, memory_order_relaxed);
        } else {
            return NULL;
        }
    }
}

bool connection_modify(struct connection *c, struct ibv_qp_attr *attr, int mask) {
    UNCANCELLED;
    int error = c->session->node->fabric->modify_qp(c->qp, attr, mask);
    if (error > 0)
        errno = error;
    return error == 0;
}

/* Made as for a session, and taken away again. The device stays meanwhile: under assist_lock. False: not made. */
static bool try_one(sluice_node *n) {
    uint32_t depth = cq_share_sends(&n->device_attr);
    struct ibv_cq *cq = n->fabric->create_cq(n->context, (int)depth, NULL, NULL, 0);
    if (!cq)
        return false;
    struct ibv_qp_init_attr init = {.send_cq = cq,
                                    .recv_cq = cq,
                                    .cap = {.max_send_wr = depth,
                                            .max_recv_wr = 1,
                                            .max_send_sge = queue_pair_sges(n),
                                            .max_recv_sge = 1},
                                    .qp_type = IBV_QPT_RC};
    bool extended;
    struct ibv_qp *qp = queue_pair_create(n, &init, &extended);
    if (qp)
        n->fabric->destroy_qp(qp);
    n->fabric->destroy_cq(cq);
    return qp != NULL;
}

/* Once, whatever comes of it: a device that has nothing to give is not asked by every call. Under assist_lock. */
static void find_out(sluice_node *n) {
    uint32_t unknown = INLINE_UNKNOWN;
    if (atomic_load(&n->inline_granted) == INLINE_UNKNOWN && !try_one(n))
        atomic_compare_exchange_strong(&n->inline_granted, &unknown,
                                       0); /* till a session has one */
}

uint32_t queue_pair_inline(sluice_node *n) {
    uint32_t granted = atomic_load_explicit(&n->inline_granted, memory_order_relaxed);
    if (granted != INLINE_UNKNOWN)
        return granted;
    pthread_mutex_lock(&n->assist_lock);
    if (!atomic_load(&n->device_lost))
        find_out(n);
    pthread_mutex_unlock(&n->assist_lock);
    granted = atomic_load_explicit(&n->inline_granted, memory_order_relaxed);
    return granted == INLINE_UNKNOWN ? 0 : granted;
}
