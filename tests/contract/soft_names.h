/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft_names.h - the public names, bound to the software device. What the headers do inline
 * (posting, polling, arming, memory windows) goes through the context and needs nothing here.
 */
#ifndef CONTRACT_SOFT_NAMES_H
#define CONTRACT_SOFT_NAMES_H

#include "soft/soft.h"

/* Calls behind the device's table that its header does not list. */
int soft_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int soft_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#define ibv_get_device_list soft_get_device_list
#define ibv_free_device_list soft_free_device_list
#define ibv_get_device_name soft_get_device_name
#define ibv_open_device soft_open_device
#define ibv_close_device soft_close_device
#define ibv_query_device soft_query_device
#define ibv_query_port soft_query_port
#define ibv_query_gid soft_query_gid
#define ibv_get_async_event soft_get_async_event
#define ibv_ack_async_event soft_ack_async_event
#define ibv_alloc_pd soft_alloc_pd
#define ibv_dealloc_pd soft_dealloc_pd
#define ibv_reg_mr soft_reg_mr
#define ibv_dereg_mr soft_dereg_mr
#define ibv_create_comp_channel soft_create_comp_channel
#define ibv_destroy_comp_channel soft_destroy_comp_channel
#define ibv_create_cq soft_create_cq
#define ibv_destroy_cq soft_destroy_cq
#define ibv_get_cq_event soft_get_cq_event
#define ibv_ack_cq_events soft_ack_cq_events
#define ibv_attach_mcast soft_attach_mcast
#define ibv_detach_mcast soft_detach_mcast
#define ibv_create_srq soft_create_srq
#define ibv_destroy_srq soft_destroy_srq
#define ibv_modify_srq soft_modify_srq
#define ibv_query_srq soft_query_srq
#define ibv_create_qp soft_create_qp
#define ibv_modify_qp soft_modify_qp
#define ibv_query_qp soft_query_qp
#define ibv_destroy_qp soft_destroy_qp

#define rdma_create_event_channel soft_create_event_channel
#define rdma_destroy_event_channel soft_destroy_event_channel
#define rdma_create_id soft_create_id
#define rdma_destroy_id soft_destroy_id
#define rdma_bind_addr soft_bind_addr
#define rdma_resolve_addr soft_resolve_addr
#define rdma_resolve_route soft_resolve_route
#define rdma_create_qp soft_cm_create_qp
#define rdma_destroy_qp soft_cm_destroy_qp
#define rdma_create_srq soft_cm_create_srq
#define rdma_destroy_srq soft_cm_destroy_srq
#define rdma_connect soft_connect
#define rdma_listen soft_listen
#define rdma_accept soft_accept
#define rdma_reject soft_reject
#define rdma_reject_ece soft_reject_ece
#define rdma_establish soft_establish
#define rdma_notify soft_notify
#define rdma_disconnect soft_disconnect
#define rdma_init_qp_attr soft_init_qp_attr
#define rdma_get_cm_event soft_get_cm_event
#define rdma_ack_cm_event soft_ack_cm_event
#define rdma_get_src_port soft_get_src_port
#define rdma_get_dst_port soft_get_dst_port
#define rdma_set_option soft_set_option
#define rdma_migrate_id soft_migrate_id
#define rdma_event_str soft_event_str
#define rdma_create_ep soft_create_ep
#define rdma_destroy_ep soft_destroy_ep
#define rdma_get_request soft_get_request
#define rdma_getaddrinfo soft_getaddrinfo
#define rdma_freeaddrinfo soft_freeaddrinfo
#define rdma_join_multicast soft_join_multicast
#define rdma_leave_multicast soft_leave_multicast
#define rdma_get_devices soft_get_devices
#define rdma_free_devices soft_free_devices
#define rdma_set_local_ece soft_set_local_ece
#define rdma_get_remote_ece soft_get_remote_ece

#endif
