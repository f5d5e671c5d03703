/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * probe.c - an ordinary verbs program: says in one line which kinds of queue pair its device makes, and
 * whether that device is Sluice's. Nothing of Sluice is in it.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

static void try(struct ibv_pd *pd, struct ibv_cq *cq, enum ibv_qp_type type, const char *name) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = type};
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    if (!qp)
        return;
    printf("%s ", name);
    ibv_destroy_qp(qp);
}

int main(void) {
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (!list || count != 1 || strcmp(ibv_get_device_name(list[0]), "sluice_soft0") != 0) {
        fprintf(stderr, "%d devices, not one software device\n", count);
        return 1;
    }
    struct ibv_context *ctx = ibv_open_device(list[0]);
    struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
    struct ibv_cq *cq = pd ? ibv_create_cq(ctx, 1, NULL, NULL, 0) : NULL;
    if (!cq) {
        perror("device");
        return 1;
    }
    try(pd, cq, IBV_QPT_RC, "rc");
    try(pd, cq, IBV_QPT_UC, "uc");
    try(pd, cq, IBV_QPT_UD, "ud");
    printf("\n");
    ibv_destroy_cq(cq);
    ibv_dealloc_pd(pd);
    ibv_close_device(ctx);
    ibv_free_device_list(list);
    return 0;
}
