/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* answer.h - what a message of the peer does to a connection (conn.h). Control lock held. */
#ifndef SOFT_CM_ANSWER_H
#define SOFT_CM_ANSWER_H

#include "soft/cm/wire.h"

struct soft_cm_id;

/* The request that made this passive id arrived once more. */
void soft_cm_conn_on_duplicate(struct soft_cm_id *id);
/* Messages for this id from its peer; already checked for size. */
void soft_cm_conn_on_wait(struct soft_cm_id *id, const struct soft_cm_wire_head *head);
void soft_cm_conn_on_rep(struct soft_cm_id *id, const struct soft_cm_wire_rep *rep);
void soft_cm_conn_on_rtu(struct soft_cm_id *id);
void soft_cm_conn_on_rej(struct soft_cm_id *id, const struct soft_cm_wire_rej *rej);
void soft_cm_conn_on_dreq(struct soft_cm_id *id);
void soft_cm_conn_on_drep(struct soft_cm_id *id);
void soft_cm_conn_on_sidr_rep(struct soft_cm_id *id, const struct soft_cm_wire_sidr_rep *rep);

#endif
