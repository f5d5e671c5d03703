/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft.c - the fabric of the software RDMA device: its entry points behind the table.
 * The only file of the library that names them. Constant data, once it is known which copy of the device is used.
 */
#include <errno.h>

#include "fabric/extended.h"
#include "fabric/fast.h"
#include "fabric/soft.h"
#include "soft/door.h"
#include <sluice/sluice.h>

/* The copy that is used: this library's own, or the drop-in's. */
static const struct soft_calls *device = &soft_calls;

/* Its rdma_cm opens a context for each channel and closes it in time. */
static void mark_nothing(struct fabric_mark *mark, struct ibv_context *ctx) {
    (void)mark, (void)ctx;
}

static void detach_nothing(const struct fabric_mark *mark) {
    (void)mark;
}

static const char *get_profile(void) {
    return device->profile_name();
}

/* One that is like another device is judged like that device. */
static void get_traits(const struct ibv_device *dev, const struct ibv_device_attr *attr,
                       struct fabric_traits *traits) {
    if (attr->vendor_part_id != SOFT_PART_PLAIN)
        fabric_traits_of(dev->transport_type, attr, traits);
    else
        *traits = (struct fabric_traits){
            .drains_shared = true, .exact_windows = true, .shares = true, .rejects_accepted = true};
    /* Whatever it is like, it is made of memory and sockets. */
    traits->unpinned = traits->anywhere = traits->files_per_peer = traits->keeps_to_host = true;
    traits->takes_mapped = traits->rtu_stays_lost = true;
}

static unsigned transport_of(struct ibv_qp *qp) {
    return device->over_tcp(qp) ? SLUICE_TRANSPORT_TCP : SLUICE_TRANSPORT_SHARED_MEMORY;
}

static unsigned peer_lacks(struct ibv_qp *qp) {
    return device->peer_is_plain(qp)
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
    return get_profile() ? extended_post_framed_of(attr) : device->post_framed;
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
    struct ibv_cq *cq = device->create_cq(ctx, cqe, cq_context, channel, comp_vector);
    if (cq)
        device->cq_any_order(cq);
    return cq;
}

/* ---- its tables ------------------------------------------------------------------------------------ */

/* What no NIC has, as far as it is the device's as it is. */
#define FAST_AS_IT_IS(X)                                                                           \
    X(srq_newest_first), X(share), X(fetch), X(post_words), X(sleep_begin), X(sleep_end),          \
        X(sleep_unfinished), X(peer_number)

#define OF_THE_DEVICE(name) .name = soft_##name
static const struct fabric_fast fast = {
    .get_profile = get_profile,
    .still_access = SOFT_ACCESS_STILL,
    .transport = transport_of,
    .peer_lacks = peer_lacks,
    .other_hosts = soft_cm_net_text,
    .set_net = soft_cm_set_net,
    .reach = soft_cm_reach,
    FAST_AS_IT_IS(OF_THE_DEVICE),
};

/* Calls that are the device's as they are. */
#define AS_THEY_ARE(X)                                                                             \
    X(get_device_list), X(free_device_list), X(get_device_name), X(open_device), X(close_device),  \
        X(query_device), X(query_port), X(query_gid), X(get_async_event), X(ack_async_event),      \
        X(alloc_pd), X(dealloc_pd), X(reg_mr), X(dereg_mr), X(create_comp_channel),                \
        X(destroy_comp_channel), X(destroy_cq), X(get_cq_event), X(ack_cq_events), X(create_srq),  \
        X(modify_srq), X(query_srq), X(destroy_srq), X(create_qp), X(modify_qp), X(query_qp),      \
        X(destroy_qp), X(create_event_channel), X(destroy_event_channel), X(create_id),            \
        X(destroy_id), X(bind_addr), X(resolve_addr), X(resolve_route), X(connect), X(listen),     \
        X(accept), X(reject), X(establish), X(notify), X(disconnect), X(init_qp_attr),             \
        X(get_cm_event), X(ack_cm_event), X(get_src_port), X(set_option), X(write_cm_event),       \
        X(resolve_addrinfo), X(query_addrinfo), X(mem_alloc), X(mem_free), X(mem_alloc_huge)

const struct fabric_ops fabric_soft = {
    .name = "soft",
    .fast = &fast,
    .free_addrinfo = soft_freeaddrinfo,
    .get_traits = get_traits,
    .create_cq = create_cq,
    .get_post_framed = get_post_framed,
    .framed_most = framed_most,
    .create_extended_qp = create_extended_qp,
    .cm_mark = mark_nothing,
    .cm_detach = detach_nothing,
    .affinity_cpus = near_nothing,
    AS_THEY_ARE(OF_THE_DEVICE),
};

/* ---- the drop-in's copy ---------------------------------------------------------------------------- */

static struct fabric_fast dropin_fast;
static struct fabric_ops dropin_ops;

const struct fabric_ops *fabric_soft_of_dropin(const struct soft_calls *calls) {
    device = calls;
    dropin_fast = fast;
#define FAST_OF_THE_DROPIN(name) dropin_fast.name = device->name
    FAST_AS_IT_IS(FAST_OF_THE_DROPIN);
    dropin_fast.other_hosts = device->cm_net_text;
    dropin_fast.set_net = device->cm_set_net;
    dropin_fast.reach = device->cm_reach;
    dropin_ops = fabric_soft;
#define OF_THE_DROPIN(name) dropin_ops.name = device->name
    AS_THEY_ARE(OF_THE_DROPIN);
    dropin_ops.free_addrinfo = device->freeaddrinfo;
    dropin_ops.fast = &dropin_fast;
    return &dropin_ops;
}
