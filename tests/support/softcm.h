/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm.h - what the tests of the software device's rdma_cm share beside what any rdma_cm is tested with
 * (contract/contract.h: ids in a known state, waiting for an event with a limit): a look inside.
 *
 * Each test program calls softcm_start() first: it makes the device's timers short.
 */
#ifndef TESTS_SUPPORT_SOFTCM_H
#define TESTS_SUPPORT_SOFTCM_H

#ifndef CONTRACT_SOFT
#define CONTRACT_SOFT
#endif
#include "contract/contract.h"

#include <signal.h>

#include "soft/cm/id.h"
#include "soft/soft.h"

#define SOFTCM_WAIT_MS 20000 /* far above any timer of the device, for loaded machines */

/* Makes the device's timers short. */
void softcm_start(void);
/* softcm_start() as the setup of a group. */
int softcm_setup(void **state);
/* An IPv4 address. */
struct sockaddr_in softcm_in(const char *text, uint16_t port);
/* An IPv6 address. */
struct sockaddr_in6 softcm_in6(const char *text, uint16_t port);
/* For ct_thread_start(): rdma_destroy_id(). */
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

#endif
