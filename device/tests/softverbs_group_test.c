/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_group_test.c - multicast: members of one process and of several, attaching and leaving, what
 * happens when a member dies.
 */
#include "support/softverbs_datagram.h"

#include "soft/ipc/peer_internal.h"
#include "soft/object/profile.h"
#include "soft/ud/mcast.h"
#include "soft/ud/mcast_table.h"
#include "soft/ud/ud.h"

#include <sys/syscall.h>
#include <time.h>

enum { GRH = 40 };
#define KNOWN_NS 100000000u /* what an attach waits for processes that do not answer */

static _Atomic bool set_back;

/* The wall clock as it was set; every other one as it is. */
int clock_gettime(clockid_t id, struct timespec *now) {
    int rc = (int)syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME && set_back)
        now->tv_sec -= 3600;
    return rc;
}

static int attach(struct sv_end *e, uint8_t group) {
    union ibv_gid gid = ud_group(group);
    return soft_attach_mcast(e->qp, &gid, 0);
}

static int detach(struct sv_end *e, uint8_t group) {
    union ibv_gid gid = ud_group(group);
    return soft_detach_mcast(e->qp, &gid, 0);
}

TEST(every_member_gets_it_the_sender_too_unless_it_says_no) {
    struct sv_end a, b, c;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    ud_open(&c, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_group_ah(&a, 1);
    must(attach(&a, 1) == 0 && attach(&b, 1) == 0 && attach(&c, 2) == 0);
    must(attach(&b, 1) == 0); /* twice is once */
    must(sv_recv(&a, 1, 0, 64) == 0 && sv_recv(&b, 2, 0, 64) == 0 && sv_recv(&c, 3, 0, 64) == 0);
    ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
    struct ibv_wc wc = sv_poll(b.rcq);
    sv_right(wc, wc.src_qp == a.qp->qp_num && wc.byte_len == GRH + 8);
    union ibv_gid group = ud_group(1);
    assert_memory_equal(&((struct ibv_grh *)(void *)b.buf)->dgid, &group, 16);
    must_data(sv_poll(a.rcq).wr_id == 1);
    soft_block_self_mcast(a.qp);
    must(sv_recv(&a, 4, 0, 64) == 0 && sv_recv(&b, 5, 0, 64) == 0);
    ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
    must_data(sv_poll(b.rcq).wr_id == 5);
    sv_stays_empty(a.rcq, c.rcq);
    must(detach(&a, 1) == 0 && detach(&b, 1) == 0 && detach(&c, 2) == 0);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
    sv_close(&c);
}

TEST(who_has_left_or_has_another_qkey_gets_nothing) {
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_group_ah(&a, 3);
    ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8); /* nobody there at all */
    assert_int_equal(ud_drops(&a, SOFT_DROP_NOBODY), 1);
    must(attach(&b, 3) == 0 && sv_recv(&b, 1, 0, 64) == 0);
    struct ibv_sge sge = sv_sge(&a, 0, 8);
    struct ibv_send_wr wr = ud_wr(ah, SOFT_UD_MULTICAST_QPN, &sge, 0);
    wr.wr.ud.remote_qkey = 1;
    must(ud_post(&a, &wr) == 0 && sv_poll(a.scq).status == IBV_WC_SUCCESS);
    sv_until(ud_dropped(&b, SOFT_DROP_QKEY, 1));
    must(detach(&b, 3) == 0);
    ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
    sv_stays_empty(b.rcq, a.rcq);
    assert_int_equal(detach(&b, 3), EINVAL);
    must(soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

TEST(what_attaching_refuses) {
    struct sv_end a, rc;
    ud_open(&a, UD_OPTIONS(0));
    sv_open(&rc, SV_OPTIONS(0));
    assert_int_equal(attach(&rc, 1), EINVAL);
    union ibv_gid plain = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1}};
    assert_int_equal(soft_attach_mcast(a.qp, &plain, 0), EINVAL);
    for (uint8_t i = 0; i < SOFT_UD_GROUPS; i++)
        assert_int_equal(attach(&a, i), 0);
    assert_int_equal(attach(&a, 200), ENOMEM);
    assert_int_equal(soft_destroy_qp(a.qp), EBUSY);
    for (uint8_t i = 0; i < SOFT_UD_GROUPS; i++)
        assert_int_equal(detach(&a, i), 0);
    sv_unpair(&a, &rc);
}

/* ---- several processes ------------------------------------------------------------------------------ */

enum { CHILDREN = 3, ROUNDS = 40 };

/* Two members each; says what arrived. */
static void member(int fd) {
    struct sv_end one, two;
    ud_open(&one, UD_OPTIONS(0));
    ud_open(&two, UD_OPTIONS(0));
    for (unsigned i = 0; i < ROUNDS + 1; i++)
        must(sv_recv(&one, i, 0, 64) == 0 && sv_recv(&two, i, 0, 64) == 0);
    must(attach(&one, 9) == 0 && attach(&two, 9) == 0);
    sv_tell(fd, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        must_data(sv_poll(one.rcq).wr_id == i && sv_poll(two.rcq).wr_id == i);
        sv_tell(fd, i);
    }
    (void)sv_hear(fd);
    must(detach(&one, 9) == 0 && detach(&two, 9) == 0);
    sv_unpair(&one, &two);
}

TEST(members_in_several_processes_all_get_it) {
    struct sv_child child[CHILDREN];
    struct sv_end a, own;
    for (unsigned i = 0; i < CHILDREN; i++)
        child[i] = sv_fork(member);
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&own, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_group_ah(&a, 9);
    must(attach(&own, 9) == 0);
    for (unsigned i = 0; i < CHILDREN; i++)
        (void)sv_hear(child[i].fd); /* attached: from here on nothing may be missing */
    for (unsigned i = 0; i < ROUNDS; i++) {
        must(sv_recv(&own, i, 0, 64) == 0);
        ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
        must_data(sv_poll(own.rcq).wr_id == i);
        for (unsigned k = 0; k < CHILDREN; k++)
            must(sv_hear(child[k].fd) == i);
    }
    for (unsigned i = 0; i < CHILDREN; i++) {
        sv_tell(child[i].fd, 1);
        assert_int_equal(sv_join(&child[i]), 0);
    }
    must(detach(&own, 9) == 0 && soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &own);
}

TEST(who_only_sends_learns_of_members_that_were_there_before) {
    struct sv_child child = sv_fork(member);
    struct sv_end a;
    (void)sv_hear(child.fd);
    ud_open(&a, UD_OPTIONS(0)); /* this process has nothing to do with groups yet */
    struct ibv_ah *ah = ud_group_ah(&a, 9);
    for (unsigned i = 0; i < ROUNDS; i++) {
        ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
        must(sv_hear(child.fd) == i);
    }
    sv_tell(child.fd, 1);
    assert_int_equal(sv_join(&child), 0);
    must(soft_destroy_ah(ah) == 0);
    sv_close(&a);
}

TEST(a_killed_member_is_forgotten) {
    struct sv_child child = sv_fork(member);
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    struct ibv_ah *ah = ud_group_ah(&a, 9);
    must(attach(&b, 9) == 0);
    (void)sv_hear(child.fd);
    must(sv_recv(&b, 1, 0, 64) == 0);
    ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
    must(sv_poll(b.rcq).wr_id == 1 && sv_hear(child.fd) == 0);
    must(kill(child.pid, SIGKILL) == 0);
    must(sv_join(&child) == SIGKILL);
    for (unsigned i = 0; i < 100; i++) {
        must(sv_recv(&b, i, 0, 64) == 0);
        ud_send(&a, ah, SOFT_UD_MULTICAST_QPN, 0, 8);
        must_data(sv_poll(b.rcq).wr_id == i);
    }
    must(detach(&b, 9) == 0 && soft_destroy_ah(ah) == 0);
    sv_unpair(&a, &b);
}

TEST(a_clock_that_is_set_back_ends_no_wait_for_members) {
    struct sv_child child = sv_fork(member);
    struct sv_end a, b;
    ud_open(&a, UD_OPTIONS(0));
    ud_open(&b, UD_OPTIONS(0));
    must(attach(&a, 9) == 0);
    (void)sv_hear(child.fd);
    int status; /* it stops a little later than it is told to */
    must(kill(child.pid, SIGSTOP) == 0);
    must(waitpid(child.pid, &status, WUNTRACED) == child.pid && WIFSTOPPED(status));
    set_back = true;
    uint64_t since = soft_now_ns();
    must(attach(&b, 9) == 0);
    must(soft_now_ns() - since >= KNOWN_NS);
    set_back = false;
    must(kill(child.pid, SIGKILL) == 0 && sv_join(&child) == SIGKILL);
    must(detach(&a, 9) == 0 && detach(&b, 9) == 0);
    sv_unpair(&a, &b);
}

/* ---- strangers -------------------------------------------------------------------------------------- */

enum { STRANGERS = 64, EACH = 16 }; /* processes, and groups that one of them may make known */

static struct soft_peer strangers[STRANGERS], ours = {.own = true};

static union ibv_gid group_number(unsigned n) {
    return (union ibv_gid){.raw = {0xff, 0x12, [14] = (uint8_t)(n >> 8), [15] = (uint8_t)n}};
}

/* As if it came from there: in a process that has to do with groups. */
static void hear(struct soft_peer *peer, uint32_t type, unsigned group, uint32_t qpn) {
    struct {
        union ibv_gid gid;
        uint32_t qpn, number;
    } msg = {group_number(group), qpn, 1};
    soft_lock();
    soft_mcast_on_message(peer, type, &msg, sizeof msg);
    soft_unlock();
}

static bool has_member(unsigned group, uint32_t qpn) {
    uint32_t members[SOFT_UD_MEMBERS];
    union ibv_gid gid = group_number(group);
    unsigned n = soft_mcast_members(&gid, members);
    for (unsigned i = 0; i < n; i++)
        if (members[i] == qpn)
            return true;
    return false;
}

static void forget(void) {
    soft_lock();
    for (unsigned i = 0; i < STRANGERS; i++)
        soft_mcast_on_peer_gone(&strangers[i]);
    soft_mcast_on_peer_gone(&ours);
    soft_unlock();
}

TEST(other_users_leave_room_for_groups_of_ours) {
    struct sv_end a;
    ud_open(&a, UD_OPTIONS(0));
    for (unsigned i = 0; i < STRANGERS * EACH; i++)
        hear(&strangers[i / EACH], SOFT_MSG_GROUP_JOIN, i, 1000 + i);
    hear(&ours, SOFT_MSG_GROUP_JOIN, 5000, 77);
    must(has_member(0, 1000) && has_member(5000, 77));
    forget();
    sv_close(&a);
}

TEST(nor_do_they_fill_a_group) {
    struct sv_end a;
    ud_open(&a, UD_OPTIONS(0));
    for (unsigned i = 0; i < 2 * SOFT_UD_MEMBERS; i++)
        hear(&strangers[i % STRANGERS], SOFT_MSG_GROUP_JOIN, 9, 1000 + i);
    hear(&ours, SOFT_MSG_GROUP_JOIN, 9, 77);
    must(has_member(9, 1000) && has_member(9, 77));
    forget();
    sv_close(&a);
}

/* Who speaks of another one's QP first could take it out again. */
TEST(nor_do_they_take_a_member_out_that_is_not_theirs) {
    struct sv_end a;
    ud_open(&a, UD_OPTIONS(0));
    union ibv_gid gid = group_number(9);
    hear(&strangers[0], SOFT_MSG_GROUP_JOIN, 9, 77);
    hear(&strangers[0], SOFT_MSG_GROUP_JOIN, 9, a.qp->qp_num);
    hear(&ours, SOFT_MSG_GROUP_JOIN, 9, 77);
    must(soft_attach_mcast(a.qp, &gid, 0) == 0);
    hear(&strangers[0], SOFT_MSG_GROUP_LEAVE, 9, 77);
    hear(&strangers[0], SOFT_MSG_GROUP_LEAVE, 9, a.qp->qp_num);
    must(has_member(9, 77) && has_member(9, a.qp->qp_num));
    must(soft_detach_mcast(a.qp, &gid, 0) == 0);
    must(!has_member(9, a.qp->qp_num));
    forget();
    sv_close(&a);
}

int main(void) {
    ud_run = (uint32_t)getpid();
    return tests_run(NULL, NULL);
}
