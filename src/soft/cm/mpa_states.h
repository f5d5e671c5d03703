/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* mpa_states.h - what the calls and the messages of MPA share (mpa.h). Control lock held. */
#ifndef SOFT_CM_MPA_STATES_H
#define SOFT_CM_MPA_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_cm_id;

/* The connection is over; whoever blocks on it looks again. */
void soft_cm_mpa_over(struct soft_cm_id *id);
/* Its queue pair to ERR. */
void soft_cm_mpa_end_qp(const struct soft_cm_id *id);
/* It never came about: queue pair, then event. */
void soft_cm_mpa_failed(struct soft_cm_id *id, int type, int status, const uint8_t *data,
                        size_t len);
/* It was up and ends: DISCONNECTED at once. tell: the peer has yet to hear of it. */
void soft_cm_mpa_down(struct soft_cm_id *id, bool tell);
/* ESTABLISHED, with the peer's depths and, for a dialer, its data. */
void soft_cm_mpa_up(struct soft_cm_id *id, const uint8_t *data, size_t len);
/* TCP did not connect: connect fails with that. */
void soft_cm_mpa_not_connected(struct soft_cm_id *id, int error);
/* Sends the request, and again until it was seen; connect may fail of it. */
void soft_cm_mpa_handshake(struct soft_cm_id *id);
/* TCP is connected: the answer has its time. */
void soft_cm_mpa_await_answer(struct soft_cm_id *id);

#endif
