/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Placement: a session goes to an open worker near the device that has least to do, and stays there. */
#define _GNU_SOURCE
#include "support/pair.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "node/worker_select.h"

#define MB 1000000ull
#define SECOND 1000000000ull

/* ---- the decision ---------------------------------------------------------------------------- */

TEST(the_table_of_cases) {
    static const struct {
        const char *what;
        int device, picked;
        uint32_t count;
        struct worker_candidate list[4]; /* numa, drained, sessions, bytes, turn */
    } cases[] = {
        {"nobody is there", -1, -1, 0, {{0}}},
        {"the only one", -1, 0, 1, {{-1, false, 900, 0, 7}}},
        {"the only one is drained", -1, -1, 1, {{-1, true, 0, 0, 0}}},
        {"fewest sessions",
         -1,
         1,
         3,
         {{0, false, 5, 0, 0}, {0, false, 2, 0, 9}, {0, false, 3, 0, 1}}},
        {"drained though idle", -1, 1, 2, {{0, true, 0, 0, 0}, {0, false, 99, 900 * MB, 5}}},
        {"on the device's node though busy",
         1,
         1,
         2,
         {{0, false, 0, 0, 0}, {1, false, 50, 900 * MB, 8}}},
        {"the device's node is drained", 1, 0, 2, {{0, false, 70, 0, 9}, {1, true, 0, 0, 0}}},
        {"of the far ones the idler",
         3,
         2,
         3,
         {{0, false, 8, 0, 0}, {3, true, 0, 0, 0}, {1, false, 7, 0, 0}}},
        {"all are far", 3, 1, 2, {{0, false, 8, 0, 0}, {1, false, 7, 0, 0}}},
        {"all are drained", 0, -1, 2, {{0, true, 8, 0, 0}, {1, true, 7, 0, 0}}},
        {"the device's node is unknown", -1, 1, 2, {{0, false, 8, 0, 0}, {1, false, 7, 0, 0}}},
        {"a worker without a node is near",
         0,
         1,
         3,
         {{1, false, 0, 0, 0}, {-1, false, 4, 0, 0}, {0, false, 5, 0, 0}}},
        {"bytes outweigh a few sessions",
         -1,
         1,
         2,
         {{0, false, 1, 500 * MB, 0}, {0, false, 9, 0, 1}}},
        {"many sessions outweigh some bytes",
         -1,
         0,
         2,
         {{0, false, 1, 20 * MB, 1}, {0, false, 9, 0, 0}}},
        {"a session weighs as much as 4 MiB/s",
         -1,
         1,
         2,
         {{0, false, 1, (4 << 20) + 1, 0}, {0, false, 2, 0, 1}}},
        {"and not less", -1, 0, 2, {{0, false, 1, (4 << 20) - 1, 1}, {0, false, 2, 0, 0}}},
        {"a tie: the longest ago",
         -1,
         2,
         3,
         {{0, false, 3, 5, 7}, {0, false, 3, 5, 6}, {0, false, 3, 5, 2}}},
        {"a load beyond all bounds",
         -1,
         1,
         2,
         {{0, false, UINT32_MAX, UINT64_MAX, 0}, {0, false, UINT32_MAX, 0, 1}}},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        int got = worker_select_pick(cases[i].list, cases[i].count, cases[i].device);
        if (got != cases[i].picked)
            fail_msg("%s: %d instead of %d", cases[i].what, got, cases[i].picked);
    }
}

/* Two workers on each of so many NUMA nodes, the device on the last but one. */
TEST(every_node_count_fills_the_device_first) {
    static const int node_counts[] = {2, 4, 8};
    for (unsigned k = 0; k < 3; k++) {
        struct worker_candidate list[16] = {{0}};
        uint32_t count = 2 * (uint32_t)node_counts[k];
        int device = node_counts[k] - 2;
        uint64_t turn = 0;
        for (uint32_t i = 0; i < count; i++)
            list[i].numa = (int)i / 2;
        for (int i = 0; i < 100; i++) {
            int got = worker_select_pick(list, count, device);
            assert_int_equal(list[got].numa, device);
            list[got].sessions++;
            list[got].turn = ++turn;
        }
        assert_int_equal(list[2 * device].sessions, 50);
        assert_int_equal(list[2 * device + 1].sessions, 50);
        list[2 * device].drained = true; /* one is left on that node */
        int got = worker_select_pick(list, count, device);
        assert_int_equal(got, 2 * device + 1);
        list[2 * device + 1].drained = true; /* none: all others alike */
        for (uint32_t i = 0; i < 10 * (count - 2); i++) {
            got = worker_select_pick(list, count, device);
            assert_int_not_equal(list[got].numa, device);
            list[got].sessions++;
            list[got].turn = ++turn;
        }
        for (uint32_t i = 0; i < count; i++)
            if (list[i].numa != device)
                assert_int_equal(list[i].sessions, 10);
    }
}

TEST(equals_take_turns) {
    struct worker_candidate list[5] = {{0}}; /* sessions end as soon as they were placed */
    for (uint64_t turn = 1; turn <= 50; turn++) {
        int got = worker_select_pick(list, 5, -1);
        assert_int_equal(got, (turn - 1) % 5);
        list[got].turn = turn;
    }
}

/* ---- NUMA nodes ------------------------------------------------------------------------------ */

static int read_numa(const char *text) {
    char path[64];
    int fd = memfd_create("numa", 0);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int numa = worker_select_read_numa(path);
    close(fd);
    return numa;
}

TEST(the_devices_node_is_read_or_unknown) {
    assert_int_equal(read_numa("0\n"), 0);
    assert_int_equal(read_numa("3\n"), 3);
    assert_int_equal(read_numa("-1\n"), -1);
    assert_int_equal(read_numa(""), -1);
    assert_int_equal(read_numa("\n"), -1);
    assert_int_equal(read_numa("two\n"), -1);
    assert_int_equal(read_numa("1x\n"), -1);
    assert_int_equal(read_numa("99999999999999999999\n"), -1);
    assert_int_equal(
        worker_select_read_numa("/sys/class/infiniband/no such device/device/numa_node"), -1);
}

/* What hwloc says is what the kernel says. */
TEST(a_cpus_node_is_the_kernels) {
    char path[96];
    int known = 0;
    for (int cpu = 0; cpu < 256; cpu++) {
        int numa = cpu_numa_node(cpu);
        if (numa < 0)
            continue;
        known++;
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", numa);
        if (access(path, F_OK) != 0)
            continue; /* a kernel that has no such nodes: hwloc makes up one */
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpu%d", numa, cpu);
        assert_int_equal(access(path, F_OK), 0);
    }
    assert_true(known > 0);
    assert_int_equal(cpu_numa_node(-1), -1);
    assert_int_equal(cpu_numa_node(1 << 30), -1);
}

/* ---- a node with workers, driven by hand ------------------------------------------------------- */

static uint64_t bench_clock; /* stands still between a test's own steps */

static uint64_t bench_now(void *arg) {
    (void)arg;
    return bench_clock;
}

static const struct sluice_env bench_env = {.now_ns = bench_now, .random_bytes = pair_random};

struct bench {
    sluice_node *near, *far; /* near has the workers; far listens and dials with a loop */
    sluice_loop *loop;
    sluice_listener listener;
    char address[64];
    int up, closed, messages;
    sluice_reason reason;
    uint64_t bytes;
};

static void on_event(const sluice_event *event, void *arg) {
    struct bench *b = arg;
    if (event->type == SLUICE_UP)
        b->up++;
    else if (event->type == SLUICE_MESSAGE) {
        b->messages++;
        b->bytes += event->bytes;
    } else if (event->type == SLUICE_CLOSED) {
        b->closed++;
        b->reason = event->reason;
    }
}

static sluice_node *open_node(uint32_t workers) {
    sluice_node *n;
    sluice_error e = {0};
    sluice_node_options o = {.size = sizeof o, .device = "soft", .workers = workers};
    if (node_open_env(&n, &o, &bench_env, true, &e) != 0)
        fail_msg("%s", e.text);
    return n;
}

static void bench_open(struct bench *b, uint32_t workers) {
    sluice_error e = {0};
    memset(b, 0, sizeof *b);
    bench_clock = 1000 * SECOND;
    b->near = open_node(workers);
    b->far = open_node(SLUICE_NO_WORKERS);
    assert_int_equal(sluice_loop_open(b->far, &b->loop, &e), 0);
    const sluice_link_options *link =
        SLUICE_LINK(.handler = on_event, .handler_arg = b, .loop = b->loop);
    if (sluice_listen(b->far, "127.0.0.1:0", link, &b->listener, &e) != 0)
        fail_msg("%s", e.text);
    snprintf(b->address, sizeof b->address, "127.0.0.1:%d", sluice_listener_port(b->listener));
}

static void bench_close(struct bench *b) {
    sluice_close(b->near, 0);
    sluice_close(b->far, 0);
}

static struct sluice_loop *worker(struct bench *b, uint32_t i) {
    return b->near->workers[i].loop;
}

static uint32_t sessions(struct bench *b, uint32_t i) {
    return atomic_load(&worker(b, i)->assigned);
}

static void bench_turn(struct bench *b) {
    cm_progress(b->near->cm, 0);
    cm_progress(b->far->cm, 0);
    for (uint32_t i = 0; i < b->near->worker_count; i++)
        assert_true(sluice_poll(worker(b, i), NULL, 0, 0) >= 0);
    assert_true(sluice_poll(b->loop, NULL, 0, 0) >= 0);
    sched_yield();
}

/* Until *count has come to at least that. */
static void bench_until(struct bench *b, const int *count, int wanted) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (*count < wanted && env_now(&env_default) < limit)
        bench_turn(b);
    assert_true(*count >= wanted);
}

static int try_dial(struct bench *b, sluice_session *out, sluice_error *e) {
    return sluice_dial(b->near, b->address, SLUICE_LINK(.handler = on_event, .handler_arg = b), out,
                       e);
}

/* The worker that gets the next session. */
static uint32_t dial(struct bench *b, sluice_session *out) {
    sluice_session s;
    sluice_error e = {0};
    if (try_dial(b, out ? out : &s, &e) != 0)
        fail_msg("%s", e.text);
    struct sluice_loop *l = atomic_load(&session_table_find(out ? out->id : s.id)->loop);
    for (uint32_t i = 0; i < b->near->worker_count; i++)
        if (worker(b, i) == l)
            return i;
    fail_msg("on no worker");
    return 0;
}

TEST(dials_are_spread_evenly) {
    struct bench b;
    bench_open(&b, 4);
    for (int i = 0; i < 40; i++)
        dial(&b, NULL);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(sessions(&b, i), 10);
    bench_close(&b);
}

/* Otherwise the first would do the work of all who come for a moment. */
TEST(sessions_that_end_at_once_take_turns_of_the_workers) {
    struct bench b;
    sluice_session s;
    bench_open(&b, 3);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(dial(&b, &s), i % 3);
        sluice_hangup(s, 0);
        bench_until(&b, &b.closed, (int)i + 1);
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (sessions(&b, i % 3) > 0 && env_now(&env_default) < limit)
            bench_turn(&b);
        assert_int_equal(sessions(&b, i % 3), 0);
    }
    bench_close(&b);
}

TEST(a_drained_worker_gets_nothing_and_keeps_its_sessions) {
    struct bench b;
    sluice_session kept[2];
    bench_open(&b, 2);
    for (int i = 0; i < 2; i++)
        assert_int_equal(dial(&b, &kept[i]), i);
    bench_until(&b, &b.up, 4);
    assert_int_equal(sluice_worker_drain(b.near, 0, 1), 0);
    assert_int_equal(b.near->stats.page->loops[worker(&b, 0)->index].drained, 1);
    assert_int_equal(b.near->stats.page->loops[worker(&b, 1)->index].drained, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(dial(&b, NULL), 1);
    assert_int_equal(sessions(&b, 0), 1);
    bench_until(&b, &b.up, 24);
    assert_int_equal(sluice_send_copy(kept[0], "still here", 10, NULL), 0);
    bench_until(&b, &b.messages, 1);
    assert_int_equal(b.closed, 0);
    assert_int_equal(sluice_worker_drain(b.near, 0, 0), 0);
    assert_int_equal(b.near->stats.page->loops[worker(&b, 0)->index].drained, 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(dial(&b, NULL), 0);
    bench_close(&b);
}

TEST(with_all_workers_drained_a_dial_is_told_the_limit) {
    struct bench b;
    sluice_session s;
    sluice_error e = {0};
    bench_open(&b, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(sluice_worker_drain(b.near, i, 1), 0);
    assert_int_equal(try_dial(&b, &s, &e), SLUICE_ELIMIT);
    assert_non_null(strstr(e.text, "drained"));
    assert_int_equal(session_table_used_count(b.near->index), 0);
    assert_int_equal(session_table_open_count(b.near->index), 0);
    sluice_loop *own; /* a loop of the application has nothing to do with it */
    assert_int_equal(sluice_loop_open(b.near, &own, &e), 0);
    assert_int_equal(sluice_dial(b.near, b.address, SLUICE_LINK(.loop = own), &s, &e), 0);
    assert_int_equal(sluice_worker_drain(b.near, 2, 0), 0);
    assert_int_equal(dial(&b, NULL), 2);
    bench_close(&b);
}

TEST(with_all_workers_drained_a_peer_is_told_busy) {
    struct bench b;
    sluice_listener listener;
    sluice_session s;
    sluice_error e = {0};
    char address[64];
    bench_open(&b, 2);
    const sluice_link_options *served = SLUICE_LINK(.handler = on_event, .handler_arg = &b);
    assert_int_equal(sluice_listen(b.near, "127.0.0.1:0", served, &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    const sluice_link_options *once =
        SLUICE_LINK(.handler = on_event, .handler_arg = &b, .loop = b.loop, .flags = SLUICE_ONCE);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(sluice_worker_drain(b.near, i, 1), 0);
    assert_int_equal(sluice_dial(b.far, address, once, &s, &e), 0);
    bench_until(&b, &b.closed, 1);
    assert_int_equal(b.reason, SLUICE_REASON_BUSY);
    assert_int_equal(b.up, 0);
    assert_int_equal(sluice_worker_drain(b.near, 1, 0), 0);
    assert_int_equal(sluice_dial(b.far, address, once, &s, &e), 0);
    bench_until(&b, &b.up, 2);
    assert_int_equal(sessions(&b, 0), 0);
    assert_int_equal(sessions(&b, 1), 1);
    bench_close(&b);
}

TEST(a_worker_that_does_not_exist_cannot_be_drained) {
    struct bench b;
    bench_open(&b, 2);
    assert_int_equal(sluice_worker_drain(b.near, 2, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_worker_drain(b.near, UINT32_MAX, 0), SLUICE_EINVAL);
    assert_int_equal(sluice_worker_drain(b.far, 0, 1), SLUICE_EINVAL);
    assert_int_equal(sluice_worker_drain(NULL, 0, 1), SLUICE_EINVAL);
    sluice_node *closed = b.near;
    bench_close(&b);
    assert_int_equal(sluice_worker_drain(closed, 0, 1), SLUICE_ECLOSED);
}

TEST(workers_near_the_device_come_first) {
    struct bench b;
    bench_open(&b, 3);
    assert_int_equal(b.near->device_numa, -1); /* the software device is nowhere */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(b.near->workers[i].numa, -1); /* driven by hand, so on no CPU */
        b.near->workers[i].claim.cpu = i % 2 ? 1 << 20 : 0;
    }
    worker_select_open(b.near); /* as with workers that are pinned */
    assert_int_equal(b.near->workers[0].numa, cpu_numa_node(0));
    assert_int_equal(b.near->workers[1].numa, -1); /* there is no such CPU */
    b.near->device_numa = 1;
    b.near->workers[0].numa = 0;
    b.near->workers[1].numa = 1;
    b.near->workers[2].numa = 0;
    for (int i = 0; i < 5; i++)
        assert_int_equal(dial(&b, NULL), 1);
    assert_int_equal(sluice_worker_drain(b.near, 1, 1), 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(dial(&b, NULL), i % 2 ? 2 : 0);
    bench_close(&b);
}

/* Three sessions against one that moves 64 MB in a second; and against the same when it has ceased. */
TEST(a_worker_that_moves_much_gets_no_session) {
    enum { BYTES = 1 << 20, COUNT = 64 };
    struct bench b;
    sluice_session busy, idle;
    bench_open(&b, 2);
    assert_int_equal(dial(&b, &busy), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sluice_worker_drain(b.near, 0, 1), 0);
        assert_int_equal(dial(&b, &idle), 1);
    }
    assert_int_equal(sluice_worker_drain(b.near, 0, 0), 0);
    bench_until(&b, &b.up, 8);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (int sent = 0; b.messages < COUNT && env_now(&env_default) < limit; bench_turn(&b)) {
        sluice_msg *msg;
        if (sent == COUNT || sluice_alloc(b.near, BYTES, &msg) != 0)
            continue;
        memset(sluice_data(msg), 0, BYTES);
        if (sluice_send(busy, msg, NULL) == 0)
            sent++;
        else
            sluice_free(msg);
    }
    must_data_equal(b.messages, COUNT);
    bench_clock += SECOND;
    loop_publish(worker(&b, 0)); /* as a turn does in which nothing is found */
    assert_int_equal(atomic_load(&worker(&b, 0)->rate), 0); /* of time only a turn knows */
    loop_clock(worker(&b, 0));
    loop_publish(worker(&b, 0));
    assert_int_equal(atomic_load(&worker(&b, 0)->rate), COUNT * (uint64_t)BYTES);
    assert_int_equal(dial(&b, NULL), 1);
    bench_clock += SECOND;
    assert_int_equal(dial(&b, NULL), 1);
    bench_clock += 2 * SECOND; /* what is not found again is over */
    assert_int_equal(dial(&b, NULL), 0);
    bench_close(&b);
}

/* ---- many threads ------------------------------------------------------------------------------ */

enum { THREADS = 4, EACH = 64 };

static void *dial_many(void *arg) {
    struct bench *b = arg;
    sluice_error e;
    sluice_session s;
    for (int i = 0; i < EACH; i++)
        if (try_dial(b, &s, &e) != 0)
            return b;
    return NULL;
}

TEST(threads_that_dial_at_once_do_not_crowd_one_worker) {
    struct bench b;
    pthread_t threads[THREADS];
    void *failed;
    bench_open(&b, 4);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, dial_many, &b), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(sessions(&b, i), THREADS * EACH / 4);
    bench_close(&b);
}

static _Atomic int phase;    /* odd: the first worker is drained, and was before */
static _Atomic int verified; /* dials from begin to end in one such phase */
static _Atomic int dialing;  /* threads that still do */

static void *dial_and_look(void *arg) {
    struct bench *b = arg;
    sluice_error e;
    sluice_session s;
    void *wrong = NULL;
    for (int i = 0; i < EACH && !wrong; i++) {
        int before = atomic_load(&phase);
        if (try_dial(b, &s, &e) != 0)
            wrong = b;
        else if ((before & 1) && before == atomic_load(&phase)) {
            if (atomic_load(&session_table_find(s.id)->loop) == worker(b, 0))
                wrong = b;
            atomic_fetch_add(&verified, 1);
        }
    }
    atomic_fetch_sub(&dialing, 1);
    return wrong;
}

TEST(once_drained_a_worker_gets_nothing_from_any_thread) {
    struct bench b;
    pthread_t threads[THREADS];
    void *wrong;
    bench_open(&b, 2);
    assert_int_equal(sluice_worker_drain(b.near, 0, 1), 0);
    atomic_store(&phase, 1);
    atomic_store(&dialing, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, dial_and_look, &b), 0);
    for (int seen = 0; atomic_load(&dialing) > 0;) {
        while (atomic_load(&verified) == seen && atomic_load(&dialing) > 0)
            sched_yield();
        seen = atomic_load(&verified);
        atomic_fetch_add(&phase, 1);
        assert_int_equal(sluice_worker_drain(b.near, 0, 0), 0);
        sched_yield();
        assert_int_equal(sluice_worker_drain(b.near, 0, 1), 0);
        atomic_fetch_add(&phase, 1);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_true(atomic_load(&verified) > 0);
    assert_int_equal(sessions(&b, 0) + sessions(&b, 1), THREADS * EACH);
    bench_close(&b);
}
