/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_net_test.c - SLUICE_SOFT_NET: which sockets there are, and which way a connection goes. Each setting in a process of
 * its own.
 */
#include "support/softcm_tcp.h"

#include "soft/cm/tcp.h"
#include "support/network.h"

static struct rdma_cm_id *listen_at(struct rdma_event_channel *channel, const char *address) {
    struct rdma_cm_id *id;
    struct sockaddr_in addr = {.sin_family = AF_INET};
    must(inet_pton(AF_INET, address, &addr.sin_addr) == 1);
    must(soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    must(soft_bind_addr(id, (struct sockaddr *)&addr) == 0);
    must(soft_listen(id, 4) == 0);
    return id;
}

static bool has_port(const struct rdma_cm_id *id) {
    return ((const struct soft_cm_id *)id)->tcp_port != NULL;
}

static struct rdma_cm_id *resolve(struct rdma_event_channel *channel, const char *address,
                                  uint16_t port, int event, int *status) {
    struct rdma_cm_id *id;
    struct rdma_cm_event *got = NULL;
    struct sockaddr_in dst = {.sin_family = AF_INET, .sin_port = htons(port)};
    must(inet_pton(AF_INET, address, &dst.sin_addr) == 1);
    must(soft_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0);
    must(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000) == 0);
    must(ct_readable(channel, SOFTCM_WAIT_MS) && soft_get_cm_event(channel, &got) == 0);
    must((int)got->event == event);
    *status = got->status;
    soft_ack_cm_event(got);
    return id;
}

static bool over_tcp(struct rdma_cm_id *id) {
    return soft_cm_id_of(id)->conn.tcp != NULL;
}

/* All that goes on within the host, and the refusal of all else. */
static void stay_inside(void) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    int status;
    network_forbid();
    struct rdma_cm_id *any = listen_at(channel, "0.0.0.0");
    struct rdma_cm_id *local = listen_at(channel, "127.0.0.1");
    must(!has_port(any) && !has_port(local));
    uint16_t port = ntohs(soft_get_src_port(any));
    struct rdma_cm_id *id =
        resolve(channel, "127.0.0.1", port, RDMA_CM_EVENT_ADDR_RESOLVED, &status);
    must(status == 0 && !over_tcp(id));
    struct rdma_cm_id *other =
        resolve(channel, "192.0.2.1", port, RDMA_CM_EVENT_ADDR_ERROR, &status);
    must(status == -EREMOTE && !over_tcp(other));
    must(soft_destroy_id(id) == 0 && soft_destroy_id(other) == 0);
    must(soft_destroy_id(any) == 0 && soft_destroy_id(local) == 0);
    soft_destroy_event_channel(channel);
}

TEST(off_makes_no_socket_of_the_internet_family) {
    network_child("off", stay_inside);
}

TEST(no_is_off) {
    network_child("No", stay_inside);
}

/* The default. */
static void go_outside(void) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    int status;
    struct rdma_cm_id *any = listen_at(channel, "0.0.0.0");
    struct rdma_cm_id *local = listen_at(channel, "127.0.0.1");
    must(has_port(any) && !has_port(local));
    struct rdma_cm_id *id = resolve(channel, "127.0.0.1", ntohs(soft_get_src_port(any)),
                                    RDMA_CM_EVENT_ADDR_RESOLVED, &status);
    must(!over_tcp(id));
    must(soft_destroy_id(id) == 0 && soft_destroy_id(any) == 0 && soft_destroy_id(local) == 0);
    soft_destroy_event_channel(channel);
}

TEST(by_default_a_wildcard_opens_a_port_and_a_local_address_none) {
    network_child(NULL, go_outside);
    network_child("on", go_outside);
    network_child("Yes", go_outside);
}

static void go_over_tcp(void) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    int status;
    struct rdma_cm_id *local = listen_at(channel, "127.0.0.1");
    must(has_port(local));
    struct rdma_cm_id *id = resolve(channel, "127.0.0.1", ntohs(soft_get_src_port(local)),
                                    RDMA_CM_EVENT_ADDR_RESOLVED, &status);
    must(status == 0 && over_tcp(id));
    must(soft_destroy_id(id) == 0 && soft_destroy_id(local) == 0);
    soft_destroy_event_channel(channel);
}

TEST(required_it_goes_over_tcp_within_the_host) {
    network_child("require", go_over_tcp);
}
