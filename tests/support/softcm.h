/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm.h - what the tests of the software device's rdma_cm share: ids in a known state, and
 * waiting for an event with a limit, so that a missing one fails the test instead of hanging it.
 *
 * Each test program calls softcm_start() first: it makes the device's timers short.
 */
#ifndef TESTS_SUPPORT_SOFTCM_H
#define TESTS_SUPPORT_SOFTCM_H

#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/cm/id.h"
#include "soft/soft.h"

#define SOFTCM_WAIT_MS 20000 /* far above any timer of the device, for loaded machines */
#define SOFTCM_QPN 0x1234

#define assert_fails(call, error)                                                                  \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_int_equal((call), -1);                                                              \
        assert_int_equal(errno, (error));                                                          \
    } while (0)

/* Makes the device's timers short. */
void softcm_start(void);
/* The same as the setup of a group. */
int softcm_setup(void **state);
/* Whether the channel becomes readable within ms. */
bool softcm_readable(struct rdma_event_channel *channel, int ms);
/* The next event, of this type. */
struct rdma_cm_event *softcm_expect(struct rdma_event_channel *channel, int type);
/* The same, acknowledged at once; returns its status. */
int softcm_take(struct rdma_event_channel *channel, int type);
/* An IPv4 address. */
struct sockaddr_in softcm_in(const char *text, uint16_t port);
/* An IPv6 address. */
struct sockaddr_in6 softcm_in6(const char *text, uint16_t port);
/* A new id of RDMA_PS_TCP. */
struct rdma_cm_id *softcm_id(struct rdma_event_channel *channel);
/* A new id of RDMA_PS_UDP. */
struct rdma_cm_id *softcm_ud_id(struct rdma_event_channel *channel);
/* Listens on a free port of 127.0.0.1, which it returns. */
uint16_t softcm_listen(struct rdma_cm_id *id, int backlog);
/* An asynchronous id, resolved up to the route; its channel is otherwise silent. */
void softcm_resolve(struct rdma_cm_id *id, uint16_t port);
/* Parameters for an id without a QP. */
struct rdma_conn_param softcm_param(const void *data, uint8_t len);
/* A new id, resolved, that has asked for a connection. */
struct rdma_cm_id *softcm_connect(struct rdma_event_channel *channel, uint16_t port);
/* The id of the next connection request. */
struct rdma_cm_id *softcm_request(struct rdma_event_channel *channel);

/* A server and a client, each on its own channel, connected without QPs on the ids. */
struct softcm_pair {
    struct rdma_event_channel *passive_channel, *active_channel;
    struct rdma_cm_id *listener, *passive, *active;
    uint16_t port;
};

/* The server listens. */
void softcm_pair_listen(struct softcm_pair *pair);
/* And was asked for a connection. */
void softcm_pair_request(struct softcm_pair *pair);
/* And accepts it. */
void softcm_pair_accept(struct softcm_pair *pair);
/* All of it: connected. */
void softcm_pair_up(struct softcm_pair *pair);
/* Everything the test has not destroyed itself (and set to NULL). */
void softcm_pair_free(struct softcm_pair *pair);

/* A thread that makes one blocking call, and whether it is still in it. */
struct softcm_blocked {
    pthread_t thread;
    int (*call)(void *arg);
    void *arg;
    int result;
    atomic_bool done;
};

/* Starts the thread. */
void softcm_block(struct softcm_blocked *blocked, int (*call)(void *), void *arg);
/* Waits until the call returned; its result. */
int softcm_join(struct softcm_blocked *blocked);
/* For softcm_block(): rdma_destroy_id(). */
int softcm_destroy_call(void *id);
/* The state of an id, inside. */
enum soft_cm_state softcm_state(struct rdma_cm_id *id);
/* The state of its connection, inside. */
enum soft_cm_conn_state softcm_conn_state(struct rdma_cm_id *id);

/* Waits until a thread's condition holds that nothing else can announce. */
#define softcm_until(condition)                                                                    \
    do {                                                                                           \
        for (int softcm_i = 0; !(condition); softcm_i++) {                                         \
            if (softcm_i == SOFTCM_WAIT_MS)                                                        \
                fail_msg("never: %s", #condition);                                                 \
            poll(NULL, 0, 1);                                                                      \
        }                                                                                          \
    } while (0)

/* Private data is this, followed by zeros up to total. */
void softcm_assert_padded(const struct rdma_conn_param *conn, const char *data, size_t len,
                          size_t total);

#endif
