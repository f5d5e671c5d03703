/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * bystander.h - two ends on the software device that are connected with each other and have nothing to do with
 * what else goes on: whatever that is, they stay as they are.
 */
#ifndef TESTS_FUZZ_BYSTANDER_H
#define TESTS_FUZZ_BYSTANDER_H

#include "endpoint.h"

struct soft_ring;

struct bystander {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id[2];
    struct soft_ring *tx[2], *rx[2];
};

void bystander_open(struct bystander *b, struct ibv_pd *pd, struct ibv_cq *cq);
uint64_t bystander_number(const struct bystander *b, int end); /* of its id, as messages have it */
void bystander_prove(const struct bystander *b);

#endif
