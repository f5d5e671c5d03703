/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Requests asked, answered and given up from threads that do not own the session. */
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sluice/sluice.h>

#include "support/wait.h"
#include "support/verdict.h"

enum { ASKERS = 3, EACH = 3000, ANSWERERS = 2, BOX = 512 };

struct job {
    sluice_session session;
    uint64_t token;
    sluice_msg *msg;
};

struct office {
    sem_t up, finished, closed, jobs;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    unsigned openings;
    sluice_node *node; /* the askers' */
    sluice_session session;
    struct job box[BOX];
    unsigned put, got;
    bool over;
    _Atomic unsigned failures;
    unsigned outcomes[ASKERS * EACH], total, by_status[2];
};

static void on_asker(const sluice_event *event, void *arg) {
    struct office *o = arg;
    switch (event->type) {
    case SLUICE_UP:
        o->session = event->session;
        sem_post(&o->up);
        break;
    case SLUICE_REPLY:
        o->outcomes[event->tag - 1]++;
        if (event->status != 0 && event->status != SLUICE_ECANCELLED &&
            event->status != SLUICE_EREJECTED)
            o->failures++;
        if (event->status == 0 && *(uint64_t *)sluice_data(event->msg) != event->tag)
            verdict_wrong_data("the reply to request %llu is another's",
                               (unsigned long long)event->tag);
        o->by_status[event->status != 0]++;
        if (++o->total == ASKERS * EACH)
            sem_post(&o->finished);
        break;
    case SLUICE_WRITABLE:
        pthread_mutex_lock(&o->lock);
        o->openings++;
        pthread_cond_broadcast(&o->opened);
        pthread_mutex_unlock(&o->lock);
        break;
    case SLUICE_CLOSED:
        sem_post(&o->closed);
        break;
    default:
        o->failures++;
        break;
    }
}

static void on_server(const sluice_event *event, void *arg) {
    struct office *o = arg;
    if (event->type != SLUICE_REQUEST)
        return;
    sluice_keep(event->msg);
    pthread_mutex_lock(&o->lock);
    o->box[o->put++ % BOX] = (struct job){event->session, event->token, event->msg};
    pthread_mutex_unlock(&o->lock);
    sem_post(&o->jobs);
}

/* Another thread of the server. */
static void *answer(void *arg) {
    struct office *o = arg;
    for (;;) {
        wait_semaphore(&o->jobs);
        pthread_mutex_lock(&o->lock);
        if (o->over) {
            pthread_mutex_unlock(&o->lock);
            return NULL;
        }
        struct job job = o->box[o->got++ % BOX];
        pthread_mutex_unlock(&o->lock);
        uint64_t number = *(uint64_t *)sluice_data(job.msg);
        int status = number % 5 == 0 ? sluice_reply_error(job.session, job.token, (uint32_t)number)
                                     : sluice_reply(job.session, job.token, job.msg);
        if (number % 5 == 0)
            sluice_free(job.msg);
        if (status != 0 && number % 5 != 0)
            sluice_free(job.msg);
        if (status == SLUICE_ECLOSED)
            continue; /* one that was given up; nobody waited */
        if (status != 0)
            o->failures++;
        status = sluice_reply_error(job.session, job.token, 1); /* once */
        if (status != SLUICE_EINVAL && status != SLUICE_ECLOSED)
            o->failures++;
    }
}

struct asker {
    struct office *o;
    unsigned index;
    bool gives_up;
};

static void *ask(void *arg) {
    struct asker *a = arg;
    struct office *o = a->o;
    for (unsigned i = 0; i < EACH; i++) {
        uint64_t tag = a->index * EACH + i + 1;
        sluice_msg *msg;
        if (sluice_alloc(o->node, 32, &msg) != 0) {
            o->failures++;
            return NULL;
        }
        memcpy(sluice_data(msg), &tag, sizeof tag);
        for (;;) {
            pthread_mutex_lock(&o->lock);
            unsigned seen = o->openings;
            pthread_mutex_unlock(&o->lock);
            int status = sluice_request(o->session, msg, SLUICE_SEND(.tag = tag));
            if (status == 0)
                break;
            if (status != SLUICE_EAGAIN) {
                o->failures++;
                return NULL;
            }
            pthread_mutex_lock(&o->lock);
            while (o->openings == seen)
                pthread_cond_wait(&o->opened, &o->lock);
            pthread_mutex_unlock(&o->lock);
        }
        if (a->gives_up && i % 3 == 0)
            sluice_cancel(o->session, tag);
    }
    return NULL;
}

static void many_threads(bool gives_up) {
    struct office *o = test_calloc(1, sizeof *o);
    sluice_node *server;
    sluice_listener listener;
    sluice_session session;
    sluice_error e;
    char address[64];
    sem_init(&o->up, 0, 0);
    sem_init(&o->finished, 0, 0);
    sem_init(&o->closed, 0, 0);
    sem_init(&o->jobs, 0, 0);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->opened, NULL);
    assert_int_equal(sluice_open(&server, SLUICE_NODE(.device = "soft"), &e), 0);
    assert_int_equal(sluice_open(&o->node, SLUICE_NODE(.device = "soft"), &e), 0);
    assert_int_equal(sluice_listen(server, "127.0.0.1:0",
                                   SLUICE_LINK(.handler = on_server, .handler_arg = o), &listener,
                                   &e),
                     0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    assert_int_equal(sluice_dial(o->node, address,
                                 SLUICE_LINK(.handler = on_asker, .handler_arg = o, .requests = 32),
                                 &session, &e),
                     0);
    wait_semaphore(&o->up);
    pthread_t askers[ASKERS], answerers[ANSWERERS];
    struct asker args[ASKERS];
    for (unsigned i = 0; i < ANSWERERS; i++)
        assert_int_equal(pthread_create(&answerers[i], NULL, answer, o), 0);
    for (unsigned i = 0; i < ASKERS; i++) {
        args[i] = (struct asker){o, i, gives_up};
        assert_int_equal(pthread_create(&askers[i], NULL, ask, &args[i]), 0);
    }
    for (unsigned i = 0; i < ASKERS; i++)
        pthread_join(askers[i], NULL);
    wait_semaphore(&o->finished);
    sluice_hangup(session, 0);
    wait_semaphore(&o->closed);
    sluice_close(o->node, 0);
    pthread_mutex_lock(&o->lock);
    o->over = true;
    pthread_mutex_unlock(&o->lock);
    for (unsigned i = 0; i < ANSWERERS; i++)
        sem_post(&o->jobs);
    for (unsigned i = 0; i < ANSWERERS; i++)
        pthread_join(answerers[i], NULL);
    sluice_close(server, 0);
    assert_int_equal(o->failures, 0);
    for (unsigned i = 0; i < ASKERS * EACH; i++)
        must_data_equal(o->outcomes[i], 1);
    if (!gives_up)
        assert_int_equal(o->by_status[1], ASKERS * EACH / 5);
    else
        assert_true(o->by_status[1] > ASKERS * EACH / 5);
    test_free(o);
}

TEST(other_threads_may_ask_and_answer) {
    many_threads(false);
}

TEST(other_threads_may_give_up) {
    many_threads(true);
}
