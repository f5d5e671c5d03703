/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_sync_test.c - synchronous ids and endpoints: what their calls make of wrong events.
 */
#include "support/softcm.h"

TEST(negative_status_becomes_errno) {
    struct rdma_cm_id *id = ct_id(NULL);
    struct sockaddr_in dst = softcm_in("203.0.113.77", 4711);
    assert_fails(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), EREMOTE);
    assert_int_equal(id->event->event, RDMA_CM_EVENT_ADDR_ERROR);
    soft_destroy_id(id);
}

TEST(get_request_errors) {
    struct ct_pair pair;
    struct rdma_cm_id *id;
    ct_pair_listen(&pair);
    assert_fails(soft_get_request(pair.listener, &id), EINVAL); /* asynchronous */
    ct_pair_free(&pair);
    struct rdma_addrinfo *res,
        hints = {.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    assert_int_equal(soft_getaddrinfo("127.0.0.1", "0", &hints, &res), 0);
    struct rdma_cm_id *listener;
    assert_int_equal(soft_create_ep(&listener, res, NULL, NULL), 0);
    soft_freeaddrinfo(res);
    assert_int_equal(soft_listen(listener, 4), 0);
    soft_write_cm_event(listener, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0);
    assert_fails(soft_get_request(listener, &id), EINVAL); /* not a request */
    soft_write_cm_event(listener, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, -EXDEV, 0);
    assert_fails(soft_get_request(listener, &id), EXDEV);
    assert_fails(soft_get_request(listener, NULL), EINVAL);
    soft_destroy_ep(listener);
}

TEST(create_ep_errors) {
    struct rdma_cm_id *id = NULL;
    struct rdma_addrinfo empty = {.ai_port_space = RDMA_PS_TCP, .ai_qp_type = IBV_QPT_RC};
    assert_fails(soft_create_ep(&id, NULL, NULL, NULL), EINVAL);
    assert_fails(soft_create_ep(&id, &empty, NULL, NULL), EINVAL); /* no destination */
    empty.ai_flags = RAI_PASSIVE;
    assert_fails(soft_create_ep(&id, &empty, NULL, NULL), EINVAL); /* no source */
    assert_null(id);
}

TEST(types_of_queue_pairs_that_are_not_here_are_told_from_what_is_none) {
    static const enum ibv_qp_type types[] = {IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND,
                                             IBV_QPT_XRC_RECV, IBV_QPT_DRIVER};
    static const enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB};
    struct rdma_cm_id *id = NULL;
    for (unsigned i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        struct rdma_addrinfo asked = {.ai_port_space = (int)spaces[i]};
        for (unsigned k = 0; k < sizeof types / sizeof *types; k++) {
            asked.ai_qp_type = (int)types[k];
            assert_fails(soft_create_ep(&id, &asked, NULL, NULL), EOPNOTSUPP);
        }
        asked.ai_qp_type = 99;
        assert_fails(soft_create_ep(&id, &asked, NULL, NULL), EINVAL);
    }
    assert_null(id);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
