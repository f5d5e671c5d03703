/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * resume_threads_test.c - sessions on workers of the library, used by threads that do not own them, whose queue pairs break again and again,
 * and that move from worker to worker.
 */
#include "support/fault.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sluice/sluice.h>

#include "support/verdict.h"
#include "support/wait.h"

enum { SENDERS = 3, EACH = 6000, ASKED = 10, WORKERS = 3 };
#define RESUME_NS 60000000000ull

/* What one side's handler has seen. Its worker writes it. */
struct end {
    sluice_node *node;
    sem_t up, done;
    sluice_session session;
    _Atomic unsigned failures, received, downs, ups, moved, inside;
    unsigned next[SENDERS], told[SENDERS];
    unsigned outcomes, replies;
};

struct word {
    uint32_t sender, number;
};

static void take(struct end *e, const sluice_event *event) {
    const struct word *word = sluice_data(event->msg);
    if (word->sender >= SENDERS || word->number != e->next[word->sender]++)
        verdict_wrong_data("message %u of thread %u", word->number, word->sender);
    e->received++;
    sluice_msg *msg;
    if (event->type != SLUICE_REQUEST)
        return;
    if (sluice_alloc(e->node, 8, &msg) != 0 || sluice_reply(event->session, event->token, msg) != 0)
        e->failures++;
}

static void note(struct end *e, const sluice_event *event) {
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        e->session = event->session;
        if (event->tag == 0)
            sem_post(&e->up);
        else
            e->ups++;
        return;
    case SLUICE_DOWN:
        e->downs++;
        return;
    case SLUICE_MESSAGE:
    case SLUICE_REQUEST:
        take(e, event);
        return;
    case SLUICE_SENT:
    case SLUICE_REPLY:
        e->failures += event->status != 0;
        e->told[event->tag % SENDERS]++;
        if (++e->outcomes == SENDERS * EACH)
            sem_post(&e->done);
        return;
    case SLUICE_WRITABLE:
    case SLUICE_CLOSED:
        return;
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
    case SLUICE_DONE:
    case SLUICE_NOTIFIED:
        e->failures++;
        return;
    case SLUICE_MOVED:
        e->moved++;
        return;
    }
}

/* On one thread at a time. */
static void on_event(const sluice_event *event, void *arg) {
    struct end *e = arg;
    e->failures += atomic_fetch_add(&e->inside, 1) != 0;
    note(e, event);
    atomic_fetch_sub(&e->inside, 1);
}

struct sender {
    struct end *end;
    sluice_node *node;
    uint32_t number;
};

static int send_one(const struct sender *s, unsigned i) {
    sluice_msg *msg;
    const size_t bytes = sizeof(struct word) + i % 4 * 5000;
    int status = sluice_alloc(s->node, bytes, &msg);
    if (status != 0)
        return status;
    memset(sluice_data(msg), 0, bytes);
    *(struct word *)sluice_data(msg) = (struct word){s->number, i};
    const sluice_send_options *o = SLUICE_SEND(.tag = (uint64_t)i * SENDERS + s->number + SENDERS);
    status = i % ASKED == 0 ? sluice_request(s->end->session, msg, o)
                            : sluice_send(s->end->session, msg, o);
    if (status != 0)
        sluice_free(msg);
    return status;
}

static void *send_all(void *arg) {
    const struct sender *s = arg;
    sluice_session_info info = {.size = sizeof info};
    for (unsigned i = 0; i < EACH;) {
        int status = send_one(s, i);
        i += status == 0;
        if (status == 0)
            continue;
        if (status != SLUICE_EAGAIN || sluice_session_get_info(s->end->session, &info) != 0) {
            s->end->failures++;
            sem_post(&s->end->done);
            return NULL;
        }
        sched_yield();
    }
    return NULL;
}

static void open_ends(struct end ends[2], sluice_node *nodes[2]) {
    sluice_error e = {0};
    sluice_listener listener;
    sluice_session session;
    char address[64];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sem_init(&ends[i].up, 0, 0), 0);
        assert_int_equal(sem_init(&ends[i].done, 0, 0), 0);
        assert_int_equal(
            sluice_open(&nodes[i], SLUICE_NODE(.device = "soft", .workers = WORKERS), &e), 0);
        ends[i].node = nodes[i];
    }
    assert_int_equal(sluice_listen(nodes[0], "127.0.0.1:0",
                                   SLUICE_LINK(.handler = on_event, .handler_arg = &ends[0],
                                               .resume_ns = RESUME_NS),
                                   &listener, &e),
                     0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    assert_int_equal(sluice_dial(nodes[1], address,
                                 SLUICE_LINK(.handler = on_event, .handler_arg = &ends[1],
                                             .resume_ns = RESUME_NS),
                                 &session, &e),
                     0);
    for (unsigned i = 0; i < 2; i++)
        wait_semaphore(&ends[i].up);
}

struct mover {
    struct end *ends;
    _Atomic bool over;
};

/* From worker to worker, of each side, again and again. */
static void *move_all(void *arg) {
    struct mover *m = arg;
    for (unsigned i = 0; !m->over; i++) {
        int status = sluice_session_move_worker(m->ends[i % 2].session, i / 2 % WORKERS);
        if (status != 0 && status != SLUICE_EAGAIN && status != SLUICE_EINVAL &&
            status != SLUICE_ECLOSED)
            m->ends[i % 2].failures++;
        sched_yield();
    }
    return NULL;
}

static void run(bool breaks, bool moves) {
    struct end ends[2];
    sluice_node *nodes[2];
    struct sender senders[2][SENDERS];
    pthread_t threads[2][SENDERS];
    struct mover mover = {ends, false};
    pthread_t moving;
    memset(ends, 0, sizeof ends);
    if (breaks)
        fault_plan("qp=* send=400 status=RETRY_EXC_ERR");
    open_ends(ends, nodes);
    if (moves)
        assert_int_equal(pthread_create(&moving, NULL, move_all, &mover), 0);
    for (unsigned i = 0; i < 2 * SENDERS; i++) {
        struct sender *s = &senders[i % 2][i / 2];
        *s = (struct sender){&ends[i % 2], nodes[i % 2], i / 2};
        assert_int_equal(pthread_create(&threads[i % 2][i / 2], NULL, send_all, s), 0);
    }
    for (unsigned i = 0; i < 2 * SENDERS; i++)
        assert_int_equal(pthread_join(threads[i % 2][i / 2], NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        wait_semaphore(&ends[i].done);
    mover.over = true;
    if (moves)
        assert_int_equal(pthread_join(moving, NULL), 0);
    fault_clear();
    for (unsigned i = 0; i < 2; i++)
        sluice_close(nodes[i], 10000000000ull);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(ends[i].failures, 0);
        must_data_equal(ends[i].received, SENDERS * EACH);
        for (unsigned k = 0; k < SENDERS; k++)
            must_data_equal(ends[i].told[k], EACH);
        assert_true(!breaks || moves || ends[i].downs > 2); /* or nothing was tried */
        assert_true(!breaks || ends[0].downs + ends[1].downs > 0);
        assert_true(!moves || ends[0].moved + ends[1].moved > 2);
        assert_int_equal(ends[i].downs, ends[i].ups);
        assert_true(breaks || ends[i].downs == 0);
    }
}

TEST(messages_of_threads_arrive_once_whatever_breaks) {
    run(true, false);
}

TEST(messages_of_threads_arrive_once_wherever_they_move) {
    run(false, true);
    run(true, true);
}
