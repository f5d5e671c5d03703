/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_own_user_test.c - who counts as a process of one's own user: in a user namespace nobody who may be
 * somebody that it does not map, and after a change of user nobody by what he, or memory, was before.
 */
#include "support/namespace.h"
#include "support/softverbs.h"
#include "support/skip.h"
#include "soft/ipc/peer_internal.h"
#include "soft/object/keys.h"
#include "soft/object/ring.h"
#include "soft/verbs/internal.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534u
#define SKIPPED 77

/* In a namespace where this process has the number that stands for everybody else. */
static bool be_placeholder(void) {
    return namespace_as_user(0, NOBODY);
}

static void drop_root(void) {
    if (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)
        _exit(SKIPPED);
}

static void connect_end(struct sv_end *e, int fd) {
    sv_tell(fd, e->qp->qp_num);
    uint32_t dest = sv_hear(fd);
    must(sv_to_init(e) == 0 && sv_to_rtr(e, dest) == 0 && sv_to_rts(e) == 0);
    sv_wait_linked(e);
    sv_barrier(fd);
}

/* One message each way: the engines have taken all that was said before. */
static void exchange(struct sv_end *e, int fd) {
    for (unsigned i = 0; i < 2; i++) {
        must(sv_recv(e, i, 0, 8192) == 0);
        sv_barrier(fd);
        must(sv_send(e, i, 8192, 4096, IBV_SEND_SIGNALED) == 0);
        must(sv_poll(e->scq).status == IBV_WC_SUCCESS);
        must_data(sv_poll(e->rcq).byte_len == 4096);
        sv_barrier(fd);
    }
}

/* Whether the peer was given a region, or keys: of ours, or of who we were. */
static bool has_shared(struct sv_end *e, bool former) {
    soft_lock();
    const struct soft_peer *peer = soft_qp_of(e->qp)->peer;
    bool shared = peer->keys_sent && (!former || soft_keys_uid != geteuid());
    for (unsigned i = 0; i < SOFT_MAX_REGIONS; i++)
        shared |= atomic_load(&peer->region_sent[i]) != REGION_UNSENT &&
                  (!former || soft_regions[i].uid != geteuid());
    soft_unlock();
    return shared;
}

static void is_nobody(int fd) {
    struct sv_end e;
    if (!be_placeholder())
        _exit(SKIPPED);
    sv_open(&e, SV_OPTIONS(.mapped = true));
    connect_end(&e, fd);
    exchange(&e, fd);
    must(!has_shared(&e, false));
    sv_close(&e);
}

static void drops_root(int fd) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS(.mapped = true));
    drop_root();
    connect_end(&e, fd);
    exchange(&e, fd);
    must(!has_shared(&e, true));
    sv_close(&e);
}

static void is_nobody_from_the_start(int fd) {
    struct sv_end e;
    drop_root();
    sv_open(&e, SV_OPTIONS(.mapped = true));
    connect_end(&e, fd);
    exchange(&e, fd);
    sv_close(&e);
}

TEST(nobody_in_a_namespace_is_ones_own_user) {
    struct sv_end e;
    struct sv_child child = sv_fork(is_nobody);
    uint32_t dest;
    if (recv(child.fd, &dest, sizeof dest, MSG_PEEK | MSG_WAITALL) != sizeof dest) {
        must(WEXITSTATUS(sv_join(&child)) == SKIPPED);
        skip_with("no user namespace here");
    }
    sv_open(&e, SV_OPTIONS(.mapped = true));
    connect_end(&e, child.fd);
    exchange(&e, child.fd);
    sv_close(&e);
    assert_int_equal(sv_join(&child), 0);
}

static bool is_root(void) {
    if (geteuid() != 0)
        fprintf(stderr, "SKIPPED: needs root to drop it\n");
    return geteuid() == 0;
}

/* The name it listens by says that it was root once. */
TEST(who_has_dropped_root_is_given_nothing_of_roots) {
    struct sv_end e;
    if (!is_root())
        skip();
    struct sv_child child = sv_fork(drops_root);
    sv_open(&e, SV_OPTIONS(.mapped = true));
    connect_end(&e, child.fd);
    exchange(&e, child.fd);
    assert_false(has_shared(&e, false));
    sv_close(&e);
    assert_int_equal(sv_join(&child), 0);
}

/* What was made as root is not for those whose user a process becomes. */
TEST(memory_made_as_root_is_not_given_to_another_user) {
    if (!is_root())
        skip();
    struct sv_child one = sv_fork(drops_root), other = sv_fork(is_nobody_from_the_start);
    /* they talk through us: what one says the other hears */
    for (unsigned open = 3; open;) {
        struct pollfd p[2] = {{.fd = open & 1 ? one.fd : -1, .events = POLLIN},
                              {.fd = open & 2 ? other.fd : -1, .events = POLLIN}};
        char bytes[64];
        must(poll(p, 2, 20000) > 0);
        for (unsigned i = 0; i < 2; i++) {
            if (!p[i].revents)
                continue;
            ssize_t n = recv(p[i].fd, bytes, sizeof bytes, 0);
            if (n > 0)
                (void)!send(i ? one.fd : other.fd, bytes, (size_t)n, MSG_NOSIGNAL);
            else
                open &= ~(1u << i);
        }
    }
    assert_int_equal(sv_join(&one), 0);
    assert_int_equal(sv_join(&other), 0);
}
