/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * clock.c - see clock.h.
 */
#include "clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CALIBRATE_NS UINT64_C(20000000)
#define NS_PER_TICK_ONE (UINT64_C(1) << 32)

struct tool_clock tool_clock = {.counter = false, .scale = NS_PER_TICK_ONE};

#if defined(__x86_64__)
static bool kernel_uses_counter(void) {
    char name[32] = "";
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, name, sizeof name - 1);
    close(fd);
    return got >= 3 && strncmp(name, "tsc", 3) == 0;
}

/*
 * Both clocks at one instant: of several tries the one in which the two reads of the counter lie
 * closest, because a thread that is preempted between them would skew the scale.
 */
static void read_both(uint64_t *ticks, uint64_t *ns) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 16; i++) {
        uint64_t before = __builtin_ia32_rdtsc();
        uint64_t now = clock_monotonic_ns();
        uint64_t after = __builtin_ia32_rdtsc();
        if (after - before < best) {
            best = after - before;
            *ticks = before + (after - before) / 2;
            *ns = now;
        }
    }
}

void clock_start(void) {
    if (!kernel_uses_counter())
        return;
    uint64_t ticks0 = 0, ns0 = 0, ticks1 = 0, ns1 = 0;
    read_both(&ticks0, &ns0);
    do
        read_both(&ticks1, &ns1);
    while (ns1 - ns0 < CALIBRATE_NS);
    if (ticks1 <= ticks0)
        return;
    tool_clock.scale =
        (uint64_t)(((unsigned __int128)(ns1 - ns0) << 32) / (uint64_t)(ticks1 - ticks0));
    tool_clock.counter = tool_clock.scale != 0;
    if (!tool_clock.counter)
        tool_clock.scale = NS_PER_TICK_ONE;
}
#else
void clock_start(void) {
}
#endif
