/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft.h - entry points of the software RDMA device, one for each libibverbs and librdmacm call,
 * with that call's signature and errno conventions (see its man page), and some that no other device has.
 */
#ifndef SOFT_SOFT_H
#define SOFT_SOFT_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_DEVICE_NAME "sluice_soft0"

/* Visible between the objects of the drop-in (dropin/); libsluice's map hides them again. */
#pragma GCC visibility push(default)

/* Messages so far that found no receive posted and had to wait (RNR), in all of this process. */
extern _Atomic uint64_t soft_rnr;

#define SOFT_PART_PLAIN                                                                            \
    1u /* vendor_part_id of the device without a profile; profiles have others */
/* Which other device this one is like (SLUICE_SOFT_PROFILE); NULL: none. */
const char *soft_profile_name(void);

/* verbs: device.c, mr.c, cq.c, qp.c, qp_modify.c, srq.c */
struct ibv_device **soft_get_device_list(int *num);
void soft_free_device_list(struct ibv_device **list);
const char *soft_get_device_name(struct ibv_device *dev);
struct ibv_context *soft_open_device(struct ibv_device *dev);
int soft_close_device(struct ibv_context *ctx);
int soft_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
int soft_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int soft_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
int soft_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event);
void soft_ack_async_event(struct ibv_async_event *event);
struct ibv_pd *soft_alloc_pd(struct ibv_context *ctx);
int soft_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *soft_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
int soft_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *soft_create_comp_channel(struct ibv_context *ctx);
int soft_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *soft_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                              struct ibv_comp_channel *channel, int comp_vector);
/*
 * Ours alone: of this CQ's queue pairs, which are made later, a receive may be seen before the completion of the send that
 * it answers, in the same CQ or another (rc/order.h).
 */
void soft_cq_any_order(struct ibv_cq *cq);
int soft_destroy_cq(struct ibv_cq *cq);
int soft_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void soft_ack_cq_events(struct ibv_cq *cq, unsigned int n);
struct ibv_srq *soft_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int soft_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int soft_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int soft_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *soft_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int soft_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int soft_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                  struct ibv_qp_init_attr *init);
int soft_destroy_qp(struct ibv_qp *qp);
/* Ours alone: this queue gives the receive that was posted last, not the one that waits longest. */
void soft_srq_newest_first(struct ibv_srq *srq);
/*
 * Ours alone, post_framed.c: an inline SEND of a header of 24 bytes, the words given and a 0, and of up to SOFT_FRAMED
 * bytes behind it; signalled with SOFT_FRAMED_SIGNALED in `bytes`. Not 0: nothing happened, ibv_post_send() says why.
 */
#define SOFT_FRAMED 424u
#define SOFT_FRAMED_SIGNALED (1u << 31)
int soft_post_framed(struct ibv_qp *qp, uint64_t word0, uint64_t word1, const uint8_t *from,
                     uint32_t bytes, uint64_t wr_id);
/* Posts up to SOFT_WORDS words and nothing else, between two processes of one host alone. */
#define SOFT_WORDS 14u
int soft_post_words(struct ibv_qp *qp, const uint64_t *words, unsigned count, bool signalled,
                    uint64_t wr_id);
/*
 * Ours alone, an access flag of MRs and of memory windows: the owner leaves the memory as it is while it is sent, or while the
 * window is bound. So it goes to a socket from where it lies. Else it is copied, as it may change between its sum and the socket.
 */
#define SOFT_ACCESS_STILL (1u << 28)
/*
 * Ours alone, rc/fetch.c. soft_share(): how the peer of a QP in RTS finds these bytes of an MR, if it has mapped them.
 * soft_fetch(): the peer copies sge->length of them into memory of its own. 0; EAGAIN: it is not known yet where they lie;
 * ECONNRESET: their sender is down, and what was copied is nothing; EINVAL: the sender shares no such bytes; EFAULT: `to`
 * is no memory that may be written. Both: any thread.
 */
bool soft_share(struct ibv_qp *qp, const struct ibv_mr *mr, const void *addr, uint64_t bytes,
                uint32_t *region, uint64_t *at);
int soft_fetch(struct ibv_qp *qp, uint32_t region, uint64_t at, const struct ibv_sge *to);
/*
 * Ours alone, verbs/cq_sleep.c. soft_sleep_begin(): the calling thread polls this CQ, and is about to arm it and to sleep
 * until something completes. fd: epoll sets that it sleeps on besides, edge-triggered: what comes over a socket, or from a
 * peer of this host, wakes it there and not by the channel. -1 where there is none now; false: there is none at all. They are
 * the device's, and stay the same while the CQ lives. elsewhere: the thread may do something else when they wake it, so that
 * sockets are read by the engine. It may be called again before the thread polls for good. soft_sleep_end(), after true: it
 * does. True: the CQ is not armed any more. soft_sleep_unfinished(): true, once: a poll of this CQ left part of a long message
 * in a socket, or has room for more of one in it. The thread polls again before it sleeps, as no edge tells of that.
 */
bool soft_sleep_begin(struct ibv_cq *cq, bool elsewhere, int fd[2]);
bool soft_sleep_end(struct ibv_cq *cq);
bool soft_sleep_unfinished(struct ibv_cq *cq);
uint64_t soft_peer_number(
    struct ibv_qp *qp); /* its peer's process, or user if that is another one; 0: another host's */
bool soft_over_tcp(struct ibv_qp *qp);
/*
 * Calls of this device alone. soft_cm_net_text(): how other hosts are reached, in a line; DEFAULT: as SLUICE_SOFT_NET
 * says. soft_cm_set_net(): ids made on that channel from now on use that way. EINVAL: the value is none of these.
 */
enum soft_cm_net { SOFT_CM_NET_DEFAULT, SOFT_CM_NET_OFF, SOFT_CM_NET_ON, SOFT_CM_NET_REQUIRE };
const char *soft_cm_net_text(unsigned net);
int soft_cm_set_net(struct rdma_event_channel *channel, unsigned net);
/* As soft_resolve_route(). 1: over TCP, and ROUTE_RESOLVED comes when TCP is connected, of which no listener hears. */
int soft_cm_reach(struct rdma_cm_id *id, int timeout_ms);
/* Over TCP, and not this device: it has iWARP's operations only, neither immediate data nor atomics. */
bool soft_peer_is_plain(struct ibv_qp *qp);
void *soft_mem_alloc(size_t bytes);
void *soft_mem_alloc_huge(size_t bytes, unsigned page_log2); /* of huge pages, or not at all */
void soft_mem_free(void *addr, size_t bytes);

/* Datagrams: ah.c, mcast.c. */
struct ibv_ah *soft_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int soft_destroy_ah(struct ibv_ah *ah);
int soft_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc,
                         struct ibv_grh *grh, struct ibv_ah_attr *attr);
struct ibv_ah *soft_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
                                      uint8_t port);
int soft_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
int soft_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid);
/* IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: what this QP sends to a group does not come back to it. */
void soft_block_self_mcast(struct ibv_qp *qp);

/* rdma_cm: cm/ */
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

/*
 * The context that rdma_cm shows as id->verbs: opened on first use, shared by all ids, closed
 * with the last. Behind a removal of the device there is another one. Control lock not held. NULL and errno.
 */
struct ibv_context *soft_cm_context_get(void);
void soft_cm_context_put(struct ibv_context *ctx);
struct ibv_pd *soft_cm_pd(struct ibv_context *ctx); /* the default PD of that context (id->pd) */

/*
 * Calls that only other programs make: extended contexts, CQs with reader calls, QPs with ibv_wr_*(), and older calls.
 * Signatures and errno conventions are those of the man page of the same name.
 */
__be64 soft_device_guid(void);
struct ibv_mr *soft_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
                                int access);
int soft_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
                  int access);
int soft_resize_cq(struct ibv_cq *cq, int cqe);
struct ibv_cq_ex *soft_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *soft_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp_ex *soft_qp_to_qp_ex(struct ibv_qp *qp);
struct ibv_srq *soft_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
int soft_cm_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr);
int soft_cm_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr);

#pragma GCC visibility pop

#endif
