/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * inline_test.c - how much of a frame goes with its work request: what a node says of it is what its sessions
 * have, on each kind of device, and messages of that size arrive as any others do.
 */
#define _GNU_SOURCE
#include "support/pair.h"

#include <errno.h>
#include <unistd.h>

#include "core/wire/frame.h"

static uint32_t told(sluice_node *n) {
    sluice_node_info info = {.size = sizeof info};
    assert_int_equal(sluice_node_get_info(n, &info), 0);
    return info.inline_bytes;
}

/* As device/docs/soft-device.md has it; of a device of the system nothing is known beforehand. */
static void as_the_profile_says(uint32_t bytes) {
    const char *like = getenv("SLUICE_SOFT_PROFILE");
    if (!like || !*like)
        assert_int_equal(bytes, 256); /* as much as the library asks for */
    else if (strcmp(like, "nic") == 0)
        assert_int_equal(bytes, 64);
    else if (strncmp(like, "rxe", 3) == 0)
        assert_true(bytes >= 256);
    else if (strcmp(like, "iwarp") == 0)
        assert_int_equal(bytes, 64); /* of 80, which it does not say */
    else
        fail_msg("of profile %s nothing is said here", like);
}

PAIR_WITH(pair_opened, a_node_says_what_its_sessions_will_have) {
    struct pair *p = *state;
    uint32_t before = told(p->a.node); /* of nothing that was made for a session */
    as_the_profile_says(before);
    assert_int_equal(told(p->a.node), before);
    pair_connect(p, PAIR_LINK());
    assert_int_equal(pair_session(&p->a)->connection->sq.inline_max, before);
    assert_int_equal(told(p->a.node), before);
    assert_int_equal(pair_session(&p->b)->connection->sq.inline_max, told(p->b.node));
}

TEST(a_node_without_inline_says_none) {
    struct pair p;
    pair_without(WITHOUT_INLINE);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    assert_int_equal(told(p.a.node), 0);
    pair_connect(&p, PAIR_LINK());
    assert_int_equal(pair_session(&p.a)->connection->sq.inline_max, 0);
    assert_int_equal(told(p.a.node), 0);
    pair_close(&p);
}

/* What went with its work request is the device's: nothing of it waits for its completion. */
static bool went_inline(struct side *side) {
    struct session *s = pair_session(side);
    return s->connection->sq.entries[(s->connection->sq.tail - 1) & s->connection->sq.mask].msg ==
           NULL;
}

/* By work requests: the software device has a shorter way for small ones. */
PAIR_WITH(pair_connected, messages_up_to_the_limit_go_with_their_work_request) {
    struct pair *p = *state;
    uint32_t most = pair_session(&p->b)->connection->sq.inline_max - FRAME_BYTES;
    pair_session(&p->b)->framed_end = 0;
    for (unsigned size = 1; size < most + 40; size++) {
        assert_int_equal(pair_send(&p->b, size, size, NULL), 0);
        assert_int_equal(went_inline(&p->b), size <= most);
        sluice_msg *msg = pair_expect(p, &p->a, SLUICE_MESSAGE).msg;
        assert_true(pair_check(msg, size, size));
        sluice_free(msg);
    }
}

/* ---- asking the device ------------------------------------------------------------------------ */

static struct {
    const struct fabric_ops *real;
    struct fabric_ops fabric;
    sluice_node *node;
    unsigned asked;
    bool fails;
    pthread_t second;
    _Atomic pid_t second_tid; /* of the thread that asks while the device is being asked */
    uint32_t second_told;
} device;

static void *ask_too(void *arg) {
    (void)arg;
    atomic_store(&device.second_tid, gettid());
    device.second_told = told(device.node);
    return NULL;
}

/* It is in its call, and sleeps there. */
static bool is_waiting(pid_t tid) {
    char path[64], text[256] = "";
    if (tid == 0 || atomic_load(&device.node->callers) < 2)
        return false;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    FILE *file = fopen(path, "re");
    size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file)
        fclose(file);
    text[bytes] = '\0';
    const char *end = strrchr(text, ')');
    return end && strncmp(end, ") S", 3) == 0;
}

/* The CQ of the queue pair that is made to find out; the loops have theirs. */
static struct ibv_cq *counting_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
                                         struct ibv_comp_channel *channel, int comp_vector) {
    if (device.asked++ == 0 && !device.fails) {
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        assert_int_equal(pthread_create(&device.second, NULL, ask_too, NULL), 0);
        while (!is_waiting(atomic_load(&device.second_tid))) {
            assert_true(env_now(&env_default) < limit);
            sched_yield();
        }
    }
    return device.real->create_cq(ctx, cqe, cq_context, channel, comp_vector);
}

static struct ibv_qp *failing_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    if (!device.fails)
        return device.real->create_qp(pd, attr);
    errno = EPERM;
    return NULL;
}

static struct ibv_qp *failing_create_extended_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    if (!device.fails)
        return device.real->create_extended_qp(pd, attr);
    errno = EPERM;
    return NULL;
}

static void count_asking(sluice_node *n, bool fails) {
    memset(&device, 0, sizeof device);
    device.real = n->fabric;
    device.fabric = *n->fabric;
    device.fabric.create_cq = counting_create_cq;
    device.fabric.create_qp = failing_create_qp;
    device.fabric.create_extended_qp = failing_create_extended_qp;
    device.node = n;
    device.fails = fails;
    n->fabric = &device.fabric;
}

PAIR_WITH(pair_opened, two_that_ask_at_once_make_one_queue_pair) {
    struct pair *p = *state;
    count_asking(p->a.node, false);
    uint32_t first = told(p->a.node);
    assert_int_equal(pthread_join(device.second, NULL), 0);
    assert_int_equal(device.second_told, first);
    assert_int_equal(device.asked, 1);
}

PAIR_WITH(pair_opened, a_device_that_makes_none_is_asked_once) {
    struct pair *p = *state;
    count_asking(p->a.node, true);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(told(p->a.node), 0);
    assert_int_equal(device.asked, 1);
    device.fails = false; /* of what a session has, the node hears all the same */
    pair_connect(p, PAIR_LINK());
    assert_int_equal(told(p->a.node), pair_session(&p->a)->connection->sq.inline_max);
    assert_int_not_equal(told(p->a.node), 0);
}
