/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qp_states.h - which transitions a queue pair of each type may make, with which attributes.
 */
#ifndef SOFT_VERBS_QP_STATES_H
#define SOFT_VERBS_QP_STATES_H

#include <infiniband/verbs.h>

/* 0, or EINVAL. Pure. */
int soft_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to,
                             int mask);

#endif
