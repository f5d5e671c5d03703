/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft.c - the fabric of the software RDMA device: its entry points behind the table.
 * The only file outside src/soft that names them. Constant data.
 */
#include "soft/object/profile.h"
#include "soft/soft.h"

#include <errno.h>

#include "fabric/extended.h"
#include "fabric/fabric.h"
#include <sluice/sluice.h>

/* Its rdma_cm opens a context for each channel and closes it in time. */
static void mark_nothing(struct fabric_mark *mark, struct ibv_context *ctx) {
    (void)mark, (void)ctx;
}

static void detach_nothing(const struct fabric_mark *mark) {
    (void)mark;
}

static const char *get_profile(void) {
    return soft_profile()->name;
}

/* One that is like another device is judged like that device. */
static void get_traits(const struct ibv_device *dev, const struct ibv_device_attr *attr,
                       struct fabric_traits *traits) {
    if (attr->vendor_part_id != SOFT_PART_PLAIN) {
        fabric_traits_of(dev->transport_type, attr, traits);
        return;
    }
    *traits = (struct fabric_traits){.drains_shared = true, .exact_windows = true, .shares = true};
}

static unsigned transport_of(struct ibv_qp *qp) {
    return soft_over_tcp(qp) ? SLUICE_TRANSPORT_TCP : SLUICE_TRANSPORT_SHARED_MEMORY;
}

static unsigned peer_lacks(struct ibv_qp *qp) {
    return soft_peer_is_plain(qp)
               ? FABRIC_LACKS_IMMEDIATE | FABRIC_LACKS_ATOMICS | FABRIC_LACKS_ARRIVAL
               : 0;
}

/* It is wherever the threads are that use it. */
static int near_nothing(struct hwloc_topology *topology, struct ibv_device *dev,
                        struct hwloc_bitmap_s *set) {
    (void)topology, (void)dev, (void)set;
    errno = ENODEV;
    return -1;
}

/* A device like another one has what that one has: a call of ours alone is not among it. */
static fabric_post_framed *get_post_framed(const struct ibv_device_attr *attr) {
    return get_profile() ? extended_post_framed_of(attr) : soft_post_framed;
}

/* Ours takes by value whatever it takes, however little an inline work request may have. */
static uint32_t framed_most(bool extended, uint32_t inline_most) {
    if (!get_profile())
        return FABRIC_FRAMED;
    return extended ? extended_framed_most(inline_most) : 0;
}

static struct ibv_qp *create_extended_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    if (get_profile())
        return extended_create_qp(pd, attr);
    errno = EOPNOTSUPP; /* there is a shorter way */
    return NULL;
}

_Static_assert(FABRIC_WORDS == SOFT_WORDS && FABRIC_FRAMED == SOFT_FRAMED &&
                   FABRIC_FRAMED_SIGNALED == SOFT_FRAMED_SIGNALED,
               "the device takes what the fabric promises");

_Static_assert((int)SLUICE_SOFT_NET_DEFAULT == (int)SOFT_CM_NET_DEFAULT &&
                   (int)SLUICE_SOFT_NET_OFF == (int)SOFT_CM_NET_OFF &&
                   (int)SLUICE_SOFT_NET_ON == (int)SOFT_CM_NET_ON &&
                   (int)SLUICE_SOFT_NET_REQUIRE == (int)SOFT_CM_NET_REQUIRE,
               "the device takes what a node's options say");

/* A session takes completions of sends and messages in any order. */
static struct ibv_cq *create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int comp_vector) {
    struct ibv_cq *cq = soft_create_cq(ctx, cqe, cq_context, channel, comp_vector);
    if (cq)
        soft_cq_any_order(cq);
    return cq;
}

const struct fabric_ops fabric_soft = {
    .name = "soft",
    .software = true,
    .get_profile = get_profile,
    .get_traits = get_traits,
    .get_device_list = soft_get_device_list,
    .free_device_list = soft_free_device_list,
    .get_device_name = soft_get_device_name,
    .open_device = soft_open_device,
    .close_device = soft_close_device,
    .query_device = soft_query_device,
    .query_port = soft_query_port,
    .query_gid = soft_query_gid,
    .get_async_event = soft_get_async_event,
    .ack_async_event = soft_ack_async_event,
    .alloc_pd = soft_alloc_pd,
    .dealloc_pd = soft_dealloc_pd,
    .reg_mr = soft_reg_mr,
    .dereg_mr = soft_dereg_mr,
    .create_comp_channel = soft_create_comp_channel,
    .destroy_comp_channel = soft_destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = soft_destroy_cq,
    .get_cq_event = soft_get_cq_event,
    .ack_cq_events = soft_ack_cq_events,
    .create_srq = soft_create_srq,
    .modify_srq = soft_modify_srq,
    .query_srq = soft_query_srq,
    .destroy_srq = soft_destroy_srq,
    .create_qp = soft_create_qp,
    .modify_qp = soft_modify_qp,
    .query_qp = soft_query_qp,
    .destroy_qp = soft_destroy_qp,
    .get_post_framed = get_post_framed,
    .framed_most = framed_most,
    .create_extended_qp = create_extended_qp,
    .srq_newest_first = soft_srq_newest_first,
    .still_access = SOFT_ACCESS_STILL,
    .share = soft_share,
    .fetch = soft_fetch,
    .post_words = soft_post_words,
    .sleep_begin = soft_sleep_begin,
    .sleep_end = soft_sleep_end,
    .sleep_unfinished = soft_sleep_unfinished,
    .create_event_channel = soft_create_event_channel,
    .destroy_event_channel = soft_destroy_event_channel,
    .create_id = soft_create_id,
    .destroy_id = soft_destroy_id,
    .bind_addr = soft_bind_addr,
    .resolve_addr = soft_resolve_addr,
    .resolve_route = soft_resolve_route,
    .connect = soft_connect,
    .listen = soft_listen,
    .accept = soft_accept,
    .reject = soft_reject,
    .establish = soft_establish,
    .notify = soft_notify,
    .disconnect = soft_disconnect,
    .init_qp_attr = soft_init_qp_attr,
    .get_cm_event = soft_get_cm_event,
    .ack_cm_event = soft_ack_cm_event,
    .get_src_port = soft_get_src_port,
    .set_option = soft_set_option,
    .write_cm_event = soft_write_cm_event,
    .resolve_addrinfo = soft_resolve_addrinfo,
    .query_addrinfo = soft_query_addrinfo,
    .free_addrinfo = soft_freeaddrinfo,
    .peer_number = soft_peer_number,
    .transport = transport_of,
    .other_hosts = soft_cm_net_text,
    .set_net = soft_cm_set_net,
    .reach = soft_cm_reach,
    .peer_lacks = peer_lacks,
    .mem_alloc = soft_mem_alloc,
    .mem_free = soft_mem_free,
    .mem_alloc_huge = soft_mem_alloc_huge,
    .cm_mark = mark_nothing,
    .cm_detach = detach_nothing,
    .affinity_cpus = near_nothing,
};
