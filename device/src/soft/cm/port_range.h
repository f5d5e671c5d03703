/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* port_range.h - the ports that the system gives to who asks for none. Read once, then any thread. */
#ifndef SOFT_CM_PORT_RANGE_H
#define SOFT_CM_PORT_RANGE_H

#include <stdint.h>

struct soft_cm_port_range {
    uint16_t first, last;
};

/* Before the first use, and again when it may have changed. */
void soft_cm_port_range_read(void);
struct soft_cm_port_range soft_cm_port_range(void);
/* One of them. */
uint16_t soft_cm_port_random(void);

#endif
