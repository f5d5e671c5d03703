/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_channel_test.c - event channels: fetching, polling, acknowledging, USER events, migration.
 */
#include "support/softcm.h"

#include <sys/time.h>

static struct rdma_event_channel *channel;
static struct rdma_cm_id *id;

static int setup(void **state) {
    (void)state;
    channel = soft_create_event_channel();
    id = channel ? ct_id(channel) : NULL;
    return id ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL); /* of a test that failed */
    if (id)
        soft_destroy_id(id);
    soft_destroy_event_channel(channel);
    return 0;
}

static void write_user(struct rdma_cm_id *to, int status, uint64_t arg) {
    assert_int_equal(
        soft_write_cm_event(to, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, status, arg), 0);
}

static uint64_t arg_of(const struct rdma_cm_event *event) {
    uint64_t arg;
    memcpy(&arg, &event->param, sizeof arg);
    return arg;
}

/* ---- fetching ------------------------------------------------------------------------------------- */

#define CHANNEL_TEST(name) TEST_WITH(setup, teardown, name)

CHANNEL_TEST(null_arguments_give_einval) {
    assert_fails(soft_get_cm_event(channel, NULL), EINVAL);
    assert_fails(soft_ack_cm_event(NULL), EINVAL);
    assert_fails(soft_destroy_id(NULL), EINVAL);
    assert_fails(soft_create_id(channel, NULL, NULL, RDMA_PS_TCP), EINVAL);
    struct rdma_cm_id *other;
    assert_fails(soft_create_id(channel, &other, NULL, (enum rdma_port_space)77), EINVAL);
}

CHANNEL_TEST(fd_is_readable_exactly_while_events_are_queued) {
    struct rdma_cm_event *event[2];
    assert_false(ct_readable(channel, 0));
    write_user(id, 0, 1);
    write_user(id, 0, 2);
    assert_true(ct_readable(channel, 0));
    assert_int_equal(soft_get_cm_event(channel, &event[0]), 0);
    assert_true(ct_readable(channel, 0));
    assert_int_equal(soft_get_cm_event(channel, &event[1]), 0);
    assert_false(ct_readable(channel, 0));
    soft_ack_cm_event(event[1]); /* any order */
    soft_ack_cm_event(event[0]);
}

#define FETCHERS 4
#define FETCHES 200

static int fetch_many(void *sum) {
    for (int i = 0; i < FETCHES; i++) {
        struct rdma_cm_event *event;
        if (soft_get_cm_event(channel, &event))
            return -1;
        atomic_fetch_add((atomic_ulong *)sum, arg_of(event));
        soft_ack_cm_event(event);
    }
    return 0;
}

CHANNEL_TEST(several_threads_fetch_each_event_once) {
    atomic_ulong sum = 0;
    struct ct_thread fetchers[FETCHERS];
    for (int i = 0; i < FETCHERS; i++)
        ct_thread_start(&fetchers[i], fetch_many, &sum);
    unsigned long expected = 0;
    for (unsigned long i = 1; i <= FETCHERS * FETCHES; i++) {
        write_user(id, 0, i);
        expected += i;
    }
    for (int i = 0; i < FETCHERS; i++)
        assert_int_equal(ct_thread_join(&fetchers[i]), 0);
    assert_int_equal(sum, expected);
    assert_false(ct_readable(channel, 0));
}

CHANNEL_TEST(ids_of_a_channel_share_one_fifo) {
    struct rdma_cm_id *other = ct_id(channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 1);
    write_user(id, 0, 1);
    soft_resolve_addr(other, NULL, (struct sockaddr *)&dst, 1000);
    write_user(other, 0, 2);
    struct rdma_cm_event *event = ct_expect(channel, SOFT_CM_EVENT_USER);
    assert_ptr_equal(event->id, id);
    soft_ack_cm_event(event);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    event = ct_expect(channel, SOFT_CM_EVENT_USER);
    assert_ptr_equal(event->id, other);
    soft_ack_cm_event(event);
    soft_destroy_id(other);
}

/* ---- rdma_write_cm_event --------------------------------------------------------------------------- */

CHANNEL_TEST(user_event_arrives_verbatim) {
    write_user(id, -12345, 0xfedcba9876543210u);
    struct rdma_cm_event *event = ct_expect(channel, SOFT_CM_EVENT_USER);
    assert_ptr_equal(event->id, id);
    assert_null(event->listen_id);
    assert_int_equal(event->status, -12345);
    assert_true(arg_of(event) == 0xfedcba9876543210u);
    soft_ack_cm_event(event);
}

CHANNEL_TEST(only_user_events_may_be_written) {
    for (int type = 0; type < 32; type++)
        if (type != SOFT_CM_EVENT_USER)
            assert_fails(soft_write_cm_event(id, (enum rdma_cm_event_type)type, 0, 0), EINVAL);
    assert_fails(soft_write_cm_event(NULL, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0),
                 EINVAL);
    assert_false(ct_readable(channel, 0));
}

static void write_from_handler(int number) {
    (void)soft_write_cm_event(id, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, number, 77);
}

CHANNEL_TEST(user_event_from_a_signal_handler) {
    struct sigaction action = {.sa_handler = write_from_handler}, old;
    sigaction(SIGUSR1, &action, &old);
    raise(SIGUSR1);
    struct rdma_cm_event *event = ct_expect(channel, SOFT_CM_EVENT_USER);
    assert_int_equal(event->status, SIGUSR1);
    assert_int_equal(arg_of(event), 77);
    soft_ack_cm_event(event);
    sigaction(SIGUSR1, &old, NULL);
}

static atomic_int written_by_handler;

static void count_from_handler(int number) {
    (void)number;
    int saved = errno;
    if (!soft_write_cm_event(id, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 1, 0))
        atomic_fetch_add(&written_by_handler, 1);
    errno = saved;
}

/*
 * The handler runs in the middle of fetches, writes and acknowledgements of the same thread: once a round at most, after a
 * part of what a round takes here, another one each time. More often it would fill the channel where calls are slow.
 */
CHANNEL_TEST(signal_handler_may_write_at_any_instruction) {
    struct sigaction action = {.sa_handler = count_from_handler, .sa_flags = SA_RESTART}, old;
    sigaction(SIGALRM, &action, &old);
    int seen = 0;
    uint64_t round_us = 1;
    for (unsigned own = 0; own < 10000; own++) {
        uint64_t begun = soft_now_ns();
        struct itimerval timer = {.it_value.tv_usec = 1 + (suseconds_t)(own * 7919ull % round_us)};
        setitimer(ITIMER_REAL, &timer, NULL);
        write_user(id, 0, 0);
        for (bool handlers = true; handlers;) { /* all in front of it */
            struct rdma_cm_event *event = ct_expect(channel, SOFT_CM_EVENT_USER);
            handlers = event->status != 0;
            seen += handlers;
            soft_ack_cm_event(event);
        }
        uint64_t took_us = (soft_now_ns() - begun) / 1000;
        round_us = took_us < 1 ? 1 : took_us < 500000 ? took_us : 500000;
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    while (ct_readable(channel, 0)) {
        struct rdma_cm_event *event = ct_expect(channel, SOFT_CM_EVENT_USER);
        seen += event->status;
        soft_ack_cm_event(event);
    }
    sigaction(SIGALRM, &old, NULL);
    assert_int_equal(seen, atomic_load(&written_by_handler));
    assert_true(seen > 1000);
}

CHANNEL_TEST(user_events_are_bounded_by_enomem) {
    for (int i = 0; i < SOFT_CM_USER_EVENTS_MAX; i++)
        write_user(id, i, 0);
    assert_fails(soft_write_cm_event(id, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0),
                 ENOMEM);
    for (int i = 0; i < SOFT_CM_USER_EVENTS_MAX; i++)
        assert_int_equal(ct_take(channel, SOFT_CM_EVENT_USER), i);
    write_user(id, 0, 0);
    ct_take(channel, SOFT_CM_EVENT_USER);
}

CHANNEL_TEST(user_event_in_every_state) {
    struct ct_pair pair;
    ct_pair_up(&pair);
    write_user(pair.listener, 1, 0);
    assert_int_equal(ct_take(pair.passive_channel, SOFT_CM_EVENT_USER), 1);
    write_user(pair.active, 2, 0);
    assert_int_equal(ct_take(pair.active_channel, SOFT_CM_EVENT_USER), 2);
    soft_disconnect(pair.active);
    ct_take(pair.passive_channel, RDMA_CM_EVENT_DISCONNECTED);
    write_user(pair.passive, 3, 0);
    assert_int_equal(ct_take(pair.passive_channel, SOFT_CM_EVENT_USER), 3);
    ct_pair_free(&pair);
}

/* ---- acknowledging and destroying -------------------------------------------------------------------- */

CHANNEL_TEST(destroy_blocks_until_every_fetched_event_is_acked) {
    write_user(id, 0, 0);
    write_user(id, 0, 0);
    struct rdma_cm_event *first = ct_expect(channel, SOFT_CM_EVENT_USER);
    struct rdma_cm_event *second = ct_expect(channel, SOFT_CM_EVENT_USER);
    struct ct_thread destroyer;
    ct_thread_start(&destroyer, softcm_destroy_call, id);
    softcm_until(softcm_state(id) == SOFT_CM_DEAD);
    soft_ack_cm_event(first);
    assert_false(atomic_load(&destroyer.done));
    soft_ack_cm_event(second);
    assert_int_equal(ct_thread_join(&destroyer), 0);
    id = NULL;
}

CHANNEL_TEST(destroy_discards_unfetched_events_and_their_tokens) {
    struct rdma_cm_id *other = ct_id(channel);
    write_user(other, 1, 0);
    write_user(id, 2, 0);
    write_user(other, 3, 0);
    assert_int_equal(soft_destroy_id(other), 0);
    assert_true(ct_readable(channel, 0));
    assert_int_equal(ct_take(channel, SOFT_CM_EVENT_USER), 2);
    assert_false(ct_readable(channel, 0));
}

static int fetch_one(void *out) {
    return soft_get_cm_event(channel, out);
}

/* A fetcher that took the token of a discarded event goes back to waiting and loses nothing. */
CHANNEL_TEST(discarding_never_disturbs_a_waiting_fetcher) {
    for (int round = 0; round < 300; round++) {
        struct rdma_cm_event *event = NULL;
        struct rdma_cm_id *other = ct_id(channel);
        struct ct_thread fetcher, destroyer;
        ct_thread_start(&fetcher, fetch_one, &event);
        write_user(other, 1, 0);
        ct_thread_start(&destroyer, softcm_destroy_call, other);
        write_user(id, 2, 0);
        assert_int_equal(ct_thread_join(&fetcher), 0);
        int status = event->status;
        soft_ack_cm_event(event);
        assert_int_equal(ct_thread_join(&destroyer), 0);
        if (status == 1)
            assert_int_equal(ct_take(channel, SOFT_CM_EVENT_USER), 2);
        assert_false(ct_readable(channel, 0));
    }
}

CHANNEL_TEST(destroying_the_channel_ends_its_ids) {
    struct ct_pair pair;
    ct_pair_up(&pair);
    soft_destroy_event_channel(pair.passive_channel); /* ids still on it: peers see them die */
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    soft_destroy_id(pair.active);
    struct rdma_cm_id *late = ct_connect(pair.active_channel, pair.port);
    assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED), 8);
    soft_destroy_id(late);
    soft_destroy_id(pair.passive);
    soft_destroy_id(pair.listener);
    soft_destroy_event_channel(pair.active_channel);
}

static int fetch_once(void *arg) {
    struct rdma_cm_event *event;
    if (soft_get_cm_event(arg, &event) != 0)
        return errno;
    soft_ack_cm_event(event);
    return 0;
}

static void interrupted(int number) {
    (void)number;
}

static bool waits_in(struct rdma_event_channel *of) {
    struct soft_cm_channel *own = (struct soft_cm_channel *)of;
    pthread_mutex_lock(&own->mutex);
    bool inside = own->inside != 0;
    pthread_mutex_unlock(&own->mutex);
    return inside;
}

/* As where the kernel holds it: programs end so, with a thread in rdma_get_cm_event. */
CHANNEL_TEST(whoever_waits_in_a_channel_is_not_woken_by_its_end) {
    struct sigaction action = {.sa_handler = interrupted}, before;
    sigaction(SIGUSR1, &action, &before);
    for (int i = 0; i < 300; i++) {
        struct rdma_event_channel *mine = soft_create_event_channel();
        struct rdma_cm_id *other = ct_id(mine);
        struct ct_thread fetcher;
        ct_thread_start(&fetcher, fetch_once, mine);
        while (!waits_in(mine))
            sched_yield();
        write_user(other, 1,
                   0); /* fetched, or taken back from a thread that has its token already */
        assert_int_equal(soft_destroy_id(other), 0);
        soft_destroy_event_channel(mine);
        while (!atomic_load(&fetcher.done)) {
            pthread_kill(fetcher.thread, SIGUSR1);
            sched_yield();
        }
        int result = ct_thread_join(&fetcher);
        assert_true(result == 0 || result == EINTR);
    }
    sigaction(SIGUSR1, &before, NULL);
}

/* ---- migration ---------------------------------------------------------------------------------------- */

CHANNEL_TEST(migrate_moves_unfetched_events_in_order) {
    struct rdma_event_channel *to = soft_create_event_channel();
    struct rdma_cm_id *other = ct_id(to);
    write_user(id, 1, 0);
    write_user(id, 2, 0);
    write_user(other, 9, 0);
    assert_int_equal(soft_migrate_id(id, to), 0);
    assert_ptr_equal(id->channel, to);
    assert_false(ct_readable(channel, 0));
    write_user(id, 3, 0);
    assert_int_equal(ct_take(to, SOFT_CM_EVENT_USER), 9);
    for (int i = 1; i <= 3; i++)
        assert_int_equal(ct_take(to, SOFT_CM_EVENT_USER), i);
    assert_int_equal(soft_migrate_id(id, channel), 0);
    soft_destroy_id(other);
    soft_destroy_event_channel(to);
}

struct migration {
    struct rdma_cm_id *id;
    struct rdma_event_channel *to;
};

static int migrate_call(void *arg) {
    struct migration *migration = arg;
    return soft_migrate_id(migration->id, migration->to);
}

CHANNEL_TEST(migrate_blocks_until_fetched_events_are_acked) {
    struct migration migration = {id, soft_create_event_channel()};
    write_user(id, 1, 0);
    struct rdma_cm_event *event = ct_expect(channel, SOFT_CM_EVENT_USER);
    write_user(id, 2, 0);
    struct ct_thread migrator;
    ct_thread_start(&migrator, migrate_call, &migration);
    assert_true(ct_readable(migration.to, SOFTCM_WAIT_MS)); /* already moved */
    assert_false(atomic_load(&migrator.done));
    soft_ack_cm_event(event);
    assert_int_equal(ct_thread_join(&migrator), 0);
    assert_int_equal(ct_take(migration.to, SOFT_CM_EVENT_USER), 2);
    assert_int_equal(soft_migrate_id(id, channel), 0);
    soft_destroy_event_channel(migration.to);
}

CHANNEL_TEST(migrated_listener_takes_its_requests_along) {
    struct ct_pair pair;
    ct_pair_listen(&pair);
    pair.active = ct_connect(pair.active_channel, pair.port);
    assert_true(ct_readable(pair.passive_channel, SOFTCM_WAIT_MS));
    assert_int_equal(soft_migrate_id(pair.listener, channel), 0);
    assert_false(ct_readable(pair.passive_channel, 0));
    pair.passive = ct_request(channel);
    assert_ptr_equal(pair.passive->channel, channel);
    /* Later ones come here as well. */
    struct rdma_cm_id *second = ct_connect(pair.active_channel, pair.port);
    struct rdma_cm_id *request = ct_request(channel);
    soft_destroy_id(request);
    ct_take(pair.active_channel, RDMA_CM_EVENT_REJECTED);
    soft_destroy_id(second);
    ct_pair_free(&pair);
}

static atomic_bool stop_writing;
static atomic_ulong wrote, took;

/* No more at a time than are moved quickly, which takes some system calls for each. */
static int write_until_stopped(void *to) {
    while (!atomic_load(&stop_writing))
        if (atomic_load(&wrote) - atomic_load(&took) >= 100)
            sched_yield();
        else if (!soft_write_cm_event(to, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0))
            atomic_fetch_add(&wrote, 1);
    return 0;
}

/* Written while the id changes channels: every event is on one of them, and the token with it. */
CHANNEL_TEST(migration_loses_no_event_of_a_concurrent_writer) {
    struct rdma_event_channel *to[2] = {channel, soft_create_event_channel()};
    struct ct_thread writer;
    atomic_store(&stop_writing, false);
    ct_thread_start(&writer, write_until_stopped, id);
    for (int i = 1; i <= 500; i++) {
        assert_int_equal(soft_migrate_id(id, to[i % 2]), 0);
        for (int n = 0; n < 20 && ct_readable(to[i % 2], 0); n++) {
            ct_take(to[i % 2], SOFT_CM_EVENT_USER);
            atomic_fetch_add(&took, 1);
        }
    }
    atomic_store(&stop_writing, true);
    ct_thread_join(&writer);
    for (int i = 0; i < 2; i++)
        for (; ct_readable(to[i], 0); atomic_fetch_add(&took, 1))
            ct_take(to[i], SOFT_CM_EVENT_USER);
    assert_int_equal(atomic_load(&took), atomic_load(&wrote));
    soft_migrate_id(id, channel);
    soft_destroy_event_channel(to[1]);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
