/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm.c - librdmacm: its calls under their public names.
 *
 * Signatures and errno conventions are those of the man page of the same name. Any thread.
 */
#include <errno.h>
#include <string.h>

#include "dropin/dropin.h"
#include "soft/soft.h"

/* ---- channels and events ------------------------------------------------------------------------------ */

EXPORT struct rdma_event_channel *rdma_create_event_channel(void) {
    return soft_create_event_channel();
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    soft_destroy_event_channel(channel);
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
    return soft_get_cm_event(channel, event);
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event) {
    return soft_ack_cm_event(event);
}

EXPORT const char *rdma_event_str(enum rdma_cm_event_type event) {
    return soft_event_str(event);
}

int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                        uint64_t arg);
EXPORT int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                               uint64_t arg) {
    return soft_write_cm_event(id, event, status, arg);
}

/* ---- ids ------------------------------------------------------------------------------------------------ */

EXPORT int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                          enum rdma_port_space ps) {
    return soft_create_id(channel, id, context, ps);
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *id) {
    return soft_destroy_id(id);
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    return soft_migrate_id(id, channel);
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr) {
    return soft_bind_addr(id, addr);
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
                             int ms) {
    return soft_resolve_addr(id, src, dst, ms);
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int ms) {
    return soft_resolve_route(id, ms);
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len) {
    return soft_set_option(id, level, name, value, len);
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id) {
    return soft_get_src_port(id);
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id) {
    return soft_get_dst_port(id);
}

/* ---- connections ------------------------------------------------------------------------------------------ */

EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    return soft_connect(id, param);
}

EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog) {
    return soft_listen(id, backlog);
}

EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id) {
    return soft_get_request(listen, id);
}

EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    return soft_accept(id, param);
}

EXPORT int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len) {
    return soft_reject(id, data, len);
}

EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t len) {
    return soft_reject_ece(id, data, len);
}

EXPORT int rdma_establish(struct rdma_cm_id *id) {
    return soft_establish(id);
}

EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event) {
    return soft_notify(id, event);
}

EXPORT int rdma_disconnect(struct rdma_cm_id *id) {
    return soft_disconnect(id);
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    return soft_init_qp_attr(id, attr, mask);
}

EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    return soft_set_local_ece(id, ece);
}

EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece) {
    return soft_get_remote_ece(id, ece);
}

/* ---- objects on an id --------------------------------------------------------------------------------------- */

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    return soft_cm_create_qp(id, pd, attr);
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr) {
    return soft_cm_create_qp_ex(id, attr);
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id) {
    soft_cm_destroy_qp(id);
}

EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
                           struct ibv_srq_init_attr *attr) {
    return soft_cm_create_srq(id, pd, attr);
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr) {
    return soft_cm_create_srq_ex(id, attr);
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *id) {
    soft_cm_destroy_srq(id);
}

EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                          struct ibv_qp_init_attr *attr) {
    return soft_create_ep(id, res, pd, attr);
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *id) {
    soft_destroy_ep(id);
}

/* ---- names, groups, devices ------------------------------------------------------------------------------------ */

EXPORT int rdma_getaddrinfo(const char *node, const char *service,
                            const struct rdma_addrinfo *hints, struct rdma_addrinfo **res) {
    return soft_getaddrinfo(node, service, hints, res);
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res) {
    soft_freeaddrinfo(res);
}

int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                          const struct rdma_addrinfo *hints);
EXPORT int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                                 const struct rdma_addrinfo *hints) {
    return soft_resolve_addrinfo(id, node, service, hints);
}

int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
EXPORT int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info) {
    return soft_query_addrinfo(id, info);
}

EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context) {
    return soft_join_multicast(id, addr, context);
}

EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
                                  void *context) {
    return soft_join_multicast_ex(id, attr, context);
}

EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr) {
    return soft_leave_multicast(id, addr);
}

EXPORT struct ibv_context **rdma_get_devices(int *count) {
    return soft_get_devices(count);
}

EXPORT void rdma_free_devices(struct ibv_context **list) {
    soft_free_devices(list);
}
