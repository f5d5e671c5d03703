/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * asking.h - sluice-bw --requests: the client keeps so many requests in flight, the server sends
 * each of them back as its reply.
 *
 * Owner: the main thread.
 */
#ifndef ASKING_H
#define ASKING_H

#include "common/histogram.h"
#include "common/perf.h"

struct asking {
    uint64_t size, depth;
    uint64_t count, ns;      /* measured: how many, in how long */
    struct histogram rounds; /* nanoseconds, see asking_run() */
};

/*
 * Client: `warmup` requests and `count` more (0: until the duration is over). A request's time runs
 * from the moment its predecessor's reply was seen, which is when it was due, not from the moment it
 * was sent: no wait is left out.
 */
int asking_run(struct perf *p, struct asking *a, uint64_t warmup, uint64_t count);
/* Server: answers until END comes, and confirms how many it were. */
int asking_serve(struct perf *p, const struct control *plan);

#endif
