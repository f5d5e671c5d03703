/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* mpa_answer.h - what a message of the peer does to a connection of a device like iWARP (mpa.h). Control lock held. */
#ifndef SOFT_CM_MPA_ANSWER_H
#define SOFT_CM_MPA_ANSWER_H

#include <stddef.h>
#include <stdint.h>

struct soft_cm_id;
struct soft_cm_wire_head;
struct soft_cm_wire_mpa;
struct ibv_qp_attr;
struct soft_peer;

/* The attributes of the queue pair of a connection that is up. */
void soft_cm_mpa_attr(const struct soft_cm_id *id, struct ibv_qp_attr *attr, int *mask);
/* The peer's process died. */
void soft_cm_mpa_peer_gone(struct soft_cm_id *id);
/* ESTABLISHED, with the peer's depths and, for a dialer, its data. */
void soft_cm_mpa_up(struct soft_cm_id *id, const uint8_t *data, size_t len);

/* Messages for this id from its peer, and a request; already checked for size. */
void soft_cm_mpa_on_req(struct soft_peer *peer, const struct soft_cm_wire_mpa *req);
void soft_cm_mpa_on_seen(struct soft_cm_id *id, const struct soft_cm_wire_head *head);
void soft_cm_mpa_on_rep(struct soft_cm_id *id, const struct soft_cm_wire_mpa *rep);
void soft_cm_mpa_on_rej(struct soft_cm_id *id, const struct soft_cm_wire_mpa *rej);
void soft_cm_mpa_on_fin(struct soft_cm_id *id);

#endif
