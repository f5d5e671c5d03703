/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault.h - what a fault plan has decided for a queue pair, which is part of it. The plan is in fault/.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_OBJECT_FAULT_H
#define SOFT_OBJECT_FAULT_H

#include <stdbool.h>
#include <stdint.h>

struct soft_fault_step { /* the operation that is next on a QP, and what was decided for it */
    uint32_t op, plan;   /* number of the operation (0: none yet) and of the plan */
    int then;            /* status it ends with, 0: it goes on */
    bool lost;           /* UC, UD: it ends well, and never arrives */
    /* Over TCP: the connection breaks, a byte changes, nothing moves until then, a receiver that is not ready. */
    bool cut, corrupt, stall, rnr;
    uint64_t until_ns; /* not before */
};

struct soft_fault_qp { /* part of a QP, under its lock */
    uint32_t serial;
    struct soft_fault_step send, recv;
    uint64_t dark_since_ns;
    bool stalled, holding; /* shown as not ready; a message is being held */
};

#endif
