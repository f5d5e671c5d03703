/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Real threads: handlers on workers, senders from outside, loops with a descriptor, fork, closing. */
#include "support/child.h"
#include "support/test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice/sluice.h>

#include "common/sanitize.h"
#include "support/tasks.h"
#include "support/wait.h"
#include "support/usage.h"
#include "support/verdict.h"

#define LIMIT_S 60

static sluice_node *open_node(uint32_t workers, sluice_idle idle) {
    sluice_node *n;
    sluice_error e;
    if (sluice_open(&n, SLUICE_NODE(.device = "soft", .workers = workers, .idle = idle), &e) != 0)
        fail_msg("%s", e.text);
    return n;
}

/* ---- many senders ---------------------------------------------------------------------------- */

enum { SENDERS = 3, EACH = 4000 };

struct flow {
    sem_t up, finished, closed;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    unsigned openings; /* WRITABLE events: one for all threads that were told EAGAIN before it */
    sluice_session session;
    unsigned next[SENDERS], outcomes;
    _Atomic unsigned received, failures;
};

static void on_sender(const sluice_event *event, void *arg) {
    struct flow *flow = arg;
    switch (event->type) {
    case SLUICE_UP:
        flow->session = event->session;
        sem_post(&flow->up);
        break;
    case SLUICE_SENT:
        if (event->status != 0)
            flow->failures++;
        flow->outcomes++;
        break;
    case SLUICE_WRITABLE:
        pthread_mutex_lock(&flow->lock);
        flow->openings++;
        pthread_cond_broadcast(&flow->opened);
        pthread_mutex_unlock(&flow->lock);
        break;
    case SLUICE_CLOSED:
        sem_post(&flow->closed);
        break;
    }
}

static void on_receiver(const sluice_event *event, void *arg) {
    struct flow *flow = arg;
    if (event->type == SLUICE_CLOSED)
        sem_post(&flow->closed);
    if (event->type != SLUICE_MESSAGE)
        return;
    unsigned words[2];
    memcpy(words, sluice_data(event->msg), sizeof words);
    if (words[0] >= SENDERS || words[1] != flow->next[words[0]]++)
        verdict_wrong_data("message %u of thread %u", words[1], words[0]);
    if (++flow->received == SENDERS * EACH)
        sem_post(&flow->finished);
}

struct sender {
    struct flow *flow;
    unsigned number;
};

static unsigned openings(struct flow *flow) {
    pthread_mutex_lock(&flow->lock);
    unsigned count = flow->openings;
    pthread_mutex_unlock(&flow->lock);
    return count;
}

static void wait_for_opening(struct flow *flow, unsigned before) {
    pthread_mutex_lock(&flow->lock);
    while (flow->openings == before)
        pthread_cond_wait(&flow->opened, &flow->lock);
    pthread_mutex_unlock(&flow->lock);
}

static void *send_many(void *arg) {
    struct sender *me = arg;
    for (unsigned i = 0; i < EACH; i++) {
        unsigned words[200] = {me->number, i};
        size_t bytes = i % 50 == 0 ? sizeof words : sizeof words[0] * 2;
        int status;
        for (;;) {
            unsigned before = openings(me->flow);
            status = sluice_send_copy(me->flow->session, words, bytes, SLUICE_SEND(.tag = i + 1));
            if (status != SLUICE_EAGAIN)
                break;
            wait_for_opening(me->flow, before);
        }
        if (status != 0)
            me->flow->failures++;
    }
    return NULL;
}

TEST(several_threads_send_and_each_keeps_its_order) {
    struct flow flow = {0};
    sluice_error e;
    sluice_listener listener;
    sluice_session session;
    char address[32];
    pthread_t threads[SENDERS];
    struct sender senders[SENDERS];
    sem_init(&flow.up, 0, 0);
    pthread_mutex_init(&flow.lock, NULL);
    pthread_cond_init(&flow.opened, NULL);
    sem_init(&flow.finished, 0, 0);
    sem_init(&flow.closed, 0, 0);
    sluice_node *a = open_node(1, SLUICE_IDLE_ADAPTIVE), *b = open_node(2, SLUICE_IDLE_BLOCK);
    assert_int_equal(sluice_listen(a, "localhost:0",
                                   SLUICE_LINK(.handler = on_receiver, .handler_arg = &flow),
                                   &listener, &e),
                     0);
    snprintf(address, sizeof address, "localhost:%d", sluice_listener_port(listener));
    assert_int_equal(
        sluice_dial(b, address,
                    SLUICE_LINK(.handler = on_sender, .handler_arg = &flow, .window_messages = 64),
                    &session, &e),
        0);
    wait_semaphore(&flow.up);
    for (unsigned i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){&flow, i};
        pthread_create(&threads[i], NULL, send_many, &senders[i]);
    }
    wait_semaphore(&flow.finished);
    for (unsigned i = 0; i < SENDERS; i++)
        pthread_join(threads[i], NULL);
    sluice_hangup(session, 1000000000);
    wait_semaphore(&flow.closed);
    wait_semaphore(&flow.closed);
    sluice_close(b, 0);
    sluice_close(a, 0);
    assert_int_equal(flow.failures, 0);
    must_data_equal(flow.outcomes, SENDERS * EACH);
}

/* Threads that send while the session ends: every accepted send has an outcome, none after CLOSED. */
struct race {
    sem_t up, closed;
    sluice_session session;
    _Atomic unsigned accepted;
    unsigned outcomes;
    _Atomic bool over;
    unsigned late;
};

static void on_race(const sluice_event *event, void *arg) {
    struct race *race = arg;
    race->late += race->over;
    if (event->type == SLUICE_UP) {
        race->session = event->session;
        sem_post(&race->up);
    } else if (event->type == SLUICE_SENT) {
        race->outcomes++;
    } else if (event->type == SLUICE_CLOSED) {
        race->over = true;
        sem_post(&race->closed);
    }
}

static void on_nothing(const sluice_event *event, void *arg) {
    (void)event;
    (void)arg;
}

static void *send_until_closed(void *arg) {
    struct race *race = arg;
    int status;
    while ((status = sluice_send_copy(race->session, "x", 1, SLUICE_SEND(.tag = 7))) !=
           SLUICE_ECLOSED) {
        if (status == 0)
            race->accepted++;
        else
            sched_yield();
    }
    return NULL;
}

TEST(sends_that_race_with_the_end_have_an_outcome) {
    sluice_node *a = open_node(1, SLUICE_IDLE_ADAPTIVE), *b = open_node(1, SLUICE_IDLE_ADAPTIVE);
    sluice_listener listener;
    sluice_session session;
    sluice_error e;
    char address[32];
    assert_int_equal(
        sluice_listen(a, "127.0.0.1:0", SLUICE_LINK(.handler = on_nothing), &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    for (int round = 0; round < 40; round++) {
        struct race race = {0};
        pthread_t threads[2];
        sem_init(&race.up, 0, 0);
        sem_init(&race.closed, 0, 0);
        assert_int_equal(sluice_dial(b, address,
                                     SLUICE_LINK(.handler = on_race, .handler_arg = &race),
                                     &session, &e),
                         0);
        wait_semaphore(&race.up);
        for (int i = 0; i < 2; i++)
            pthread_create(&threads[i], NULL, send_until_closed, &race);
        while (race.accepted < 50)
            sched_yield();
        sluice_hangup(session, round & 1 ? 0 : 100000000);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        wait_semaphore(&race.closed);
        must_data_equal(race.outcomes, race.accepted);
        assert_int_equal(race.late, 0);
    }
    sluice_close(a, 0);
    sluice_close(b, 0);
}

/* ---- a loop in somebody else's epoll --------------------------------------------------------- */

TEST(the_descriptor_is_readable_when_there_is_work) {
    sluice_node *n = open_node(1, SLUICE_IDLE_BLOCK);
    sluice_loop *loop;
    sluice_error e;
    sluice_listener listener;
    sluice_session session;
    sluice_event event;
    char address[32];
    unsigned received = 0;
    struct flow flow = {0};
    sem_init(&flow.up, 0, 0);
    sem_init(&flow.closed, 0, 0);
    pthread_mutex_init(&flow.lock, NULL);
    pthread_cond_init(&flow.opened, NULL);
    assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
    struct pollfd fd = {sluice_fd(loop), POLLIN, 0};
    assert_true(fd.fd >= 0);
    assert_int_equal(sluice_poll(loop, &event, 1, 0), 0);
    assert_int_equal(poll(&fd, 1, 0), 0);
    sluice_wake(loop);
    assert_int_equal(poll(&fd, 1, LIMIT_S * 1000), 1);
    assert_int_equal(sluice_poll(loop, &event, 1, 0), 1);
    assert_int_equal(event.type, SLUICE_WAKE);
    assert_int_equal(sluice_listen(n, "127.0.0.1:0", SLUICE_LINK(.loop = loop), &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    assert_int_equal(sluice_dial(n, address,
                                 SLUICE_LINK(.handler = on_sender, .handler_arg = &flow), &session,
                                 &e),
                     0);
    for (;;) {
        int count;
        while ((count = sluice_poll(loop, &event, 1, 0)) == 1) {
            if (event.type == SLUICE_UP) { /* so the peer is up, or about to be */
                wait_semaphore(&flow.up);
                for (int i = 0; i < 100; i++)
                    assert_int_equal(sluice_send_copy(session, &i, sizeof i, NULL), 0);
            }
            if (event.type == SLUICE_MESSAGE && ++received == 100)
                sluice_hangup(session, 0);
            if (event.type == SLUICE_CLOSED)
                break;
        }
        if (count == 1)
            break;
        assert_int_equal(count, 0);
        assert_int_equal(poll(&fd, 1, LIMIT_S * 1000), 1);
    }
    must_data_equal(received, 100);
    sluice_unlisten(listener);
    sluice_close(n, 0);
    assert_int_equal(sluice_poll(loop, &event, 1, 0), SLUICE_ECLOSED);
}

static void *wake_later(void *arg) {
    sluice_wake(arg);
    return NULL;
}

TEST(a_sleeping_poll_is_woken) {
    sluice_node *n = open_node(SLUICE_NO_WORKERS, SLUICE_IDLE_ADAPTIVE);
    sluice_loop *loop;
    sluice_error e;
    sluice_event event;
    pthread_t thread;
    assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
    assert_int_equal(sluice_poll(loop, &event, 1, 1000000), 0); /* and a wait ends by itself */
    for (int i = 0; i < 100; i++) {
        pthread_create(&thread, NULL, wake_later, loop);
        assert_int_equal(sluice_poll(loop, &event, 1, SLUICE_OFF), 1);
        assert_int_equal(event.type, SLUICE_WAKE);
        pthread_join(thread, NULL);
    }
    assert_int_equal(sluice_loop_close(loop), 0);
    sluice_close(n, 0);
}

TEST(a_wait_ends_by_itself_whatever_the_idle_policy) {
    static const uint32_t policies[] = {SLUICE_IDLE_SPIN, SLUICE_IDLE_ADAPTIVE, SLUICE_IDLE_BLOCK};
    for (unsigned i = 0; i < 3; i++) {
        sluice_node *n = open_node(SLUICE_NO_WORKERS, policies[i]);
        sluice_loop *loop;
        sluice_error e;
        sluice_event event;
        assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
        uint64_t start = sluice_now();
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(sluice_poll(loop, &event, 1, 2000000), 0);
        assert_true(sluice_now() - start >= 6000000);
        sluice_close(n, 0);
    }
}

/* ---- closing --------------------------------------------------------------------------------- */

static void *poll_for_ever(void *arg) {
    sluice_event events[4];
    int status;
    while ((status = sluice_poll(arg, events, 4, SLUICE_OFF)) >= 0)
        ;
    return (void *)(intptr_t)status;
}

TEST(closing_ends_a_poll_that_sleeps) {
    for (int i = 0; i < 20; i++) {
        sluice_node *n = open_node(1, SLUICE_IDLE_ADAPTIVE);
        sluice_loop *loop;
        sluice_error e;
        sluice_listener listener;
        sluice_session session;
        pthread_t thread;
        char address[32];
        void *status;
        assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
        assert_int_equal(sluice_listen(n, "127.0.0.1:0", SLUICE_LINK(.loop = loop), &listener, &e),
                         0);
        snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
        pthread_create(&thread, NULL, poll_for_ever, loop);
        if (i & 1)
            assert_int_equal(
                sluice_dial(n, address, SLUICE_LINK(.handler = on_nothing), &session, &e), 0);
        sluice_close(n, i & 2 ? 1000000000 : 0);
        pthread_join(thread, &status);
        assert_int_equal((intptr_t)status, SLUICE_ECLOSED);
    }
}

/* A thread that ended may be listed a moment longer. */
static unsigned settled_threads(unsigned expected) {
    unsigned count = 0;
    for (int i = 0; i < 1000000 && (count = tasks_alive()) != expected; i++)
        sched_yield();
    return count;
}

TEST(nodes_leave_no_thread_and_no_descriptor) {
    sluice_close(open_node(1, SLUICE_IDLE_ADAPTIVE), 0); /* what a process makes once is made now */
    unsigned fds = usage_entries("/proc/self/fd");
    unsigned threads = tasks_alive();
    for (int i = 0; i < 30; i++) {
        sluice_node *n = open_node(2, SLUICE_IDLE_ADAPTIVE);
        sluice_loop *loop;
        sluice_error e;
        assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
        assert_true(sluice_fd(loop) >= 0);
        sluice_close(n, 0);
    }
    assert_int_equal(usage_entries("/proc/self/fd"), fds);
    assert_int_equal(settled_threads(threads), threads);
}

TEST(a_host_name_is_resolved_or_refused) {
    struct flow flow = {0};
    sluice_session session;
    sluice_error e;
    sem_init(&flow.closed, 0, 0);
    sluice_node *n = open_node(1, SLUICE_IDLE_ADAPTIVE);
    assert_int_equal(sluice_dial(n, "name.that.does.not.exist.invalid:1",
                                 SLUICE_LINK(.handler = on_sender, .handler_arg = &flow), &session,
                                 &e),
                     0);
    sluice_hangup(session, 0);
    wait_semaphore(&flow.closed);
    assert_int_equal(sluice_dial(n, "name.that.does.not.exist.invalid:1",
                                 SLUICE_LINK(.handler = on_sender, .handler_arg = &flow), &session,
                                 &e),
                     0);
    sluice_close(n, 0); /* does not wait for a name server */
    wait_semaphore(&flow.closed);
}

/* ---- fork ------------------------------------------------------------------------------------ */

static int child_of_fork(sluice_node *n, sluice_loop *loop, sluice_session session,
                         sluice_listener listener, sluice_msg *msg) {
    sluice_event event;
    sluice_error e;
    sluice_msg *other;
    sluice_node *new_node;
    sluice_loop *new_loop;
    sluice_session_info info = {.size = sizeof info};
    sluice_node_info node_info = {.size = sizeof node_info};
    int wrong = 0;
    wrong += sluice_loop_open(n, &new_loop, &e) != SLUICE_EFORKED;
    wrong += sluice_poll(loop, &event, 1, SLUICE_OFF) != SLUICE_EFORKED;
    wrong += sluice_fd(loop) != SLUICE_EFORKED;
    wrong += sluice_loop_close(loop) != SLUICE_EFORKED;
    wrong += sluice_alloc(n, 8, &other) != SLUICE_EFORKED;
    wrong += sluice_send(session, msg, NULL) != SLUICE_EFORKED;
    wrong += sluice_send_copy(session, "x", 1, NULL) != SLUICE_EFORKED;
    wrong += sluice_accept(session, NULL) != SLUICE_EFORKED;
    wrong += sluice_refuse(session, 0, NULL) != SLUICE_EFORKED;
    wrong += sluice_session_get_info(session, &info) != SLUICE_EFORKED;
    wrong += sluice_node_get_info(n, &node_info) != SLUICE_EFORKED;
    wrong += sluice_listener_port(listener) != SLUICE_EFORKED;
    wrong += sluice_dial(n, "127.0.0.1:1", NULL, &session, &e) != SLUICE_EFORKED;
    wrong += sluice_listen(n, "127.0.0.1:1", NULL, &listener, &e) != SLUICE_EFORKED;
    sluice_wake(loop);
    sluice_hangup(session, 0);
    sluice_unlisten(listener);
    sluice_free(msg);
    sluice_close(n, SLUICE_OFF);
    wrong += sluice_open(&new_node, NULL, &e) != 0; /* its own, and the others stay the parent's */
    wrong += sluice_alloc(new_node, 8, &other) != 0;
    wrong += sluice_send(session, other, NULL) != SLUICE_EFORKED;
    wrong += sluice_send(session, msg, NULL) != SLUICE_EFORKED;
    wrong += sluice_poll(loop, &event, 1, 0) != SLUICE_EFORKED;
    sluice_free(msg);
    sluice_free(other);
    sluice_close(n, 0);
    sluice_close(new_node, 0);
    return wrong;
}

TEST(a_forked_child_gets_errors_and_does_no_harm) {
    struct flow flow = {0};
    sluice_node *n = open_node(1, SLUICE_IDLE_ADAPTIVE);
    sluice_loop *loop;
    sluice_error e;
    sluice_listener listener;
    sluice_session session;
    sluice_msg *msg;
    sluice_event event;
    char address[32];
    sem_init(&flow.up, 0, 0);
    sem_init(&flow.closed, 0, 0);
    assert_int_equal(sluice_loop_open(n, &loop, &e), 0);
    assert_int_equal(sluice_listen(n, "127.0.0.1:0", SLUICE_LINK(.loop = loop), &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    assert_int_equal(sluice_dial(n, address,
                                 SLUICE_LINK(.handler = on_sender, .handler_arg = &flow), &session,
                                 &e),
                     0);
    assert_int_equal(sluice_poll(loop, &event, 1, SLUICE_OFF), 1);
    assert_int_equal(event.type, SLUICE_UP);
    wait_semaphore(&flow.up);
    assert_int_equal(sluice_alloc(n, 8, &msg), 0);
#ifndef SANITIZE_THREAD /* which knows no threads in the child of a process that had some */
    pid_t pid = child_fork();
    if (pid == 0)
        _exit(child_of_fork(n, loop, session, listener, msg));
    assert_int_equal(wait_exit(pid), 0);
#else
    (void)child_of_fork;
#endif
    assert_int_equal(sluice_send(session, msg, NULL), 0);
    assert_int_equal(sluice_poll(loop, &event, 1, SLUICE_OFF), 1);
    assert_int_equal(event.type, SLUICE_MESSAGE);
    sluice_close(n, 0);
    wait_semaphore(&flow.closed);
}
