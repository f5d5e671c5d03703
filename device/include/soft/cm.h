/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm.h - the software device's librdmacm: one call for each of that library's, with its signature, its errno
 * conventions and what it says of threads (see the man page of that name). And how other hosts are reached.
 */
#ifndef SOFT_CM_H
#define SOFT_CM_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>

/* Visible between the objects of the drop-in (device/dropin/); libsluice's map hides them again. */
#pragma GCC visibility push(default)

struct rdma_event_channel *soft_create_event_channel(void);
void soft_destroy_event_channel(struct rdma_event_channel *channel);
int soft_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space ps);
int soft_create_id2(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                    enum rdma_port_space ps, enum ibv_qp_type type);
int soft_destroy_id(struct rdma_cm_id *id);
int soft_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr);
int soft_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms);
int soft_resolve_route(struct rdma_cm_id *id, int ms);
int soft_cm_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
void soft_cm_destroy_qp(struct rdma_cm_id *id);
int soft_cm_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
void soft_cm_destroy_srq(struct rdma_cm_id *id);
int soft_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
int soft_listen(struct rdma_cm_id *id, int backlog);
int soft_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int soft_reject(struct rdma_cm_id *id, const void *data, uint8_t len);
int soft_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t len);
int soft_establish(struct rdma_cm_id *id);
int soft_notify(struct rdma_cm_id *id, enum ibv_event_type event);
int soft_disconnect(struct rdma_cm_id *id);
int soft_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
int soft_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
int soft_ack_cm_event(struct rdma_cm_event *event);
uint16_t soft_get_src_port(struct rdma_cm_id *id);
uint16_t soft_get_dst_port(struct rdma_cm_id *id);
int soft_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len);
int soft_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                        uint64_t arg);
int soft_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel);
const char *soft_event_str(enum rdma_cm_event_type event);
int soft_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res, struct ibv_pd *pd,
                   struct ibv_qp_init_attr *attr);
void soft_destroy_ep(struct rdma_cm_id *id);
int soft_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id);
int soft_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints,
                     struct rdma_addrinfo **res);
void soft_freeaddrinfo(struct rdma_addrinfo *res);
int soft_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                          const struct rdma_addrinfo *hints);
int soft_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int soft_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context);
int soft_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
                           void *context);
int soft_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr);
struct ibv_context **soft_get_devices(int *count);
void soft_free_devices(struct ibv_context **list);
int soft_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int soft_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int soft_cm_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr);
int soft_cm_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);

/*
 * The context that rdma_cm shows as id->verbs: opened on first use, shared by all ids, closed
 * with the last. Behind a removal of the device there is another one. Control lock not held. NULL and errno.
 */
struct ibv_context *soft_cm_context_get(void);
void soft_cm_context_put(struct ibv_context *ctx);
struct ibv_pd *soft_cm_pd(struct ibv_context *ctx); /* the default PD of that context (id->pd) */

/* ---- calls of this device alone -------------------------------------------------------------------- */

/*
 * soft_cm_net_text(): how other hosts are reached, in a line; DEFAULT: as SLUICE_SOFT_NET
 * says. soft_cm_set_net(): ids made on that channel from now on use that way. EINVAL: the value is none of these.
 */
enum soft_cm_net { SOFT_CM_NET_DEFAULT, SOFT_CM_NET_OFF, SOFT_CM_NET_ON, SOFT_CM_NET_REQUIRE };
const char *soft_cm_net_text(unsigned net);
int soft_cm_set_net(struct rdma_event_channel *channel, unsigned net);
/* As soft_resolve_route(). 1: over TCP, and ROUTE_RESOLVED comes when TCP is connected, of which no listener hears. */
int soft_cm_reach(struct rdma_cm_id *id, int timeout_ms);

#pragma GCC visibility pop

#endif
