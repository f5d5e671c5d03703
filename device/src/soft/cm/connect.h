/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* connect.h - the active side's way to a connection. Control lock not held. */
#ifndef SOFT_CM_CONNECT_H
#define SOFT_CM_CONNECT_H

struct soft_cm_id;

/* The active side's last step: confirms the reply. 0, or -1 and errno. */
int soft_cm_qp_establish(struct soft_cm_id *id);

#endif
