/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pool.h - registered memory cut into message buffers.
 *
 * Arenas come from the fabric (mem_alloc), are registered once for local access (and to bind windows),
 * and are cut into size classes. Each loop owns a cache it uses without locks; a thread without one goes
 * through the shared lists under a mutex. A buffer belongs to the cache it was got from: a thread that returns it
 * elsewhere pushes it onto that cache's return stack, which is wait-free. Registered bytes never
 * exceed bytes_max. A buffer's control block (struct pool_buffer) lies outside registered memory, so
 * a stray DMA cannot corrupt it; headroom in front of the payload takes the frame header, so that
 * one sge describes a whole frame.
 *
 * Owner: the node owns the pool; a cache belongs to one thread at a time. The pool does not know
 * connections.
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "pool/buffer.h"
#include "pool/hugepages.h"

struct pool;
struct pool_cache;

/*
 * Opens a pool of a PD's memory, with its first arena. bytes_max caps registered bytes; wish names the NUMA node the
 * memory is bound to (-1: none; the node of the device is best), and the huge pages it is made of, where the system
 * has them (see hugepages.h). 0 or -errno.
 */
struct pool_config {
    const struct fabric_ops *fabric;
    struct ibv_pd *pd;
    uint64_t bytes_max;
    struct hugepages_wish wish;
};
int pool_open(struct pool **out, const struct pool_config *config);
/*
 * From now on a helper thread adds arenas when less than low_water bytes of them are free, so that a thread that
 * gets a buffer seldom has to. The helper is started when that is first so. 0: no helper any more.
 */
void pool_grow_ahead(struct pool *pool, uint64_t low_water);
/* Every message of the pool dies with it. */
void pool_close(struct pool *pool);
/* The device is gone: ends every registration. Messages keep their memory; no more is registered. */
void pool_detach(struct pool *pool);

/*
 * A buffer with room for bytes (and POOL_HEADROOM before it), size = bytes. cache may be NULL (any
 * thread). NULL and errno: ENOMEM the cap is reached or the system has no memory, EMSGSIZE more
 * than the cap. Contents are not zeroed; state, flags and owner are 0, what is its user's is as it
 * was. Never more than a quarter, or 63 bytes, larger than asked for (64 B at least; mappings of
 * their own: one page). Debugging takes what is behind bytes for a guard, whatever the capacity says.
 */
struct pool_buffer *pool_get(struct pool *pool, struct pool_cache *cache, size_t bytes);
void pool_put(struct pool *pool, struct pool_cache *cache, struct pool_buffer *buffer);
/*
 * Several at once, linked by `next`: up to max of so many bytes each, as many as the thread's magazine has at hand, or
 * one as pool_get() finds it; NULL as there. And back: buffers of one class, got with this cache.
 */
struct pool_buffer *pool_get_run(struct pool *pool, struct pool_cache *cache, size_t bytes,
                                 unsigned max, unsigned *count);
void pool_put_run(struct pool *pool, struct pool_cache *cache, struct pool_buffer *first,
                  struct pool_buffer *last, unsigned count);
/* The session and peer of a message, for the report of debugging at the end. Its owner; else it does nothing. */
void pool_belongs(struct pool_buffer *buffer, uint64_t session, const char *peer);

/*
 * The buffer is counted as held until it is returned, by whatever way and thread: then the function of
 * pool_on_return() is called with that account, before the memory is another's. Its owner; once for each time it is got.
 */
void pool_charge(struct pool_buffer *buffer, uint16_t account);
void pool_on_return(struct pool *pool,
                    void (*call)(const struct pool_buffer *buffer, uint16_t account, void *arg),
                    void *arg); /* before it is used */

/* The caller tried to return a buffer that it does not own: reported. Without debugging it does nothing. */
void pool_put_again(const struct pool_buffer *buffer);

/* The registration a buffer lies in. */
struct ibv_mr *pool_mr(const struct pool_buffer *buffer);

struct pool_cache *pool_cache_open(struct pool *pool); /* NULL: out of memory */
void pool_cache_close(struct pool_cache *cache);       /* returns its buffers to the pool */

uint64_t pool_bytes(const struct pool *pool); /* registered now */
/* Buffers of so many bytes that a pool with this cap has room for while it holds nothing else: what cutting loses is left out. Any thread. */
uint64_t pool_holds(uint64_t bytes_max, size_t bytes);
/*
 * A number that lives with the pool, for the user of the pool; 0 at first. In the pool for sending it is how
 * many buffers are held for as long as a session lives.
 */
_Atomic uint64_t *pool_note(struct pool *pool);
/*
 * One more, where such buffers do not come back: a waiting thread may have hoped for it, and is woken if that was
 * the last. The cache's owner.
 */
void pool_noted(struct pool *pool, struct pool_cache *cache);

/* ---- waiting for memory ------------------------------------------------------------------------ */

/*
 * pool_get() never waits. A caller that wants to be told when to try again: pool_get() fails, pool_wait(), then
 * pool_get() of as many bytes once more, because memory may have come back in between. If that fails too,
 * memory that comes back, from whatever thread, calls wake(arg) once, on that thread, with no lock
 * held, as soon as it may be enough: a buffer of the class that was waited for, or a run of pages that was all
 * given back; other threads can get it then. A caller that fails again waits again. wake is also called when
 * no buffer is left that could come back. wake may come without need, must not wait, and must not
 * call the pool.
 */
void pool_on_wake(struct pool *pool, void (*wake)(void *arg), void *arg); /* before it is used */
uint64_t pool_wait(struct pool *pool, size_t bytes); /* what pool_may_return() is to be given */
/* A thread waits: the buffers of this cache (may be NULL) go to all, and wake is called if that may help. Its owner. */
void pool_has_waiters(struct pool *pool, struct pool_cache *cache);
/*
 * After the attempt that followed pool_wait(), which returned came_back, and failed: whether another may succeed. True:
 * some memory came back since, for which wake was called or is about to be, or some is out that may still come back.
 * False: no buffer is out (except those that pool_note() counts) or in a cache, or the device is gone. Any thread.
 */
bool pool_may_return(struct pool *pool, uint64_t came_back);
/* Whether free buffers lie in it, or are on their way back to it. Any thread, while it is open. */
bool pool_cache_has(const struct pool_cache *cache);
/* The owner: all of them go to the shared lists, and a waiting thread is woken if that may help. */
void pool_cache_flush(struct pool_cache *cache);

/*
 * Sets the receiver of one line of text for each shortage of memory or of huge pages: the limit, the need
 * and the remedy, once until it went well again. locks: the device locks what is registered. Any
 * thread, under the pool's lock: it must not call the pool.
 */
void pool_on_shortage(struct pool *pool, bool locks, void (*call)(const char *text, void *arg),
                      void *arg);

/* ---- figures: any thread; exact while no thread gets or puts ------------------------------------ */

/* Which pages the memory is made of, one line. */
void pool_describe(struct pool *pool, char *text, size_t bytes);
/* Figures for the statistics page, without a lock: of a cache (its owner), and of what no cache counts. */
struct stats_buffers;
struct stats_memory;
void pool_cache_show(const struct pool_cache *cache, struct stats_buffers *out);
void pool_show(const struct pool *pool, struct stats_memory *out);
size_t pool_class_bytes(unsigned size_class); /* payload a buffer of this class has room for */

#endif
