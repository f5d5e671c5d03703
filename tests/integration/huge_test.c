/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * huge_test.c - one message of 300 MiB between two processes, in both ways, every byte of it. Skipped,
 * and says so, where there is not the memory for it, and under a sanitizer.
 */
#include "support/large_flow.h"
#include "support/peer.h"
#include "support/skip.h"

#include "common/sanitize.h"

#define BYTES (300 * FLOW_MIB)
#define NEEDED (4 * BYTES) /* it is there twice, and the system goes on */

/* What the kernel says could be had; 0: it does not say. */
static uint64_t memory_available(void) {
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    unsigned long long kib = 0;
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib << 10;
}

/* The limit of the node tells of the cgroup's as well. */
static bool there_is_memory(void) {
    sluice_node_info info = {.size = sizeof info};
    uint64_t available = memory_available();
    struct side side;
    side_open(&side, false, NULL);
    must(sluice_node_get_info(side.node, &info) == 0);
    side_close(&side, 0);
    if (info.cgroup_bytes < available)
        available = info.cgroup_bytes;
    if (info.memlock_bytes < available && !info.memlock_exempt && !info.software)
        available = info.memlock_bytes;
    if (available < NEEDED)
        print_message("    SKIPPED: %llu MiB of memory, %zu are needed\n",
                      (unsigned long long)available >> 20, NEEDED >> 20);
    return available >= NEEDED;
}

static void a_message_of_300_mib_arrives(void **state) {
    static struct flow flow;
    enum flow_way way = (enum flow_way)(uintptr_t)*state;
    struct side side;
    struct peer peer;
    char bytes[32];
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
    skip_with("under a sanitizer");
#endif
    if (!there_is_memory())
        skip();
    snprintf(bytes, sizeof bytes, "%zu", BYTES);
    peer_run(&peer, "large_peer", "listen", flow_ways[way], "take", bytes);
    side_open(&side, false, flow_node(way, BYTES));
    flow.bytes = BYTES;
    flow_begin(&flow, &side, way, true, atoi(peer_expect(&peer, "port ")));
    while (flow.outcomes < 1)
        flow_turn(&flow, 10 * MS);
    assert_int_equal(flow.good, 1);
    assert_int_equal(flow.accepted, 1);
    sluice_hangup(flow.session, LIMIT_NS);
    while (!flow.closed)
        flow_turn(&flow, 10 * MS);
    assert_int_equal(flow.end.event.reason, SLUICE_REASON_LOCAL_CLOSE);
    peer_expect(&peer, "up");
    peer_expect(&peer, "closed "); /* what it received was what it should be */
    must_data_equal(peer_number(&peer, "received"), 1);
    assert_int_equal(peer_join(&peer), 0);
    side_close(&side, 0);
}

TEST_CASES({"a_message_of_300_mib_arrives/read", a_message_of_300_mib_arrives, NULL, NULL,
            (void *)(uintptr_t)FLOW_READ},
           {"a_message_of_300_mib_arrives/write", a_message_of_300_mib_arrives, NULL, NULL,
            (void *)(uintptr_t)FLOW_WRITE});
