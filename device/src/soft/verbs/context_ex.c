/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * context_ex.c - the extended context: the slots that the headers' inline calls look for in front of the
 * public context, and the calls of that kind that belong to the device as a whole.
 *
 * A slot is found by its distance from the public context, so that programs built with older and newer
 * headers find the same. A call that is missing here is NULL, and the header then returns EOPNOTSUPP.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/uncancelled.h"
#include "soft/ipc/engine.h"
#include "soft/object/cq.h"
#include "soft/object/device.h"
#include "soft/soft.h"
#include "soft/verbs/internal.h"

#define CLOCK_KHZ 1000000 /* completions are stamped in nanoseconds */

/* The public context is the last member of the one and the first of the other. */
struct extended {
    char slots[offsetof(struct verbs_context, context)];
    struct soft_context ctx;
};
_Static_assert(offsetof(struct extended, ctx) == offsetof(struct verbs_context, context),
               "the public context lies where the header looks for it");

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
                      size_t size) {
    UNCANCELLED;
    struct ibv_port_attr own;
    int rc = soft_query_port(ctx, port, &own);
    if (rc != 0)
        return rc;
    memset(attr, 0, size);
    memcpy(attr, &own, size < sizeof own ? size : sizeof own);
    return 0;
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size) {
    UNCANCELLED;
    if ((input && input->comp_mask) || size < sizeof attr->orig_attr)
        return EINVAL;
    /* Features that are zero here are not supported: paging on demand, device memory, moderation, offloads. */
    struct ibv_device_attr_ex own = {.completion_timestamp_mask = UINT64_MAX,
                                     .hca_core_clock = CLOCK_KHZ,
                                     .phys_port_cnt_ex = 1};
    int rc = soft_query_device(ctx, &own.orig_attr);
    if (rc != 0)
        return rc;
    own.device_cap_flags_ex = (uint64_t)own.orig_attr.device_cap_flags;
    memset(attr, 0, size);
    memcpy(attr, &own, size < sizeof own ? size : sizeof own);
    return 0;
}

static int query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values) {
    uint32_t asked = values->comp_mask;
    values->comp_mask = 0;
    if (soft_removed(ctx))
        return EIO;
    if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
        clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
        values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    }
    return 0;
}

/* Completions are signalled as they come; asking for just that is all that can be asked for. */
static int modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr) {
    if (soft_stale(soft_cq_of(cq)))
        return EPERM;
    if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
        return EINVAL;
    if (attr->attr_mask && attr->moderate.cq_count > 1)
        return EOPNOTSUPP;
    return 0;
}

struct ibv_srq *soft_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr) {
    UNCANCELLED;
    const uint32_t known = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    if ((attr->comp_mask & ~known) ||
        ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)) {
        errno = EOPNOTSUPP;
        return NULL;
    }
    if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd || attr->pd->context != ctx) {
        errno = EINVAL;
        return NULL;
    }
    struct ibv_srq_init_attr plain = {.srq_context = attr->srq_context, .attr = attr->attr};
    struct ibv_srq *srq = soft_create_srq(attr->pd, &plain);
    if (srq)
        attr->attr = plain.attr;
    return srq;
}

struct soft_context *soft_context_alloc(void) {
    struct extended *all = calloc(1, sizeof *all);
    if (!all)
        return NULL;
    struct verbs_context *slots = (struct verbs_context *)all;
    slots->sz = sizeof *slots;
    slots->query_port = query_port;
    slots->query_device_ex = query_device_ex;
    slots->query_rt_values = query_rt_values;
    slots->create_cq_ex = soft_create_cq_ex;
    slots->modify_cq = modify_cq;
    slots->create_qp_ex = soft_create_qp_ex;
    slots->create_srq_ex = soft_create_srq_ex;
    all->ctx.ibv.abi_compat = __VERBS_ABI_IS_EXTENDED;
    return &all->ctx;
}

void soft_context_free(struct soft_context *ctx) {
    free((char *)ctx - offsetof(struct extended, ctx));
}
