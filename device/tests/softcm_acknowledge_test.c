/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * What a poller took is acknowledged before its peer hears that the connection ends: a peer that gives
 * its queue pair up then does not see sends flushed that were received.
 */
#include "support/softcm.h"
#include "support/softverbs.h"

/* Two queue pairs that are not on the ids, one message taken by one poll and not looked at again. */
struct ends {
    struct ct_pair pair;
    struct sv_end sender, receiver;
};

static void up(struct ends *e) {
    ct_pair_listen(&e->pair);
    sv_pair(&e->sender, SV_OPTIONS(.one_cq = true), &e->receiver, SV_OPTIONS(.one_cq = true));
    sv_wait_linked(&e->sender);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.qp_num = e->sender.qp->qp_num;
    e->pair.active = ct_id(e->pair.active_channel);
    ct_resolve(e->pair.active, e->pair.port);
    assert_int_equal(soft_connect(e->pair.active, &param), 0);
    e->pair.passive = ct_request(e->pair.passive_channel);
    param.qp_num = e->receiver.qp->qp_num;
    assert_int_equal(soft_accept(e->pair.passive, &param), 0);
    ct_confirm(e->pair.active, e->pair.passive_channel);
    assert_int_equal(sv_recv(&e->receiver, 1, 0, 64), 0);
    assert_int_equal(sv_send(&e->sender, 2, 64, 64, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_poll(e->receiver.rcq).status, IBV_WC_SUCCESS);
}

static void told_at_once_and_taken_as_received(struct ends *e) {
    struct ibv_wc wc;
    assert_int_equal(ct_take(e->pair.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(sv_to(&e->sender, IBV_QPS_ERR), 0);
    assert_int_equal(ibv_poll_cq(e->sender.scq, 1, &wc), 1);
    must_data_equal(wc.wr_id, 2);
    assert_int_equal(wc.status, IBV_WC_SUCCESS);
    ct_pair_free(&e->pair);
    sv_unpair(&e->sender, &e->receiver);
}

TEST(what_was_taken_is_acknowledged_before_a_disconnect) {
    struct ends e;
    up(&e);
    assert_int_equal(soft_disconnect(e.pair.passive), 0);
    told_at_once_and_taken_as_received(&e);
}

TEST(what_was_taken_is_acknowledged_before_the_id_goes) {
    struct ends e;
    up(&e);
    assert_int_equal(soft_destroy_id(e.pair.passive), 0);
    e.pair.passive = NULL;
    told_at_once_and_taken_as_received(&e);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
