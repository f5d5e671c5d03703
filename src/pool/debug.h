/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * debug.h - finds buffers that are written outside of their bytes, returned twice, written after they
 * were returned, or never returned, and reports the callers that got and returned them. The environment's
 * SLUICE_POOL_DEBUG decides when the pool is opened whether it is on (1) or off (0); if it is not
 * set, debugging is on in a build with SLUICE_POOL_DEBUG (preset dev). Off it costs a test of a flag.
 *
 * A buffer that is handed out has a zone behind the bytes that were asked for, and one before the
 * header, that must be unchanged when it is returned. A buffer of a class always has
 * DEBUG_GUARD bytes of zone at the least; in a mapping of its own the zone is the rest of the last page.
 * Returned buffers are filled with a pattern that is checked when they are handed out again, and when
 * the pool closes. Reports go to the pool's report function, standard error if there is none; the process
 * goes on.
 *
 * Any thread: a buffer's mark belongs to the thread that has the buffer.
 */
#ifndef POOL_DEBUG_H
#define POOL_DEBUG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DEBUG_FRAMES 12
#define DEBUG_PATTERN 0xdb /* what was returned */
#define DEBUG_ZONE 0xfb    /* bytes that no user may write */
#define DEBUG_GUARD 64     /* bytes more a slot: the next buffer's headroom is not the first hit */
#define DEBUG_ZONE_MAX 4096u                  /* longer ones are not looked after */
#define DEBUG_PATTERN_MAX ((uint64_t)1 << 20) /* of a longer one only the beginning */
#define DEBUG_PEER 64

struct pool;
struct pool_buffer;

struct mark { /* of one buffer, beside its span */
    void *got[DEBUG_FRAMES], *put[DEBUG_FRAMES];
    _Atomic uint32_t in_use; /* 0: free, or never handed out */
    uint64_t asked;          /* bytes its user may write */
    uint64_t session;        /* the session of its message, 0: none */
    char peer[DEBUG_PEER];
};

bool debug_wanted(void);
/* Not of this pool's debugging: nothing happens. */
void debug_belongs(struct pool_buffer *buffer, uint64_t session, const char *peer);
void debug_got(struct pool *pool, struct pool_buffer *buffer);
/* False: it is not in use; the caller must leave it where it is. */
bool debug_put(struct pool *pool, struct pool_buffer *buffer);
/* A caller returns a buffer that it does not own: reported if it was returned before and not handed out since. */
void debug_put_again(struct pool *pool, const struct pool_buffer *buffer);
/* The pool closes: what was not returned, and what was written after it was. */
void debug_leaks(struct pool *pool);

#endif
