/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_offer_test.c - rings offered to a queue pair that is not connected yet: who guesses its number
 * cannot put aside what its true peer has offered, and cannot make it keep much.
 */
#include "support/softverbs_hostile.h"

#include "soft/rc/pending_ring.h"

static unsigned offers_of(struct sv_end *e) {
    const struct soft_pending_ring *offer;
    unsigned count = 0;
    soft_lock();
    cds_list_for_each_entry(offer, &soft_qp_of(e->qp)->pending_rings, link)
        count++;
    soft_unlock();
    return count;
}

/* Offers a ring in another queue pair's name, as often as it likes, over connections of its own. */
static void stranger(int fd) {
    struct {
        uint32_t type, bytes, from_qpn, to_qpn, recv_cq, send_cq, pd, zero;
    } link = {SOFT_MSG_LINK, 24, 0, 0, 0, 0, 1, 0};
    link.to_qpn = sv_hear(fd);
    link.from_qpn = sv_hear(fd);
    int shm_page = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC),
        socks[3];
    for (unsigned i = 0; i < 3; i++) {
        int ring = hostile_shm_file(true, SOFT_RING_BYTES, SOFT_RING_MAGIC);
        const uint32_t fixed[4] = {SOFT_RING_MAGIC, SOFT_RING_SLOTS, link.from_qpn, link.to_qpn};
        must(pwrite(ring, fixed, sizeof fixed, 0) == sizeof fixed);
        socks[i] = hostile_greet(link.to_qpn, &hostile_hello, shm_page);
        hostile_say(socks[i], &link, sizeof link, &ring, 1);
        close(ring);
    }
    (void)sv_hear(fd); /* holds its connections until it is told */
    for (unsigned i = 0; i < 3; i++)
        close(socks[i]);
    close(shm_page);
}

TEST(a_stranger_cannot_put_the_true_offer_aside) {
    enum { STRANGERS = 3 };
    struct sv_end waits, peer;
    struct sv_child children[STRANGERS];
    for (unsigned i = 0; i < STRANGERS; i++) /* before there are threads */
        children[i] = sv_fork(stranger);
    sv_open(&waits, SV_OPTIONS(.one_cq = true));
    sv_open(&peer, SV_OPTIONS(.one_cq = true));
    must(sv_to_init(&waits) == 0);
    sv_connect(&peer, waits.qp->qp_num);
    sv_until(offers_of(&waits) == 1);
    for (unsigned i = 0; i < STRANGERS; i++) {
        sv_tell(children[i].fd, waits.qp->qp_num);
        sv_tell(children[i].fd, peer.qp->qp_num);
    }
    sv_until(offers_of(&waits) == 1 + STRANGERS); /* one of each process */
    must(sv_to_rtr(&waits, peer.qp->qp_num) == 0);
    must(sv_to_rts(&waits) == 0);
    assert_in_range(offers_of(&waits), 0,
                    STRANGERS); /* the peer's is taken; theirs may come again */
    must(sv_recv(&peer, 1, 0, 64) == 0);
    must(sv_send(&waits, 2, 0, 64, IBV_SEND_SIGNALED) == 0);
    assert_int_equal(sv_poll(peer.rcq).status, IBV_WC_SUCCESS);
    assert_int_equal(sv_poll(waits.scq).status, IBV_WC_SUCCESS);
    for (unsigned i = 0; i < STRANGERS; i++) {
        sv_tell(children[i].fd, 0);
        assert_int_equal(sv_join(&children[i]), 0);
    }
    sv_unpair(&waits, &peer);
}

TEST(a_queue_pair_keeps_few_offers_and_forgets_them_with_itself) {
    struct sv_end waits;
    sv_open(&waits, SV_OPTIONS(.one_cq = true));
    must(sv_to_init(&waits) == 0);
    struct soft_qp *qp = soft_qp_of(waits.qp);
    static struct soft_peer peers[40];
    memset(peers, 0, sizeof peers);
    soft_lock();
    for (unsigned i = 0; i < 40; i++) {
        void *ring = mmap(NULL, SOFT_RING_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        must(ring != MAP_FAILED);
        peers[i].pid = (pid_t)(100000 + i);
        peers[i].uid = i < 4 || i % 2 ? geteuid() : geteuid() + 1;
        peers[i].own = peers[i].uid == geteuid();
        atomic_init(&peers[i].refs, 1000);
        const struct soft_pending_ring offer = {
            .ring = ring, .peer = soft_peer_hold(&peers[i]), .qpn = i};
        must(soft_pending_ring_keep(qp, &offer));
    }
    unsigned count = 0, foreign = 0;
    const struct soft_pending_ring *one;
    cds_list_for_each_entry(one, &qp->pending_rings, link) {
        count++;
        foreign += one->peer->uid != geteuid();
    }
    soft_unlock();
    assert_int_equal(count, 8);
    assert_true(foreign <= 1); /* they went first */
    must(sv_to(&waits, IBV_QPS_RESET) == 0);
    assert_int_equal(offers_of(&waits), 8); /* its peer may be in their next connection already */
    sv_take_down(&waits, SV_DESTROYED);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(atomic_load(&peers[i].refs), 1000); /* whoever held them let go */
    sv_close(&waits);
}
