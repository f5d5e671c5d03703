/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attention.c - how the engine is asked to look at queue pairs: see rc/qp_timer.c.
 */
#include "soft/object/attention.h"

#include <stdatomic.h>

#include "soft/ipc/engine.h"
#include "soft/ipc/spinlock.h"

_Atomic bool soft_qp_timer_wanted;
_Atomic uint32_t soft_qp_timer_round;

/* The wish is stored before the look whether a tick is coming: one that saw no wish has taken `soft_qp_timer_wanted` back by then. */
void soft_qp_timer_want(void) {
    soft_fence();
    if (!atomic_load_explicit(&soft_qp_timer_wanted, memory_order_relaxed) &&
        !atomic_exchange(&soft_qp_timer_wanted, true))
        soft_engine_wake();
}

/* min_rnr_timer in nanoseconds: the encoding of the InfiniBand specification, table 45. */
uint64_t soft_rnr_ns(unsigned code) {
    static const uint32_t us10[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                      16,    24,   32,   48,    64,    96,    128,   192,
                                      256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                      4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
    return us10[code & 31] * 10000ull;
}
