/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pin.c - see pin.h.
 */
#define _GNU_SOURCE
#include "pin.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cpu_begin.h"
#include "tool.h"

#define CPUS_MAX 8192

struct cpu_mask {
    unsigned long words[CPUS_MAX / 8 / sizeof(unsigned long)];
};

static bool mask_has(const struct cpu_mask *mask, int cpu) {
    return CPU_ISSET_S((size_t)cpu, sizeof *mask, (const cpu_set_t *)mask->words);
}

static int read_allowed(struct cpu_mask *mask) {
    memset(mask, 0, sizeof *mask);
    return sched_getaffinity(0, sizeof *mask, (cpu_set_t *)mask->words) == 0 ? 0 : -errno;
}

/* The mask of the start: what pin_apply() does later must not narrow what is "allowed". */
static const struct cpu_mask *allowed_at_start(void) {
    static struct cpu_mask mask;
    static bool read_once;
    if (!read_once)
        read_once = read_allowed(&mask) == 0;
    return &mask;
}

/* A descriptor that holds the name, or -1 with errno. */
static int claim(int cpu) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "sluice-cpu-%d", cpu);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static int claim_fixed(struct pin *pin, int64_t cpu) {
    if (cpu >= CPUS_MAX || !pin_is_allowed((int)cpu))
        return tool_fail("--cpu %lld: this process may not run on that CPU (see taskset -p $$)",
                         (long long)cpu);
    pin->cpu = (int)cpu;
    pin->claim_fd = claim((int)cpu);
    if (pin->claim_fd < 0 && errno == EADDRINUSE)
        tool_note("CPU %d is already used by another node or tool: expect them to disturb each "
                  "other",
                  pin->cpu);
    return 0;
}

/* The kernel lists the hardware threads of a core in order: the first is the core's first. */
static bool is_second_thread(int cpu) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    int first = cpu;
    if (file == NULL)
        return false;
    if (fscanf(file, "%d", &first) != 1)
        first = cpu;
    fclose(file);
    return first != cpu;
}

/* Beginning where claims of this network namespace begin. True: claimed, or no sockets to be had: run unpinned. */
static bool claim_any_of(struct pin *pin, const struct cpu_mask *mask, bool second) {
    static int same[CPUS_MAX];
    unsigned count = 0;
    for (int i = 0; i < CPUS_MAX; i++)
        if (mask_has(mask, i) && is_second_thread(i) == second)
            same[count++] = i;
    unsigned first = count > 0 ? (unsigned)(cpu_begin_here() % count) : 0;
    for (unsigned i = 0; i < count; i++) {
        int cpu = same[(first + i) % count], fd = claim(cpu);
        if (fd < 0 && errno != EADDRINUSE)
            return true;
        if (fd >= 0) {
            pin->cpu = cpu;
            pin->claim_fd = fd;
            return true;
        }
    }
    return false;
}

/* One hardware thread of each core before the second of any. */
static void claim_any(struct pin *pin) {
    for (int second = 0; second < 2; second++)
        if (claim_any_of(pin, allowed_at_start(), second == 1))
            return;
}

int pin_claim(struct pin *pin, int64_t cpu) {
    *pin = (struct pin){.cpu = -1, .claim_fd = -1};
    const struct cpu_mask *mask = allowed_at_start();
    for (int i = 0; i < CPUS_MAX; i++)
        pin->allowed += mask_has(mask, i);
    if (cpu >= 0)
        return claim_fixed(pin, cpu);
    claim_any(pin);
    return 0;
}

bool pin_move(struct pin *pin) {
    struct pin other = {.cpu = -1, .claim_fd = -1, .allowed = pin->allowed};
    claim_any(&other); /* its own is taken, by itself */
    if (other.cpu < 0 || pin_apply(&other) != 0) {
        pin_release(&other);
        return false;
    }
    pin_release(pin);
    *pin = other;
    return true;
}

int pin_apply(const struct pin *pin) {
    if (pin->cpu < 0)
        return 0;
    struct cpu_mask mask = {{0}};
    CPU_SET_S((size_t)pin->cpu, sizeof mask, (cpu_set_t *)mask.words);
    if (sched_setaffinity(0, sizeof mask, (cpu_set_t *)mask.words) != 0)
        return tool_fail("cannot pin to CPU %d: %s", pin->cpu, strerror(errno));
    return 0;
}

void pin_release(struct pin *pin) {
    if (pin->claim_fd >= 0)
        close(pin->claim_fd);
    pin->claim_fd = -1;
    pin->cpu = -1;
}

int pin_other(int cpu) {
    for (int i = 0; i < CPUS_MAX; i++)
        if (i != cpu && pin_is_allowed(i))
            return i;
    return -1;
}

bool pin_is_allowed(int cpu) {
    return cpu >= 0 && cpu < CPUS_MAX && mask_has(allowed_at_start(), cpu);
}

uint64_t pin_host_key(void) {
    char id[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, id, sizeof id);
    close(fd);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (ssize_t i = 0; i < got; i++)
        hash = (hash ^ (unsigned char)id[i]) * UINT64_C(0x100000001b3);
    return got > 0 ? hash : 0;
}
