/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * contract.h - one suite, two devices: what an RDMA stack promises, asked through the public calls.
 *
 * Every program here is compiled twice. contract_NAME_test has CONTRACT_SOFT and speaks to the
 * software device, contract_NAME_system speaks to whatever libibverbs and librdmacm find. Only
 * names of <rdma/rdma_cma.h> and <infiniband/verbs.h> are used; no test looks inside.
 *
 *   CONTRACT_ADDRESS         an IPv4 address of the device
 *   CONTRACT_OTHER_ADDRESS   a second one, of the same or another device of this host
 * Without them SLUICE_TEST_HOST and SLUICE_TEST_HOST_2 count, and then 127.0.0.1 and 127.0.0.2.
 *
 * Where devices legitimately differ, a test asks `facts`, which says what each one really does, and
 * then insists on that. A promise that a device cannot show is skipped with the reason printed.
 */
#ifndef CONTRACT_H
#define CONTRACT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#ifdef CONTRACT_SOFT
#include "contract/soft_names.h"
#endif

#include "contract/facts.h"

/* ---- a program ------------------------------------------------------------------------------------- */

/*
 * Before the tests: short timers where they can be chosen, a watchdog for calls that should have
 * returned, and 77 where there is no device.
 */
void ct_start(void);
#define ct_run() (ct_start(), tests_run(NULL, NULL))

/* Ends the test as skipped and says why: this device cannot show it. */
#define ct_skip(reason)                                                                            \
    do {                                                                                           \
        print_message("skipped on %s: %s\n", facts.device, (reason));                              \
        skip();                                                                                    \
    } while (0)

#define assert_fails(call, error)                                                                  \
    do {                                                                                           \
        errno = 0;                                                                                 \
        assert_int_equal((call), -1);                                                              \
        assert_int_equal(errno, (error));                                                          \
    } while (0)

uint64_t ct_now_ms(void);

/*
 * Between two looks at what somebody else does. It sleeps: a thread that yields instead is last in line for a whole turn
 * of every other thread, on a busy machine some milliseconds for each look.
 */
void ct_pause(void);

/* Where a helper was called: a failure names that line, not the helper's. */
struct ct_where {
    const char *file;
    int line;
};
#define CT_HERE ((struct ct_where){__FILE__, __LINE__})
void ct_fail(struct ct_where at, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A thread that makes one blocking call, and whether it has come back. */
struct ct_thread {
    pthread_t thread;
    int (*call)(void *arg);
    void *arg;
    int result, error;
    atomic_bool done;
};
void ct_thread_start(struct ct_thread *thread, int (*call)(void *), void *arg);
int ct_thread_join(struct ct_thread *thread); /* the call's result; errno is the call's */
/* Still inside after as long as the device needs to do anything at all. */
bool ct_thread_stays(struct ct_thread *thread);

/* ---- addresses -------------------------------------------------------------------------------------- */

struct sockaddr_in ct_address(uint16_t port); /* host order */
struct sockaddr_in ct_other_address(uint16_t port);
struct sockaddr_in ct_any(uint16_t port);

/* ---- events ---------------------------------------------------------------------------------------- */

struct rdma_event_channel *ct_channel(void);
bool ct_readable(struct rdma_event_channel *channel, int ms);
/* The next event, which must be of this type (a number: there are later ones than the headers know); never NULL. */
#define ct_expect(channel, type) ct_expect_at(channel, type, CT_HERE)
/* The status of the next event, of this type, which is acknowledged at once. */
#define ct_take(channel, type) ct_take_at(channel, type, CT_HERE)
/* Nothing more comes, as far as one can wait for nothing. */
#define ct_silent(channel) ct_silent_at(channel, CT_HERE)
struct rdma_cm_event *ct_expect_at(struct rdma_event_channel *channel, int type,
                                   struct ct_where at);
int ct_take_at(struct rdma_event_channel *channel, int type, struct ct_where at);
void ct_silent_at(struct rdma_event_channel *channel, struct ct_where at);

/* ---- ids -------------------------------------------------------------------------------------------- */

struct rdma_cm_id *ct_id(struct rdma_event_channel *channel);
struct rdma_cm_id *ct_ud_id(struct rdma_event_channel *channel);
uint16_t ct_listen(struct rdma_cm_id *id, int backlog); /* the port, host order */
void ct_bind(struct rdma_cm_id *id, uint16_t port);
void ct_resolve_addr(struct rdma_cm_id *id, uint16_t port);
void ct_resolve(struct rdma_cm_id *id, uint16_t port); /* address and route */
void ct_destroy(struct rdma_cm_id *id);                /* its QP too */

/*
 * Parameters for an id without a QP. The QP number is a new one every time: the CM refuses a
 * number that it has seen in a connection which is not forgotten yet.
 */
struct rdma_conn_param ct_param(const void *data, uint8_t len);
struct ibv_qp *ct_qp(struct rdma_cm_id *id); /* RC, with CQs of its own, on the id */
/* That, if the device connects and the id has none: to connect and to accept it needs one then. */
void ct_qp_for_device(struct rdma_cm_id *id);
struct rdma_cm_id *ct_connect(struct rdma_event_channel *channel, uint16_t port);
struct rdma_cm_id *ct_request(struct rdma_event_channel *channel); /* the new id */
enum ibv_qp_state ct_state(struct ibv_qp *qp);                     /* as the device says */

/* Private data is this, followed by zeros up to total. */
void ct_assert_padded(const struct rdma_conn_param *conn, const char *data, size_t len,
                      size_t total);

/* ---- both ends of a connection, each on its channel ---------------------------------------------------- */

struct ct_pair {
    struct rdma_event_channel *passive_channel, *active_channel;
    struct rdma_cm_id *listener, *passive, *active;
    uint16_t port;
};
void ct_pair_listen(struct ct_pair *pair);
void ct_pair_resolve(struct ct_pair *pair); /* the dialer has its route */
void ct_pair_request(struct ct_pair *pair); /* request fetched and acknowledged */
void ct_pair_accept(struct ct_pair *pair);
/*
 * The dialer hears the answer and confirms it, and the listener hears that, on its channel. Where the device connects it
 * has done both, and says so at both sides.
 */
void ct_confirm(struct rdma_cm_id *active, struct rdma_event_channel *passive_channel);
void ct_pair_up(
    struct ct_pair *pair); /* without QPs on the ids, where the device does not connect them */
void ct_pair_up_qp(struct ct_pair *pair); /* with them */
void ct_pair_free(struct ct_pair *pair);  /* what is not NULL */

/*
 * A test that finds such a pair in *state, so far as the first word says, and leaves it to be freed: ct_listening,
 * ct_resolved, ct_requested, ct_connected (ct_pair_up()) or ct_connected_qps (ct_pair_up_qp()).
 */
#define CT_WITH(set_up, name) TEST_WITH(set_up, ct_freed, name)
int ct_listening(void **state);
int ct_resolved(void **state);
int ct_requested(void **state);
int ct_connected(void **state);
int ct_connected_qps(void **state);
int ct_freed(void **state);

#endif
