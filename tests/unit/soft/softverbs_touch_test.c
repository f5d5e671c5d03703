/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_touch_test.c - who ends a queue pair, or takes memory back, waits for a requester that is inside of
 * the memory, but not for one that died there, and not for one that cannot be there.
 */
#include "support/softverbs_util.h"

#include <signal.h>
#include <sys/wait.h>

#define OTHER_UID 65534
#define SKIPPED 77
#define PROMPT_NS 1000000000u /* half of what a live peer is waited for */

#define ALL_REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void to_rts(struct sv_end *e, uint32_t dest) {
    struct ibv_qp_attr attr = sv_attr(e, IBV_QPS_INIT, 0);
    attr.qp_access_flags = ALL_REMOTE;
    must(soft_modify_qp(e->qp, &attr, SV_INIT_MASK) == 0);
    must(sv_to_rtr(e, dest) == 0);
    must(sv_to_rts(e) == 0);
}

static void connected(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.one_cq = true));
    sv_tell(fd, e.qp->qp_num);
    to_rts(&e, sv_hear(fd));
    sv_wait_linked(&e);
    sv_tell(fd, 1);
    (void)sv_hear(fd); /* until it is killed */
}

static void another_user(int fd) {
    if (setresgid(OTHER_UID, OTHER_UID, OTHER_UID) != 0 ||
        setresuid(OTHER_UID, OTHER_UID, OTHER_UID) != 0)
        _exit(SKIPPED);
    connected(fd);
}

/* A queue pair whose peer says that it is inside of the memory here. */
static void begin(struct sv_end *e, struct sv_child *child, void (*run)(int)) {
    *child = sv_fork(run);
    sv_open(e, SV_OPTIONS(.one_cq = true));
    sv_tell(child->fd, e->qp->qp_num);
    uint32_t qpn;
    if (recv(child->fd, &qpn, sizeof qpn, MSG_WAITALL) != sizeof qpn) {
        must(WEXITSTATUS(sv_join(child)) == SKIPPED);
        sv_close(e);
        fprintf(stderr, "SKIPPED: this process may not become another user\n");
        skip();
    }
    to_rts(e, qpn);
    sv_wait_linked(e);
    must(sv_hear(child->fd) == 1);
    struct soft_ring *ring = atomic_load(&soft_qp_of(e->qp)->rx);
    must(ring);
    atomic_fetch_or(&ring->tx.touching, 1);
}

static void end_promptly(struct sv_end *e) {
    uint64_t start = soft_now_ns();
    must(soft_destroy_qp(e->qp) == 0);
    e->qp = NULL;
    assert_uint_in_range(soft_now_ns() - start, 0, PROMPT_NS);
}

/* Its link is, by the engine, which was told. */
static bool is_forgotten(struct sv_end *e) {
    soft_lock();
    bool gone = soft_qp_of(e->qp)->peer_gone;
    soft_unlock();
    return gone;
}

static void a_peer_that_died_inside_keeps_nobody_waiting(void **state) {
    (void)state;
    for (unsigned known = 0; known < 2; known++) {
        struct sv_child child;
        struct sv_end e;
        begin(&e, &child, connected);
        must(kill(child.pid, SIGKILL) == 0);
        must(waitpid(child.pid, NULL, 0) == child.pid);
        while (known && !is_forgotten(&e))
            ;
        end_promptly(&e);
        sv_close(&e);
        close(child.fd);
    }
}

static void another_users_word_keeps_nobody_waiting(void **state) {
    (void)state;
    struct sv_child child;
    struct sv_end e;
    if (geteuid() != 0) {
        fprintf(stderr, "SKIPPED: needs root to run a process of another user\n");
        skip();
    }
    begin(&e, &child, another_user);
    end_promptly(&e);
    must(kill(child.pid, SIGKILL) == 0);
    must(waitpid(child.pid, NULL, 0) == child.pid);
    sv_close(&e);
    close(child.fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_that_died_inside_keeps_nobody_waiting),
        cmocka_unit_test(another_users_word_keeps_nobody_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
