/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Regions: opening, closing, tokens, and what becomes of them when the device or the process changes. */
#include "support/child.h"
#include "support/memory.h"
#include "support/wait.h"
#include "support/watched.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/wire/token.h"

TEST(memory_is_found_zeroed_and_page_aligned) {
    struct side side;
    sluice_error e = {0};
    pair_open_side(&side, PAIR_NODE());
    const uint64_t sizes[] = {1, 4095, 4096, 4097, 10 << 20};
    for (unsigned i = 0; i < 5; i++) {
        sluice_region *r;
        assert_int_equal(sluice_region_open(side.node, NULL, sizes[i], 0, &r, &e), 0);
        uint8_t *data = sluice_region_data(r);
        assert_int_equal((uintptr_t)data % 4096, 0);
        assert_int_equal(sluice_region_size(r), sizes[i]);
        for (uint64_t k = 0; k < sizes[i]; k++)
            assert_int_equal(data[k], 0);
        memset(data, 1, sizes[i]);
        assert_int_equal(sluice_region_close(r), 0);
    }
    assert_int_equal(sluice_region_close(NULL), 0);
    assert_null(sluice_region_data(NULL));
    assert_int_equal(sluice_region_size(NULL), 0);
    sluice_close(side.node, 0);
}

TEST(wrong_regions_have_clear_answers) {
    struct side side;
    sluice_error e = {0};
    sluice_region *r = NULL;
    static uint8_t memory[64];
    pair_open_side(&side, PAIR_NODE());
    sluice_node *n = side.node;
    assert_int_equal(sluice_region_open(NULL, memory, 64, 0, &r, &e), SLUICE_EINVAL);
    assert_int_equal(sluice_region_open(n, memory, 64, 0, NULL, &e), SLUICE_EINVAL);
    assert_int_equal(sluice_region_open(n, memory, 0, 0, &r, &e), SLUICE_EINVAL);
    assert_int_equal(sluice_region_open(n, memory, UINT64_MAX, 0, &r, &e), SLUICE_EINVAL);
    for (unsigned log2 = 44; log2 <= 55;
         log2++) { /* more than there is: named, whatever a sparse file would take */
        assert_int_equal(sluice_region_open(n, NULL, 1ull << log2, 0, &r, &e), SLUICE_ENOMEM);
        assert_non_null(strstr(e.text, "this machine, or its cgroup, has"));
    }
    assert_null(r);
    assert_int_equal(sluice_region_revoke(NULL, &e), SLUICE_EINVAL);
    sluice_close(n, 0);
    assert_int_equal(sluice_region_open(n, memory, 64, 0, &r, &e), SLUICE_ECLOSED);
}

/* At once, and not when the first put arrives. */
TEST(memory_that_cannot_be_used_is_refused_when_it_is_registered) {
    struct side side;
    sluice_error e = {0};
    sluice_region *r = NULL;
    pair_open_side(&side, PAIR_NODE());
    uint8_t *pages = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(sluice_region_open(side.node, pages, 8192, 0, &r, &e), SLUICE_EINVAL);
    assert_int_equal(e.os_errno, EFAULT);
    assert_non_null(strstr(e.text, "not writable"));
    assert_int_equal(sluice_region_open(side.node, pages, 1ull << 45, 0, &r, &e), SLUICE_ENOMEM);
    assert_int_equal(e.os_errno, ENOMEM);
    assert_int_equal(munmap(pages, 8192), 0);
    e = (sluice_error){0};
    assert_int_equal(sluice_region_open(side.node, pages, 8192, 0, &r, &e), SLUICE_EINVAL);
    assert_int_equal(e.os_errno, EFAULT);
    assert_non_null(strstr(e.text, "not mapped"));
    assert_null(r);
    sluice_close(side.node, 0);
}

TEST(a_token_says_no_more_than_its_region) {
    struct side side;
    sluice_error e = {0};
    sluice_region *r;
    sluice_token out;
    struct token token;
    pair_open_side(&side, PAIR_NODE());
    assert_int_equal(
        sluice_region_open(side.node, NULL, 1000, SLUICE_MAY_READ | SLUICE_MAY_WRITE, &r, &e), 0);
    assert_int_equal(sluice_region_token(r, 10, 990, SLUICE_MAY_READ, &out), 0);
    assert_true(token_get(&token, &out));
    assert_int_equal(token.addr, (uintptr_t)sluice_region_data(r) + 10);
    assert_int_equal(token.bytes, 990);
    assert_int_equal(token.rights, SLUICE_MAY_READ);
    assert_int_equal(sluice_region_token(r, 10, 991, SLUICE_MAY_READ, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, 1000, 0, SLUICE_MAY_READ, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, UINT64_MAX, 2, SLUICE_MAY_READ, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, 2, UINT64_MAX, SLUICE_MAY_READ, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, 0, 8, 0, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, 0, 8, SLUICE_MAY_ATOMIC, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, 0, 8, 9, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(NULL, 0, 8, 1, &out), SLUICE_EINVAL);
    assert_int_equal(sluice_region_token(r, 0, 8, 1, NULL), SLUICE_EINVAL);
    sluice_close(side.node, 0); /* and with it the region */
}

TEST(a_region_in_use_stays) {
    struct memory m;
    sluice_error e = {0};
    memory_open(&m, 1 << 20, PAIR_LINK());
    sluice_session s = m.pair.b.session;
    assert_int_equal(sluice_put(s, m.here, 0, 1 << 20, &m.token, 0, NULL), 0);
    assert_int_equal(sluice_get(s, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 1)), 0);
    assert_int_equal(sluice_region_close(m.here), SLUICE_EINVAL);
    assert_int_equal(sluice_region_revoke(m.here, &e), SLUICE_EINVAL);
    memory_done(&m, 1, 0);
    assert_int_equal(sluice_region_close(m.here), 0);
    memory_close(&m);
}

/* Nobody waits for an untagged one, but the region is free all the same. */
TEST(an_operation_without_a_tag_lets_the_region_go) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    assert_int_equal(sluice_put(m.pair.b.session, m.here, 0, 8, &m.token, 0, NULL), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (sluice_region_close(m.here) != 0) {
        assert_true(env_now(&env_default) < limit);
        pair_turn(&m.pair);
    }
    memory_close(&m);
}

TEST(a_registration_that_fails_is_told) {
    struct side side;
    sluice_error e = {0};
    sluice_region *r;
    sluice_token token;
    pair_open_side(&side, PAIR_NODE());
    fault_plan("call=reg_mr errno=ENOMEM");
    assert_int_equal(sluice_region_open(side.node, NULL, 4096, 0, &r, &e), SLUICE_ENOMEM);
    assert_non_null(
        strstr(e.text, "4 KiB cannot be registered")); /* what is in the way: limit_text_test */
    fault_plan(NULL);
    assert_int_equal(sluice_region_open(side.node, NULL, 4096, 7, &r, &e), 0);
    fault_plan("call=reg_mr errno=ENOMEM");
    assert_int_equal(sluice_region_revoke(r, &e), SLUICE_ENOMEM);
    assert_int_equal(sluice_region_token(r, 0, 8, 1, &token), SLUICE_EDEVICE);
    fault_plan(NULL);
    assert_int_equal(sluice_region_revoke(r, &e), 0); /* there is another try */
    assert_int_equal(sluice_region_token(r, 0, 8, 1, &token), 0);
    assert_int_equal(sluice_region_close(r), 0);
    sluice_close(side.node, 0);
}

TEST(a_removed_device_takes_the_registration_and_leaves_the_memory) {
    struct memory m;
    sluice_error e = {0};
    sluice_token token;
    sluice_region *more;
    memset(&m, 0, sizeof m);
    watched_open(&m.pair, PAIR_LINK());
    pair_connect(&m.pair, PAIR_LINK());
    memory_regions(&m, 4096, ALL_RIGHTS);
    watched_device(DEVICE_REMOVE, ORDER_FATAL_ONLY);
    struct side *sides[] = {&m.pair.a, &m.pair.b};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pair_expect(&m.pair, sides[i], SLUICE_CLOSED).reason,
                         SLUICE_REASON_DEVICE_REMOVED);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (sluice_region_token(m.there, 0, 8, 1, &token) == 0) {
        pair_turn(&m.pair);
        assert_true(env_now(&env_default) < limit);
    }
    assert_int_equal(sluice_region_token(m.there, 0, 8, 1, &token), SLUICE_EDEVICE);
    assert_int_equal(sluice_region_revoke(m.there, &e), SLUICE_EDEVICE);
    assert_int_equal(sluice_region_open(m.pair.a.node, NULL, 4096, 0, &more, &e), SLUICE_EDEVICE);
    memset(memory_there(&m), 1, m.bytes); /* still memory */
    assert_int_equal(sluice_region_close(m.there), 0);
    watched_close(&m.pair);
}

TEST(a_child_has_no_regions) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sluice_token token;
        sluice_region *r;
        sluice_session s = m.pair.b.session;
        bool good = sluice_region_open(m.pair.a.node, NULL, 8, 0, &r, NULL) == SLUICE_EFORKED &&
                    sluice_region_token(m.there, 0, 8, 1, &token) == SLUICE_EFORKED &&
                    sluice_region_revoke(m.there, NULL) == SLUICE_EFORKED &&
                    sluice_region_close(m.there) == SLUICE_EFORKED &&
                    sluice_put(s, m.here, 0, 8, &m.token, 0, NULL) == SLUICE_EFORKED &&
                    sluice_get(s, m.here, 0, 8, &m.token, 0, NULL) == SLUICE_EFORKED &&
                    sluice_put_notify(s, m.here, 0, 8, &m.token, 0, 1, NULL) == SLUICE_EFORKED &&
                    sluice_fetch_add(s, &m.token, 0, 8, NULL) == SLUICE_EFORKED &&
                    sluice_compare_swap(s, &m.token, 0, 8, 8, NULL) == SLUICE_EFORKED &&
                    sluice_fence(s, NULL) == SLUICE_EFORKED &&
                    sluice_send_pieces(s, NULL, 0, NULL) == SLUICE_EFORKED;
        _exit(good ? 0 : 1);
    }
    assert_int_equal(wait_exit(pid), 0);
    assert_int_equal(sluice_put(m.pair.b.session, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 1)),
                     0);
    memory_done(&m, 1, 0);
    memory_close(&m);
}

/* ---- a device that is slow to let go ------------------------------------------------------------- */

static struct {
    const struct fabric_ops *quick;
    struct fabric_ops ops;
    _Atomic bool may_leave;
    _Atomic unsigned inside, left; /* calls of the device that began; that ended */
} slow;

static int slow_dereg_mr(struct ibv_mr *mr) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    atomic_fetch_add(&slow.inside, 1);
    while (!atomic_load(&slow.may_leave) && env_now(&env_default) < limit)
        sched_yield();
    int error = slow.quick->dereg_mr(mr);
    atomic_fetch_add(&slow.left, 1);
    return error;
}

static void slow_open(struct side *side, sluice_region *r[3]) {
    sluice_error e = {0};
    pair_open_side(side, PAIR_NODE());
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sluice_region_open(side->node, NULL, 4096, ALL_RIGHTS, &r[i], &e), 0);
    slow.ops = *(slow.quick = side->node->fabric);
    slow.ops.dereg_mr = slow_dereg_mr;
    side->node->fabric = &slow.ops;
    atomic_store(&slow.may_leave, false);
    atomic_store(&slow.inside, 0);
    atomic_store(&slow.left, 0);
}

static void slow_until_inside(unsigned count) {
    while (atomic_load(&slow.inside) < count)
        sched_yield();
}

static void *close_one(void *region) {
    return sluice_region_close(region) == 0 ? region : NULL;
}

static void *revoke_one(void *region) {
    sluice_error e;
    return sluice_region_revoke(region, &e) == 0 ? region : NULL;
}

/* A peer that is inside of memory may make the device wait: then for one call, and not for all. */
TEST(no_call_waits_for_the_registration_of_another) {
    struct side side;
    sluice_error e = {0};
    sluice_region *r[3], *another;
    pthread_t thread[3];
    void *good;
    slow_open(&side, r);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, i ? close_one : revoke_one, r[i]), 0);
    slow_until_inside(3);
    assert_int_equal(sluice_region_open(side.node, NULL, 4096, ALL_RIGHTS, &another, &e), 0);
    assert_int_equal(atomic_load(&slow.left), 0); /* all of them still wait */
    atomic_store(&slow.may_leave, true);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(thread[i], &good), 0);
        assert_ptr_equal(good, r[i]);
    }
    assert_int_equal(sluice_region_close(r[0]), 0);
    sluice_close(side.node, 0); /* and `another` with it */
}

static void *let_go(void *node) {
    regions_detach(&((sluice_node *)node)->regions);
    return NULL;
}

static bool is_gone(struct regions *set) {
    pthread_mutex_lock(&set->lock);
    bool gone = set->gone;
    pthread_mutex_unlock(&set->lock);
    return gone;
}

/* What is under way ends before the device does, and what begins then finds none. */
TEST(a_device_does_not_end_under_a_call) {
    struct side side;
    sluice_error e = {0};
    sluice_token token;
    sluice_region *r[3], *another;
    pthread_t thread[2];
    void *good;
    slow_open(&side, r);
    assert_int_equal(pthread_create(&thread[0], NULL, close_one, r[0]), 0);
    slow_until_inside(1);
    assert_int_equal(pthread_create(&thread[1], NULL, let_go, side.node), 0);
    while (!is_gone(&side.node->regions))
        sched_yield();
    assert_int_equal(sluice_region_open(side.node, NULL, 4096, 0, &another, &e), SLUICE_EDEVICE);
    assert_int_equal(sluice_region_revoke(r[1], &e), SLUICE_EDEVICE);
    assert_int_equal(atomic_load(&slow.inside), 1); /* it has not begun to end the others */
    atomic_store(&slow.may_leave, true);
    assert_int_equal(pthread_join(thread[0], &good), 0);
    assert_ptr_equal(good, r[0]);
    assert_int_equal(pthread_join(thread[1], NULL), 0);
    for (unsigned i = 1; i < 3; i++) {
        assert_int_equal(sluice_region_token(r[i], 0, 8, SLUICE_MAY_READ, &token), SLUICE_EDEVICE);
        assert_int_equal(sluice_region_close(r[i]), 0);
    }
    assert_int_equal(atomic_load(&slow.left), 3);
    sluice_close(side.node, 0);
}
