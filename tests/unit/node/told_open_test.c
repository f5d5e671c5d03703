/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * told_open_test.c - what cannot be opened, a node, a loop or a region, says which of its wishes it is that cannot
 * be fulfilled, and nothing else.
 */
#include "support/pair.h"

#include <errno.h>
#include <sys/mman.h>

#include "fabric/dropin.h"
#include "sluice/memory.h"

static void expect_error(const char *what, int status, const sluice_error *e, int want,
                         int os_errno, const char *text) {
    if (status != want || e->status != want || e->os_errno != os_errno || strcmp(e->text, text))
        fail_msg("%s: status %d, errno %d: %s\nexpected: %d, %d: %s", what, status, e->os_errno,
                 e->text, want, os_errno, text);
}

/* ---- nodes and loops ------------------------------------------------------------------------------- */

#define NODE(...)                                                                                  \
    { .size = sizeof(sluice_node_options), __VA_ARGS__ }

static const int nowhere[] = {9999};

static const struct {
    sluice_node_options options;
    int status, os_errno;
    const char *text;
} nodes[] = {
    {NODE(.device = "roce77"), SLUICE_EDEVICE, ENODEV,
     "no device \"roce77\"; there is: sluice_soft0"},
    {NODE(.device = "soft", .worker_cpus = nowhere), SLUICE_EINVAL, EINVAL,
     "worker_cpus names CPU 9999, which is not there or not allowed"},
    {NODE(.device = "soft", .memory_numa = 1000), SLUICE_EINVAL, EINVAL,
     "memory_numa names NUMA node 999, which is not there, not allowed, or has no memory"},
    {NODE(.device = "soft", .sessions_max = 4096, .memory_bytes_max = 1 << 20,
          .receive_bytes_max = 300 << 10),
     SLUICE_EINVAL, EINVAL,
     "4096 sessions x 4 x 8256 bytes need 132096 KiB, receive_bytes_max has room for 275 KiB: "
     "raise it, or "
     "lower sessions_max"},
};

TEST(a_node_that_cannot_be_opened_says_what_is_in_the_way) {
    for (unsigned i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        sluice_node *node = NULL;
        sluice_error e = {0};
        char what[32];
        int count = 0;
        struct ibv_device **list = fabric_preloaded_pair().system->get_device_list(&count);
        if (list)
            fabric_preloaded_pair().system->free_device_list(list);
        if (i == 0 && count > 0)
            continue; /* there is more to be named */
        snprintf(what, sizeof what, "row %u", i);
        int status = sluice_open(&node, &nodes[i].options, &e);
        expect_error(what, status, &e, nodes[i].status, nodes[i].os_errno, nodes[i].text);
        assert_null(node);
    }
}

TEST(one_too_many_names_the_limit) {
    sluice_node *all[NODES_MAX + 1];
    sluice_loop *loop;
    sluice_error e = {0};
    const sluice_node_options o =
        NODE(.device = "soft", .workers = SLUICE_NO_WORKERS, .memory_bytes_max = 4 << 20);
    unsigned count = 0;
    int status;
    while (count <= NODES_MAX && (status = sluice_open(&all[count], &o, &e)) == 0)
        count++;
    expect_error("nodes", status, &e, SLUICE_ELIMIT, 0, "a process has at most 64 nodes");
    assert_int_equal(count, 64);
    while (count > 1)
        sluice_close(all[--count], 0);
    for (count = 0; (status = sluice_loop_open(all[0], &loop, &e)) == 0; count++)
        assert_true(count <= 64);
    expect_error("loops", status, &e, SLUICE_ELIMIT, 0, "a node has at most 64 loops");
    sluice_link_options link = {.size = sizeof link, .loop = loop};
    sluice_listener listener;
    for (count = 0; (status = sluice_listen(all[0], "127.0.0.1:0", &link, &listener, &e)) == 0;)
        assert_true(count++ <= LISTENERS_MAX);
    expect_error("listeners", status, &e, SLUICE_ELIMIT, 0,
                 "a node has at most 256 listeners, or there is no memory");
    sluice_close(all[0], 0);
}

/* ---- regions --------------------------------------------------------------------------------------- */

TEST(a_region_that_cannot_be_says_why) {
    enum { BYTES = 8192 };
    struct side side;
    pair_open_side(&side, PAIR_NODE());
    void *locked = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *fixed = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(locked != MAP_FAILED && fixed != MAP_FAILED);
    static const char unmapped[] = "8192 bytes cannot be registered: not mapped, or not writable";
    const struct {
        void *addr;
        uint64_t bytes;
        uint32_t rights;
        int status, os_errno;
        const char *text;
    } regions[] = {
        {locked, BYTES, 0, SLUICE_EINVAL, EFAULT, unmapped},
        {fixed, BYTES, SLUICE_MAY_WRITE, SLUICE_EINVAL, EFAULT, unmapped},
        {NULL, 0, 0, SLUICE_EINVAL, 0, "a region of 0 bytes"},
        {(void *)(UINTPTR_MAX - 4095), BYTES, 0, SLUICE_EINVAL, 0,
         "a region of 8192 bytes ends beyond all addresses"},
        {NULL, BYTES, 1u << 30, SLUICE_EINVAL, 0, "unknown rights 0x40000000"},
    };
    for (unsigned i = 0; i < sizeof regions / sizeof *regions; i++) {
        sluice_region *region;
        sluice_error e = {0};
        char what[32];
        snprintf(what, sizeof what, "row %u", i);
        int status = sluice_region_open(side.node, regions[i].addr, regions[i].bytes,
                                        regions[i].rights, &region, &e);
        expect_error(what, status, &e, regions[i].status, regions[i].os_errno, regions[i].text);
    }
    munmap(locked, BYTES);
    munmap(fixed, BYTES);
    sluice_close(side.node, 0);
}
