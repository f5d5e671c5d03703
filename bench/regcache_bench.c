/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * regcache_bench.c - finding a registration of application memory, and not finding it. Registering
 * itself costs nothing here: that is the device's.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "pool/regcache/regcache.h"
#include "shim.h"

#define STEP ((size_t)64 << 10)

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, int access) {
    (void)pd, (void)addr, (void)length, (void)access;
    return calloc(1, sizeof(struct ibv_mr));
}
static int dereg(struct ibv_mr *mr) {
    free(mr);
    return 0;
}
static const struct fabric_ops nothing = {.reg_mr = reg, .dereg_mr = dereg};

struct setting {
    unsigned areas; /* looked up in turn */
    uint32_t entries;
    bool told;
};

/* Areas that do not adjoin each other. With fewer entries than areas every lookup misses. */
static void look_up(bench_state *state, void *arg) {
    const struct setting *setting = arg;
    struct regcache_config config = {.fabric = &nothing,
                                     .bytes_max = (uint64_t)1 << 40,
                                     .entries_max = setting->entries,
                                     .told = setting->told};
    struct regcache *cache;
    uint8_t *addr = mmap(NULL, 2 * STEP * setting->areas, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED || regcache_open(&cache, &config) != 0) {
        bench_fail(state, "no memory");
        return;
    }
    struct regcache_stats figures;
    regcache_get_stats(cache, &figures);
    if (!figures.on)
        (setting->told ? bench_fail : bench_skip)(state, figures.why);
    unsigned at = 0;
    while (figures.on && bench_next(state)) {
        struct regcache_entry *found = regcache_get(cache, addr + 2 * STEP * at, STEP);
        bench_keep(found);
        if (found)
            regcache_put(cache, found);
        at = at + 1 == setting->areas ? 0 : at + 1;
    }
    bench_counter(state, "median_ns", bench_ns(state));
    regcache_close(cache);
    munmap(addr, 2 * STEP * setting->areas);
}

BENCH_SETUP {
    static struct setting hit_1 = {1, 0, false}, hit_512 = {512, 0, false}, miss = {8, 4, false},
                          miss_told = {8, 4, true};
    bench_register("regcache/hit/1", look_up, &hit_1);
    bench_register("regcache/hit/of_512", look_up, &hit_512);
    bench_register("regcache/miss/watched", look_up, &miss);
    bench_register("regcache/miss/notified", look_up, &miss_told);
}
