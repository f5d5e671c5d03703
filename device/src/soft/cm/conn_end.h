/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* conn_end.h - this side ends a connection, or refuses one. Control lock for everything. */
#ifndef SOFT_CM_CONN_END_H
#define SOFT_CM_CONN_END_H

#include <stdint.h>

#include "soft/cm/conn.h"

struct soft_cm_id;

/* The id goes away: tells the peer what the kernel would tell it. */
void soft_cm_conn_kill(struct soft_cm_id *id);
/* Before the peer hears that the connection ends: what was taken from its QP is acknowledged. */
void soft_cm_conn_acknowledge(const struct soft_cm_id *id);
/* Passive side: tells the peer no. */
void soft_cm_conn_reject(struct soft_cm_id *id, enum soft_cm_reject reason, const void *data,
                         uint8_t len);
void soft_cm_conn_sidr_reply(struct soft_cm_id *id, enum soft_cm_sidr status, const void *data,
                             uint8_t len);

#endif
