/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* port_range.c - the ports that the system gives to who asks for none, see port_range.h. */
#include "soft/cm/port_range.h"

#include <stdio.h>
#include <sys/random.h>

#include "soft/ipc/engine.h"

static struct soft_cm_port_range range;

void soft_cm_port_range_read(void) {
    unsigned first, last;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (!file || fscanf(file, "%u %u", &first, &last) != 2 || !first || last > UINT16_MAX ||
        first > last) {
        first = 32768;
        last = 60999;
    }
    if (file)
        fclose(file);
    range = (struct soft_cm_port_range){(uint16_t)first, (uint16_t)last};
}

struct soft_cm_port_range soft_cm_port_range(void) {
    return range;
}

uint16_t soft_cm_port_random(void) {
    uint32_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value)
        value = (uint32_t)soft_now_ns();
    return (uint16_t)(range.first + value % (range.last - range.first + 1u));
}
