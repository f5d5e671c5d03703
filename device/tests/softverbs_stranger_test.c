/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_stranger_test.c - processes that do not read, and processes of another user: what they can take of this
 * one's descriptors and of the host's names is bounded, and whoever belongs to our own user is served meanwhile.
 *
 * It runs in a network namespace of its own where it may: names that are taken away here would be missing elsewhere.
 */
#include "support/child.h"
#include "support/softverbs_hostile.h"
#include "support/usage.h"
#include "support/network.h"
#include "support/skip.h"
#include "support/squatter.h"

#include "soft/ipc/peer.h"
#include "soft/ipc/peer_queue.h"

#include <sys/resource.h>

#define OTHER_UID 65534
#define FILES 1024 /* that this process may have open, as it usually is */
#define OF_PEER 512
#define OF_USER 32

static bool own_namespace;

static void needs_other_users(void) {
    if (own_namespace)
        return;
    skip_with("needs root to be another user, and a network namespace of its own");
}

static uint32_t victim_qpn;

/* ---- who does not read ------------------------------------------------------------------------------ */

static void greets_and_sleeps(int fd) {
    hostile_greet(victim_qpn, &hostile_hello,
                  hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC));
    sv_tell(fd, 1);
    (void)sv_hear(fd); /* until it is killed */
}

/* Control lock. */
static struct soft_peer *peer_of(pid_t pid) {
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        if (peer->pid == pid && peer->greeted)
            return peer;
    }
    return NULL;
}

static bool is_known(pid_t pid) {
    soft_lock();
    bool known = peer_of(pid) != NULL;
    soft_unlock();
    return known;
}

static void begin(struct sv_child *child) {
    hostile_pair_open();
    victim_qpn = hostile_b.qp->qp_num;
    *child = sv_fork(greets_and_sleeps);
    must(sv_hear(child->fd) == 1);
    sv_until(is_known(child->pid));
}

static void end(struct sv_child *child) {
    must(kill(child->pid, SIGKILL) == 0);
    (void)sv_join(child);
    sv_until(!is_known(child->pid));
    hostile_still_serves(1);
    hostile_pair_close();
}

TEST(a_peer_that_does_not_read_is_there_until_the_sender_is_done) {
    struct sv_child child;
    begin(&child);
    soft_lock();
    struct soft_peer *peer = peer_of(child.pid);
    while (soft_peer_send(peer, SOFT_MSG_GROUP_ASK, NULL, 0, -1) == 0)
        ;
    must(peer_of(child.pid) == peer && !soft_peer_usable(peer));
    must(soft_peer_send(peer, SOFT_MSG_GROUP_ASK, NULL, 0, -1) != 0);
    soft_unlock();
    sv_until(!is_known(child.pid)); /* the engine's doing */
    end(&child);
}

/* As when so many connections end at once: the others go on. */
TEST(a_peer_of_many_connections_is_told_of_all_of_them) {
    enum { CONNECTIONS = 10000, REFS = 2, SAID = 3 };
    struct sv_child child;
    begin(&child);
    soft_lock();
    struct soft_peer *peer = peer_of(child.pid);
    for (unsigned i = 0; i < CONNECTIONS * REFS; i++)
        soft_peer_hold(peer);
    for (unsigned i = 0; i < CONNECTIONS * REFS; i++)
        soft_peer_release(peer);
    for (unsigned i = 0; i < CONNECTIONS * SAID; i++)
        must(soft_peer_send(peer, SOFT_MSG_GROUP_ASK, NULL, 0, -1) == 0);
    must(soft_peer_usable(peer));
    soft_unlock();
    end(&child);
}

/* Memory that goes is told to all peers, also to one that this fills up. */
TEST(memory_goes_though_a_peer_does_not_read) {
    struct sv_child child;
    begin(&child);
    void *addr = soft_mem_alloc(4096);
    must(addr);
    soft_lock();
    struct soft_peer *peer = peer_of(child.pid);
    while (peer->out_count < peer->out_room)
        must(soft_peer_send(peer, SOFT_MSG_GROUP_ASK, NULL, 0, -1) == 0);
    soft_unlock();
    soft_mem_free(addr, 4096);
    end(&child);
}

TEST(a_peer_that_does_not_read_holds_few_descriptors) {
    struct sv_child child;
    struct rlimit limit, few = {FILES, FILES};
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    few.rlim_max = limit.rlim_max;
    begin(&child);
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int file = hostile_shm_file(true, 4096, 0), error = 0;
    unsigned fds = hostile_fds();
    soft_lock();
    struct soft_peer *peer = peer_of(child.pid);
    for (unsigned i = 0; i < 4 * FILES; i++) {
        int rc = soft_peer_send(peer, SOFT_MSG_REGION_OK, NULL, 0, file);
        error = rc ? rc : error;
    }
    must(error == -ENOBUFS && !peer->doomed && peer->out_fds == OF_PEER);
    soft_unlock();
    assert_uint_in_range(usage_entries("/proc/self/fd"), fds, fds + OF_PEER);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    end(&child);
    close(file);
}

/* ---- strangers -------------------------------------------------------------------------------------- */

static void calls_without_end(int fd) {
    squatter_become(OTHER_UID);
    for (unsigned i = 0; i < 500; i++)
        (void)hostile_dial(victim_qpn);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
}

TEST(another_user_has_a_share_of_the_connections) {
    needs_other_users();
    struct rlimit limit, few = {FILES, FILES};
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    few.rlim_max = limit.rlim_max;
    hostile_pair_open();
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    unsigned fds = hostile_fds();
    victim_qpn = hostile_b.qp->qp_num;
    struct sv_child child = sv_fork(calls_without_end);
    must(sv_hear(child.fd) == 1);
    int sock = hostile_dial(victim_qpn); /* they are served in order: all of the others were */
    char byte;
    hostile_say(sock, "nonsense", 8, NULL, 0);
    must(recv(sock, &byte, 1, 0) <= 0);
    close(sock);
    assert_uint_in_range(hostile_fds(), fds + 1, fds + 1 + OF_USER + 2);
    hostile_still_serves(1);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    must(kill(child.pid, SIGKILL) == 0);
    (void)sv_join(&child);
    sv_until(hostile_fds() == fds);
    hostile_pair_close();
}

static bool listens =
    true; /* who only binds a name keeps it as well, and nobody can ask him who he is */

static void take_group_name(unsigned number) {
    char text[64];
    snprintf(text, sizeof text, "sluice-soft.%u/g/%u", SOFT_WIRE_VERSION, number);
    (void)squatter_take(text, listens);
}

/* All there are for queue pair numbers, and for who has to do with groups. */
static void takes_all_names(int fd) {
    squatter_become(OTHER_UID);
    squatter_take_blocks(1, listens);
    for (unsigned i = 0; i < 128; i++)
        take_group_name(i);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
}

/* The even blocks, as a user with many processes would have them. */
static void takes_every_other_block(int fd) {
    squatter_become(OTHER_UID);
    squatter_take_blocks(2, listens);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
}

static void tells_its_number(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_tell(fd, e.qp->qp_num);
    sv_close(&e);
}

/* Where two users share a block, neither finds the other one's queue pairs. */
TEST(two_users_share_no_block_of_numbers) {
    needs_other_users();
    if (!squatter_may_take_blocks())
        skip_with("a process may not open 20,000 files");
    struct sv_child stranger = sv_fork(takes_every_other_block);
    must(sv_hear(stranger.fd) == 1);
    for (int i = 0; i < 16; i++) {
        struct sv_child child = sv_fork(tells_its_number);
        assert_int_equal(sv_hear(child.fd) / SOFT_QP_BLOCK % 2, 1);
        must(sv_join(&child) == 0);
    }
    must(kill(stranger.pid, SIGKILL) == 0);
    (void)sv_join(&stranger);
}

static void meets(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_meet(&e, fd);
    must(sv_recv(&e, 1, 0, 64) == 0);
    sv_barrier(fd);
    must(sv_poll(e.rcq).status == IBV_WC_SUCCESS);
    sv_barrier(fd);
    sv_close(&e);
}

static void keeps_nobody_apart(void) {
    needs_other_users();
    if (!squatter_may_take_blocks())
        skip_with("a process may not open 20,000 files");
    struct sv_child stranger = sv_fork(takes_all_names), child;
    must(sv_hear(stranger.fd) == 1);
    child = sv_fork(meets);
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_meet(&e, child.fd);
    sv_barrier(child.fd);
    must(sv_send(&e, 2, 0, 64, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(e.scq).status == IBV_WC_SUCCESS);
    sv_barrier(child.fd);
    must(sv_join(&child) == 0);
    sv_close(&e);
    must(kill(stranger.pid, SIGKILL) == 0);
    (void)sv_join(&stranger);
}

TEST(a_stranger_with_all_names_keeps_nobody_of_ours_apart) {
    keeps_nobody_apart();
}

TEST(nor_does_one_who_does_not_even_listen) {
    listens = false;
    keeps_nobody_apart();
    listens = true;
}

/* Each of them is a process of its own, which is asked when somebody here has to do with groups. */
static void are_many_members(int fd) {
    must(setpgid(0, 0) == 0); /* all of them end together */
    squatter_become(OTHER_UID);
    for (unsigned i = 0; i < 128; i++) {
        if (child_fork() != 0)
            continue;
        take_group_name(i);
        sv_tell(fd, 1);
        pause();
    }
    (void)sv_hear(fd);
}

static void joins_a_group(int fd) {
    struct rlimit few = {FILES, FILES};
    struct sv_end e;
    union ibv_gid gid = {.raw = {0xff, 0x12, [15] = 1}};
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    sv_open(&e, SV_OPTIONS(.type = IBV_QPT_UD));
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    must(soft_modify_qp(e.qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    unsigned before = usage_entries("/proc/self/fd");
    must(soft_attach_mcast(e.qp, &gid, 0) == 0);
    sv_tell(fd, usage_entries("/proc/self/fd") - before);
    must(soft_detach_mcast(e.qp, &gid, 0) == 0);
    sv_close(&e);
}

/* Also of those whom this process calls. */
TEST(strangers_who_are_called_have_the_same_share) {
    needs_other_users();
    struct sv_child strangers = sv_fork(are_many_members);
    for (unsigned i = 0; i < 128; i++)
        must(sv_hear(strangers.fd) == 1);
    struct sv_child child = sv_fork(joins_a_group);
    assert_uint_in_range(sv_hear(child.fd), 1, 4 * OF_USER + 8);
    must(sv_join(&child) == 0);
    must(kill(-strangers.pid, SIGKILL) == 0);
    (void)sv_join(&strangers);
}

int main(void) {
    own_namespace = network_separate();
    return tests_run(NULL, NULL);
}
