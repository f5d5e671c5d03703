/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * listener_end.h - the fields of the event of a listener that ended with its device.
 *
 * Owner: the loop's thread that asked for it (upcalls.h, listener_next_end).
 */
#ifndef CORE_LISTENER_END_H
#define CORE_LISTENER_END_H

#include <sluice/sluice.h>

struct listener_end {
    uint64_t id;
    sluice_handler handler;
    void *handler_arg, *arg;
};

enum listener_news {
    LISTENERS_TOLD, /* none of this loop's is left to be told of */
    LISTENERS_WAIT, /* one is, and there is no room for it */
    LISTENERS_NEXT, /* *out is one, and is told of by that */
};

#endif
