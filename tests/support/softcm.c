/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softcm.c - see softcm.h. */
#include "support/softcm.h"

void softcm_start(void) {
    facts_choose();
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "600", 1);
    setenv("SLUICE_SOFT_CM_TRIES", "6", 1);
    setenv("SLUICE_SOFT_CM_WAIT_MS", "1500", 1);
    setenv("SLUICE_SOFT_TIMEWAIT_MS", "40", 1);
    setenv("SLUICE_SOFT_NET", "off", 0); /* the network of the machine has no part in it */
}

int softcm_setup(void **state) {
    (void)state;
    softcm_start();
    return 0;
}

struct sockaddr_in softcm_in(const char *text, uint16_t port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET, text, &addr.sin_addr), 1);
    return addr;
}

struct sockaddr_in6 softcm_in6(const char *text, uint16_t port) {
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    assert_int_equal(inet_pton(AF_INET6, text, &addr.sin6_addr), 1);
    return addr;
}

int softcm_destroy_call(void *id) {
    return soft_destroy_id(id);
}

enum soft_cm_state softcm_state(struct rdma_cm_id *id) {
    soft_lock();
    enum soft_cm_state state = soft_cm_id_of(id)->state;
    soft_unlock();
    return state;
}

enum soft_cm_conn_state softcm_conn_state(struct rdma_cm_id *id) {
    soft_lock();
    enum soft_cm_conn_state state = soft_cm_id_of(id)->conn.state;
    soft_unlock();
    return state;
}
