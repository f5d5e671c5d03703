/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Real threads: operations and pieces from threads that own no loop, and regions opened meanwhile. */
#include "support/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sluice/memory.h>

#include "support/wait.h"
#include "support/verdict.h"

enum { THREADS = 3, EACH = 400, BYTES = 3000, LIMIT_S = 60 };
#define RIGHTS (SLUICE_MAY_READ | SLUICE_MAY_WRITE | SLUICE_MAY_ATOMIC)

static struct {
    sem_t up, closed;
    sluice_node *near, *far;
    sluice_session session;
    sluice_region *there, *here;
    sluice_token token;
    _Atomic unsigned done, wrong, notified, messages;
    _Atomic uint64_t sum;
} all;

static void on_near(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_UP) {
        all.session = event->session;
        sem_post(&all.up);
    }
    if (event->type == SLUICE_DONE) {
        all.wrong += event->status != 0;
        all.sum += event->tag == 7 ? event->value : 0;
        all.done++;
    }
    if (event->type == SLUICE_CLOSED)
        sem_post(&all.closed);
}

static void on_far(const sluice_event *event, void *arg) {
    (void)arg;
    all.notified += event->type == SLUICE_NOTIFIED;
    if (event->type == SLUICE_MESSAGE) {
        const uint8_t *data = sluice_data(event->msg);
        for (size_t i = 1; i < event->bytes; i++)
            all.wrong += data[i] != data[0];
        all.wrong += event->bytes != BYTES + 5;
        all.messages++;
    }
    if (event->type == SLUICE_CLOSED)
        sem_post(&all.closed);
}

#define UNTIL_TAKEN(call)                                                                          \
    do {                                                                                           \
        int status;                                                                                \
        while ((status = (call)) == SLUICE_EAGAIN)                                                 \
            sched_yield();                                                                         \
        all.wrong += status != 0;                                                                  \
    } while (0)

static void *operate(void *arg) {
    uint64_t at = (uint64_t)(uintptr_t)arg * BYTES;
    uint8_t *mine = (uint8_t *)sluice_region_data(all.here) + at;
    const uint8_t plain[5] = {mine[0], mine[0], mine[0], mine[0], mine[0]};
    for (unsigned i = 0; i < EACH; i++) {
        const sluice_piece pieces[] = {{mine, BYTES, all.here}, {plain, 5, NULL}};
        sluice_region *own;
        sluice_token token;
        const sluice_send_options *o = SLUICE_SEND(.tag = 1);
        UNTIL_TAKEN(sluice_put(all.session, all.here, at, BYTES, &all.token, 4096 + at, o));
        UNTIL_TAKEN(sluice_fetch_add(all.session, &all.token, 0, 1, SLUICE_SEND(.tag = 7)));
        UNTIL_TAKEN(sluice_get(all.session, all.here, at, 8, &all.token, 4096 + at, o));
        UNTIL_TAKEN(sluice_fence(all.session, o));
        UNTIL_TAKEN(sluice_send_pieces(all.session, pieces, 2, NULL));
        UNTIL_TAKEN(sluice_put_notify(all.session, NULL, 0, 0, &all.token, 0, i, o));
        if (i % 50 == 0) {
            all.wrong += sluice_region_open(all.near, NULL, 8192, RIGHTS, &own, NULL) != 0;
            all.wrong += sluice_region_revoke(own, NULL) != 0;
            all.wrong += sluice_region_token(own, 0, 8192, RIGHTS, &token) != 0;
            all.wrong += sluice_region_close(own) != 0;
        }
    }
    return NULL;
}

TEST(threads_operate_and_each_is_told_once) {
    sluice_error e;
    sluice_listener listener;
    sluice_session session;
    char address[32];
    pthread_t threads[THREADS];
    sem_init(&all.up, 0, 0);
    sem_init(&all.closed, 0, 0);
    assert_int_equal(sluice_open(&all.far, SLUICE_NODE(.device = "soft"), &e), 0);
    assert_int_equal(sluice_open(&all.near, SLUICE_NODE(.device = "soft"), &e), 0);
    assert_int_equal(sluice_region_open(all.far, NULL, 65536, RIGHTS, &all.there, &e), 0);
    assert_int_equal(sluice_region_open(all.near, NULL, 65536, 0, &all.here, &e), 0);
    assert_int_equal(sluice_region_token(all.there, 0, 65536, RIGHTS, &all.token), 0);
    assert_int_equal(
        sluice_listen(all.far, "127.0.0.1:0", SLUICE_LINK(.handler = on_far), &listener, &e), 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    assert_int_equal(sluice_dial(all.near, address, SLUICE_LINK(.handler = on_near), &session, &e),
                     0);
    wait_semaphore(&all.up);
    for (unsigned i = 0; i < THREADS; i++) {
        memset((uint8_t *)sluice_region_data(all.here) + i * BYTES, (int)i + 1, BYTES);
        assert_int_equal(pthread_create(&threads[i], NULL, operate, (void *)(uintptr_t)i), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    sluice_hangup(all.session, LIMIT_S * 1000000000ull);
    wait_semaphore(&all.closed);
    wait_semaphore(&all.closed);
    assert_int_equal(all.wrong, 0);
    assert_int_equal(all.done, 5 * THREADS * EACH);
    assert_int_equal(all.notified, THREADS * EACH);
    must_data_equal(all.messages, THREADS * EACH);
    const uint64_t count = THREADS * EACH;
    assert_int_equal(all.sum, count * (count - 1) / 2);
    const uint8_t *there = sluice_region_data(all.there);
    for (unsigned i = 0; i < THREADS * BYTES; i++)
        assert_int_equal(there[4096 + i], i / BYTES + 1);
    assert_int_equal(sluice_region_close(all.here), 0);
    sluice_close(all.near, 0);
    sluice_close(all.far, 0);
}
