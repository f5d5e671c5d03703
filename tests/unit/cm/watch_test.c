/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * watch_test.c - a node with nothing on its device hears of the removal by an id that is bound to it, on a
 * device whose GIDs are hardware addresses, or are good on one link only, as well.
 */
#include "support/pair.h"
#include "support/fault.h"

#include "cm/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/if_packet.h>

#include "soft/ipc/engine.h"

/* As an iWARP device has it. */
static const union ibv_gid hardware = {.raw = {0x02, 0x42, 0xac, 0x11, 0x00, 0x02}};
/* As a RoCE device makes it of that, and one that the interface was given. */
static const union ibv_gid made = {
    .raw = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x00, 0x42, 0xac, 0xff, 0xfe, 0x11, 0x00, 0x02}};
static const union ibv_gid given = {.raw = {0xfe, 0x80, [15] = 0x77}};

/* ---- interfaces -------------------------------------------------------------------------------- */

static union {
    struct sockaddr any;
    struct sockaddr_ll link;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} addresses[6];

/* One that is another device's, with the address asked for last; then that of the device. */
static struct ifaddrs interfaces[7] = {
    {.ifa_name = (char *)(uintptr_t) "other", .ifa_addr = &addresses[0].any},
    {.ifa_name = (char *)(uintptr_t) "other", .ifa_addr = &addresses[1].any},
    {.ifa_name = (char *)(uintptr_t) "tunnel", .ifa_addr = NULL},
    {.ifa_name = (char *)(uintptr_t) "ours", .ifa_addr = &addresses[2].any},
    {.ifa_name = (char *)(uintptr_t) "ours", .ifa_addr = &addresses[3].any},
    {.ifa_name = (char *)(uintptr_t) "ours", .ifa_addr = &addresses[4].any},
    {.ifa_name = (char *)(uintptr_t) "ours", .ifa_addr = &addresses[5].any},
};

static void set_link(unsigned i, const uint8_t mac[6]) {
    addresses[i].link = (struct sockaddr_ll){.sll_family = AF_PACKET, .sll_halen = 6};
    memcpy(addresses[i].link.sll_addr, mac, 6);
}

static void set_v4(unsigned i, const char *text) {
    addresses[i].v4 = (struct sockaddr_in){.sin_family = AF_INET};
    assert_int_equal(inet_pton(AF_INET, text, &addresses[i].v4.sin_addr), 1);
}

static const struct ifaddrs *make_interfaces(void) {
    static const uint8_t other[6] = {2, 3, 4, 5, 6, 7};
    for (unsigned i = 0; i + 1 < sizeof interfaces / sizeof interfaces[0]; i++)
        interfaces[i].ifa_next = &interfaces[i + 1];
    set_link(0, other);
    set_v4(1, "127.0.0.77");
    set_link(2, hardware.raw);
    set_v4(3, "192.0.2.9"); /* leads nowhere */
    set_v4(4, "127.0.0.1");
    addresses[5].v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_scope_id = 1};
    memcpy(&addresses[5].v6.sin6_addr, given.raw, sizeof given.raw);
    return interfaces;
}

/* ---- a device ---------------------------------------------------------------------------------- */

static struct fabric_ops fabric;
static char bound[128];

static int noted_bind(struct rdma_cm_id *id, struct sockaddr *address) {
    char text[64];
    address_format(address, text);
    size_t used = strlen(bound);
    snprintf(bound + used, sizeof bound - used, "%s ", text);
    return soft_bind_addr(id, address);
}

/* Without the watch that it found by itself. */
static struct cm *open_node(struct side *side) {
    pair_clock = pair_frozen = pair_step = 0;
    bound[0] = 0;
    pair_open_side(side, PAIR_NODE());
    struct cm *cm = side->node->cm;
    assert_non_null(cm->watch.id);
    fabric_soft.destroy_id(cm->watch.id);
    cm->watch.id = NULL;
    fabric = fabric_soft;
    fabric.bind_addr = noted_bind;
    side->node->fabric = &fabric;
    return cm;
}

static void close_node(struct side *side) {
    side->node->fabric = &fabric_soft;
    sluice_close(side->node, 0);
}

static void a_device_is_watched_by_its_interface(void **state) {
    const union ibv_gid *gid = *state;
    struct side side;
    struct cm *cm = open_node(&side);
    assert_true(cm_watch_by_interface(cm, gid, make_interfaces()));
    assert_non_null(cm->watch.id);
    /* Nothing of the other: its device would be open from then on. */
    assert_string_equal(bound, "192.0.2.9:0 127.0.0.1:0 ");
    assert_int_equal(fault_device(DEVICE_REMOVE, ORDER_REMOVAL_ONLY), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (!cm->device_gone) {
        cm_progress(cm, 0);
        assert_true(sluice_poll(side.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
    close_node(&side);
}

TEST(a_gid_of_no_interface_finds_none) {
    struct side side;
    struct cm *cm = open_node(&side);
    union ibv_gid gid = {.raw = {0}};
    assert_false(cm_watch_by_interface(cm, &gid, make_interfaces()));
    gid = hardware;
    gid.raw[15] = 1;
    assert_false(cm_watch_by_interface(cm, &gid, make_interfaces()));
    gid = hardware;
    gid.raw[5]++; /* nobody's */
    assert_false(cm_watch_by_interface(cm, &gid, make_interfaces()));
    gid = made;
    gid.raw[15]++;
    assert_false(cm_watch_by_interface(cm, &gid, make_interfaces()));
    gid = given;
    gid.raw[1] = 0; /* that is no address of one link */
    assert_false(cm_watch_by_interface(cm, &gid, make_interfaces()));
    assert_false(cm_watch_by_interface(cm, &hardware, NULL));
    assert_string_equal(bound, "");
    assert_null(cm->watch.id);
    close_node(&side);
}

#define WATCH_TEST(gid)                                                                            \
    {                                                                                              \
        "a_device_is_watched_by_its_interface/" #gid, a_device_is_watched_by_its_interface, NULL,  \
            NULL, (void *)(uintptr_t)&gid                                                          \
    }

TEST_CASES(WATCH_TEST(hardware), WATCH_TEST(made), WATCH_TEST(given));
