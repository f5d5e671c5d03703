/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * worker_move_test.c - a worker is emptied while its sessions are in traffic: they go to the others, and lose nothing.
 */
#define _GNU_SOURCE
#include "support/pair.h"

#include <semaphore.h>
#include <time.h>

#include "datapath/loop/loop.h"
#include "node/node.h"
#include "support/verdict.h"
#include "support/wait.h"
#include "support/where.h"

enum { WORKERS = 3, MOST = 1000, LISTENER = 0, DIALER = 1 };
#define RESUME_NS 60000000000ull

/* A message goes back and forth in each session. */
struct word {
    uint32_t session, number;
};

static struct {
    sluice_node *nodes[2];
    unsigned count;
    _Atomic uint32_t failures, ups, moved[2], rounds[MOST]; /* their workers write these */
    _Atomic bool over;
    uint32_t seen[MOST]; /* by the listener's side */
    sem_t up;
} t;

static void send_word(unsigned who, sluice_session session, struct word word) {
    sluice_msg *msg;
    int status = sluice_alloc(t.nodes[who], sizeof word, &msg);
    if (status == 0) {
        memcpy(sluice_data(msg), &word, sizeof word);
        status = sluice_send(session, msg, NULL);
    }
    t.failures += status != 0 && !t.over;
}

static void take(unsigned who, const sluice_event *event) {
    struct word word;
    memcpy(&word, sluice_data(event->msg), sizeof word);
    if (who == LISTENER) {
        must_data_equal(word.number, t.seen[word.session]);
        t.seen[word.session]++;
    } else {
        must_data_equal(word.number, t.rounds[word.session]);
        t.rounds[word.session]++;
        word.number++;
    }
    if (!t.over)
        send_word(who, event->session, word);
}

static void see(unsigned who, const sluice_event *event) {
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        t.ups++;
        sem_post(&t.up);
        return;
    case SLUICE_MESSAGE:
        take(who, event);
        return;
    case SLUICE_MOVED:
        t.moved[who]++;
        /* Of its own thread's calls, which it may make already: there is no such request. */
        t.failures += sluice_request_wanted(event->session, 1) != SLUICE_EINVAL;
        return;
    case SLUICE_CLOSED:
        t.failures += !t.over;
        return;
    case SLUICE_WRITABLE:
    case SLUICE_SENT:
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
    case SLUICE_REQUEST:
    case SLUICE_REPLY:
    case SLUICE_DONE:
    case SLUICE_NOTIFIED:
    case SLUICE_DOWN:
        t.failures++;
        return;
    }
}

static void on_listener(const sluice_event *event, void *arg) {
    (void)arg;
    see(LISTENER, event);
}

static void on_dialer(const sluice_event *event, void *arg) {
    if (event->type == SLUICE_UP)
        send_word(DIALER, event->session, (struct word){(uint32_t)(uintptr_t)arg, 0});
    see(DIALER, event);
}

static void open_all(void) {
    sluice_error e = {0};
    sluice_listener listener;
    sluice_session session;
    char address[64];
    memset(&t, 0, sizeof t);
    t.count = it_long() ? MOST : 40;
    assert_int_equal(sem_init(&t.up, 0, 0), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(
            sluice_open(&t.nodes[i], SLUICE_NODE(.device = "soft", .workers = WORKERS), &e), 0);
    assert_int_equal(sluice_listen(t.nodes[LISTENER], "127.0.0.1:0",
                                   SLUICE_LINK(.handler = on_listener, .resume_ns = RESUME_NS),
                                   &listener, &e),
                     0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    for (uintptr_t i = 0; i < t.count; i++)
        assert_int_equal(sluice_dial(t.nodes[DIALER], address,
                                     SLUICE_LINK(.handler = on_dialer, .handler_arg = (void *)i,
                                                 .resume_ns = RESUME_NS),
                                     &session, &e),
                         0);
    for (unsigned i = 0; i < 2 * t.count; i++)
        wait_semaphore(&t.up);
}

static void close_all(void) {
    t.over = true;
    for (unsigned i = 0; i < 2; i++)
        sluice_close(t.nodes[i], 0);
    assert_int_equal(t.failures, 0);
    assert_int_equal(t.ups, 2 * t.count);
}

#define wait_until(condition)                                                                      \
    for (uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS; !(condition);                     \
         nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL))                                  \
    assert_true(env_now(&env_default) < limit)

/* Every session is in traffic. */
static void go_round(void) {
    uint32_t before[MOST];
    for (unsigned i = 0; i < t.count; i++)
        before[i] = t.rounds[i];
    for (unsigned i = 0; i < t.count; i++)
        wait_until(t.rounds[i] - before[i] >= 10);
}

static uint32_t sessions_on(unsigned who, unsigned worker) {
    return atomic_load(&t.nodes[who]->workers[worker].loop->assigned);
}

static bool is_emptied(unsigned who, unsigned worker) {
    assert_int_equal(sluice_worker_drain(t.nodes[who], worker, SLUICE_DRAIN_MOVE), 0);
    return sessions_on(who, worker) == 0;
}

TEST(a_worker_is_emptied_while_its_sessions_are_in_traffic) {
    open_all();
    for (unsigned i = 0; i < 2 * WORKERS; i++) {
        unsigned who = i % 2, worker = i / 2;
        assert_true(sessions_on(who, worker) > 0);
        wait_until(is_emptied(who, worker));
        go_round();
        assert_int_equal(sessions_on(who, worker), 0);
        assert_int_equal(sluice_worker_drain(t.nodes[who], worker, 0), 0);
    }
    for (unsigned who = 0; who < 2; who++)
        assert_true(t.moved[who] >= t.count);
    close_all();
}

/* In the middle of that, with a grace: as any other session, and none is lost. */
TEST(a_node_is_closed_while_its_sessions_move) {
    for (unsigned i = 0; i < 8; i++) {
        open_all();
        t.over = true;
        assert_int_equal(sluice_worker_drain(t.nodes[i % 2], 0, SLUICE_DRAIN_MOVE), 0);
        wait_until(i % 4 < 2 || t.moved[i % 2] > 0);
        sluice_close(t.nodes[i % 2], 10000000000ull);
        sluice_close(t.nodes[1 - i % 2], 0);
        assert_int_equal(t.failures, 0);
    }
}

TEST(where_no_worker_takes_sessions_they_stay) {
    open_all();
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(sluice_worker_drain(t.nodes[DIALER], i, 1), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(sluice_worker_drain(t.nodes[DIALER], i, SLUICE_DRAIN_MOVE), 0);
    go_round();
    assert_int_equal(t.moved[LISTENER] + t.moved[DIALER], 0);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_true(sessions_on(DIALER, i) > 0);
    close_all();
}
