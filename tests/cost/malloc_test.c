/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * malloc_test.c - messages cost no allocation and no lock once both sides are warm: 10,000 of them, in
 * both directions, polled and by handlers, sent by the loop's own thread and by another one.
 *
 * This program's malloc() and its like, mmap() and pthread_mutex_lock() stand in front of libc's, for
 * the shared library too, and count calls of every thread of the process while `counting` is set. Locks
 * are counted apart for threads that have nothing to do with messages: what these do goes by the clock.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <sluice/sluice.h>

#include "common/sanitize.h"

#define WARM 3000u /* messages in each direction before those that count */
#define STEADY 10000u
#define LIMIT_NS 100000000000ull

/* ---- what stands in front of libc -------------------------------------------------------------- */

static _Atomic bool counting;
static _Atomic unsigned long allocations, mappings, locks, other_locks;
static _Thread_local unsigned long own_locks; /* of the calling thread */
static _Thread_local bool has_messages; /* the test's thread, and workers once they had an event */

#if !defined(SANITIZE_ADDRESS) && !defined(SANITIZE_THREAD)
#define CAN_COUNT 1

static void count(_Atomic unsigned long *counter) {
    if (atomic_load_explicit(&counting, memory_order_relaxed))
        atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void count_lock(void) {
    count(has_messages ? &locks : &other_locks);
    own_locks++;
}

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t bytes) {
    count(&allocations);
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes) {
    count(&allocations);
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes) {
    count(&allocations);
    return __libc_realloc(old, bytes);
}

void *memalign(size_t align, size_t bytes) {
    count(&allocations);
    return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes) {
    count(&allocations);
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes) {
    count(&allocations);
    *out = __libc_memalign(align, bytes);
    return *out ? 0 : ENOMEM;
}

void free(void *memory) {
    count(&allocations);
    __libc_free(memory);
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    count(&mappings);
    return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

int munmap(void *at, size_t bytes) {
    count(&mappings);
    return (int)syscall(SYS_munmap, at, bytes);
}

typedef int mutex_call(pthread_mutex_t *);

static mutex_call *libc_call(_Atomic(mutex_call *) *known, const char *name) {
    mutex_call *call = atomic_load_explicit(known, memory_order_acquire);
    if (!call) {
        void *found = dlsym(RTLD_NEXT, name);
        memcpy(&call, &found, sizeof call);
        atomic_store_explicit(known, call, memory_order_release);
    }
    return call;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    static _Atomic(mutex_call *) known;
    count_lock();
    return libc_call(&known, "pthread_mutex_lock")(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
    static _Atomic(mutex_call *) known;
    count_lock();
    return libc_call(&known, "pthread_mutex_trylock")(mutex);
}
#endif

static uint64_t begun_ns;

static void begin(void) {
    allocations = mappings = locks = other_locks = 0;
    own_locks = 0;
    has_messages = true;
    begun_ns = sluice_now();
    atomic_store(&counting, true);
}

static void end(void) {
    atomic_store(&counting, false);
    uint64_t ms = (sluice_now() - begun_ns) / 1000000;
    assert_true(other_locks < 100 + 4 * ms);
}

/*
 * A first round may see what the node's helper thread is still about from the warm-up, and any round that a thread which
 * lost its CPU for a while lets more messages be out at once than ever, for which the pool grows. Both end; a cost of each
 * message is in every round.
 */
#define ROUNDS 32

static bool is_nothing(void) {
    return allocations + mappings + locks == 0;
}

static void expect_nothing(const char *what) {
    if (!is_nothing())
        fail_msg("%s: %lu allocations, %lu mappings, %lu locks in %u messages", what,
                 (unsigned long)allocations, (unsigned long)mappings, (unsigned long)locks,
                 2 * STEADY);
}

/* ---- two nodes of one process ------------------------------------------------------------------ */

struct side {
    sluice_node *node;
    sluice_loop *loop; /* NULL: a worker and handlers */
    sluice_session session;
    _Atomic unsigned ups, received, sent;
};

static struct side sides[2];
static _Atomic bool stop;

static void limit(uint64_t since) {
    if (sluice_now() - since > LIMIT_NS)
        fail_msg("no progress");
}

static void open_sides(bool workers, sluice_handler handler) {
    sluice_error e = {0};
    sluice_listener listener;
    char address[64];
    memset(sides, 0, sizeof sides);
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++) {
        if (sluice_open(&sides[i].node,
                        SLUICE_NODE(.device = "soft", .idle = SLUICE_IDLE_SPIN,
                                    .workers = workers ? 1 : SLUICE_NO_WORKERS),
                        &e) != 0)
            fail_msg("%s", e.text);
        if (!workers)
            assert_int_equal(sluice_loop_open(sides[i].node, &sides[i].loop, &e), 0);
    }
    for (int i = 0; i < 2; i++) {
        const sluice_link_options *link =
            SLUICE_LINK(.handler = handler, .handler_arg = &sides[i], .loop = sides[i].loop,
                        .window_messages = 256);
        if (i == 0) {
            if (sluice_listen(sides[0].node, "127.0.0.1:0", link, &listener, &e) != 0)
                fail_msg("%s", e.text);
            snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
        } else if (sluice_dial(sides[1].node, address, link, &sides[1].session, &e) != 0) {
            fail_msg("%s", e.text);
        }
    }
}

static void close_sides(void) {
    sluice_close(sides[1].node, 0);
    sluice_close(sides[0].node, 0);
}

static void note(struct side *side, const sluice_event *event) {
    has_messages = true;
    if (event->type == SLUICE_UP) {
        side->session = event->session;
        side->ups++;
    }
    side->received += event->type == SLUICE_MESSAGE;
    side->sent += event->type == SLUICE_SENT;
}

/* ---- polling ----------------------------------------------------------------------------------- */

static void poll_side(struct side *side) {
    sluice_event events[16];
    int n = sluice_poll(side->loop, events, 16, 0);
    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        note(side, &events[i]);
}

static void send_one(struct side *side, size_t bytes, const sluice_send_options *o) {
    sluice_msg *msg;
    int status = sluice_alloc(side->node, bytes, &msg);
    assert_int_equal(status, 0);
    while ((status = sluice_send(side->session, msg, o)) == SLUICE_EAGAIN) {
        poll_side(side == &sides[0] ? &sides[1] : &sides[0]);
        poll_side(side);
    }
    assert_int_equal(status, 0);
}

static void exchange(unsigned messages, size_t bytes, unsigned batch,
                     const sluice_send_options *o) {
    uint64_t since = sluice_now();
    for (unsigned done = 0; done < messages; done += batch) {
        unsigned want[2] = {sides[0].received + batch, sides[1].received + batch};
        for (int k = 0; k < 2; k++) {
            poll_side(&sides[k]); /* buffers come from the loop that this thread polled last */
            for (unsigned i = 0; i < batch; i++)
                send_one(&sides[k], bytes, o);
        }
        while (sides[0].received < want[0] || sides[1].received < want[1]) {
            poll_side(&sides[0]);
            poll_side(&sides[1]);
            limit(since);
        }
    }
}

static const sluice_send_options tagged = {.size = sizeof tagged, .tag = 7};

static const struct {
    const char *name;
    size_t bytes;
    unsigned batch;
    const sluice_send_options *options;
} kinds[] = {{"64 B, one at a time", 64, 1, NULL},
             {"64 B, 16 at a time", 64, 16, NULL},
             {"64 B, tagged", 64, 16, &tagged},
             {"1000 B, one at a time", 1000, 1, NULL},
             {"16 KiB less its header", 16000, 4, NULL},
             {"16 KiB, tagged", 16000, 4, &tagged},
             {"40 KiB, in fragments", 40 << 10, 4, &tagged}};

static void run_kinds(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        /* More at a time than will be: the pool grows with the most that were ever out at once. */
        exchange(WARM, kinds[i].bytes, 2 * kinds[i].batch + 12, kinds[i].options);
        exchange(WARM, kinds[i].bytes, kinds[i].batch, kinds[i].options);
        for (int round = 0; round < ROUNDS; round++) {
            begin();
            exchange(STEADY, kinds[i].bytes, kinds[i].batch, kinds[i].options);
            end();
            if (is_nothing())
                break;
        }
        expect_nothing(kinds[i].name);
    }
}

static void until_up(void) {
    uint64_t since = sluice_now();
    while (sides[0].ups == 0 || sides[1].ups == 0) {
        for (int i = 0; i < 2; i++)
            if (sides[i].loop)
                poll_side(&sides[i]);
            else
                sched_yield();
        limit(since);
    }
}

/* ---- the proof is one -------------------------------------------------------------------------- */

TEST(what_does_allocate_and_lock_is_seen) {
    begin();
    open_sides(false, NULL); /* by the library, in its own object */
    end();
    assert_true(allocations > 10);
    assert_true(mappings > 0);
    assert_true(locks > 10);
    until_up();
    begin();
    end();
    expect_nothing("nothing done");
    close_sides();
}

/* ---- polled, one thread for both loops --------------------------------------------------------- */

TEST(polled_messages_cost_no_allocation_and_no_lock) {
    open_sides(false, NULL);
    until_up();
    run_kinds();
    close_sides();
}

static void counting_handler(const sluice_event *event, void *arg) {
    note(arg, event);
}

TEST(messages_for_handlers_of_a_polled_loop_neither) {
    open_sides(false, counting_handler);
    until_up();
    run_kinds();
    close_sides();
}

/* ---- handlers on workers, which answer --------------------------------------------------------- */

#define CROWD                                                                                      \
    48 /* messages to and fro while warming up: more than the few that count will ever need */
#define FEW 32

static _Atomic int too_many; /* so many are not answered */

/* Half of the answers go in the buffer that came, half in a new one. */
static void answering_handler(const sluice_event *event, void *arg) {
    struct side *side = arg;
    note(side, event);
    if (event->type != SLUICE_MESSAGE || atomic_load(&stop))
        return;
    if (atomic_load(&too_many) > 0 && atomic_fetch_sub(&too_many, 1) > 0)
        return;
    sluice_msg *msg = event->msg;
    if (side->received % 2 && sluice_alloc(side->node, sluice_size(event->msg), &msg) != 0)
        return;
    int status = sluice_send(event->session, msg, NULL);
    if (status != 0 && msg != event->msg)
        sluice_free(msg);
}

static void until_received(unsigned count) {
    uint64_t since = sluice_now();
    while (sides[0].received < count || sides[1].received < count) {
        sched_yield();
        limit(since);
    }
}

TEST(messages_between_workers_neither) {
    open_sides(true, answering_handler);
    until_up();
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(sluice_send_copy(sides[i % 2].session, "8 bytes", 8, NULL), 0);
    until_received(WARM);
    atomic_store(&too_many, CROWD - FEW);
    until_received(sides[0].received + WARM);
    for (int round = 0; round < ROUNDS; round++) {
        begin();
        until_received(sides[0].received + STEADY);
        end();
        if (is_nothing())
            break;
    }
    expect_nothing("answered by handlers on workers");
    atomic_store(&stop, true);
    close_sides();
}

/* ---- sent by a thread that polls nothing ------------------------------------------------------- */

static void send_foreign(struct side *side, sluice_msg *msg) {
    uint64_t since = sluice_now();
    int status;
    while ((status = sluice_send(side->session, msg, NULL)) == SLUICE_EAGAIN) {
        sched_yield();
        limit(since);
    }
    assert_int_equal(status, 0);
}

/* Messages that a handler kept, for the test's thread to send on: one writer, one reader. */
static struct kept {
    sluice_msg *ring[256];
    _Atomic unsigned head;
    unsigned tail;
} kept[2];

static void keeping_handler(const sluice_event *event, void *arg) {
    struct side *side = arg;
    note(side, event);
    if (event->type != SLUICE_MESSAGE || atomic_load(&stop))
        return;
    if (atomic_load(&too_many) > 0 && atomic_fetch_sub(&too_many, 1) > 0)
        return;
    struct kept *k = &kept[side - sides];
    sluice_keep(event->msg);
    k->ring[k->head % 256] = event->msg;
    atomic_store_explicit(&k->head, k->head + 1, memory_order_release);
}

static void send_on_until_received(unsigned count) {
    uint64_t since = sluice_now();
    while (sides[0].received < count || sides[1].received < count) {
        for (int i = 0; i < 2; i++)
            while (kept[i].tail != atomic_load_explicit(&kept[i].head, memory_order_acquire))
                send_foreign(&sides[i], kept[i].ring[kept[i].tail++ % 256]);
        sched_yield();
        limit(since);
    }
}

TEST(messages_of_another_thread_neither) {
    memset(kept, 0, sizeof kept);
    open_sides(true, keeping_handler);
    until_up();
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(sluice_send_copy(sides[i % 2].session, "8 bytes", 8, NULL), 0);
    send_on_until_received(WARM);
    atomic_store(&too_many, CROWD - FEW);
    send_on_until_received(sides[0].received + WARM);
    /* How many messages share a frame is chance, and with it how many buffers of which size are out at
     * a time: a round may still see a new most. That ends; a cost of each message would not. */
    for (int round = 0; round < ROUNDS; round++) {
        begin();
        send_on_until_received(sides[0].received + STEADY);
        end();
        if (is_nothing())
            break;
    }
    expect_nothing("sent on by another thread");
    atomic_store(&stop, true);
    close_sides();
}

static void send_both_ways(unsigned messages) {
    unsigned want[2] = {sides[0].received + messages, sides[1].received + messages};
    for (unsigned i = 0; i < messages; i++)
        for (int k = 0; k < 2; k++) {
            sluice_msg *msg = NULL;
            assert_int_equal(sluice_alloc(sides[k].node, 64, &msg), 0);
            send_foreign(&sides[k], msg);
        }
    uint64_t since = sluice_now();
    while (sides[0].received < want[0] || sides[1].received < want[1]) {
        sched_yield();
        limit(since);
    }
}

/*
 * A thread without a loop has no cache of its own: getting a buffer is one short lock. The buffers end up
 * in the caches of the workers and go from there to the lists that all threads share, many at a time:
 * only then do the workers lock, and the pool may cut a span or give one up.
 */
TEST(a_buffer_for_another_thread_costs_one_lock) {
    open_sides(true, counting_handler);
    until_up();
    send_both_ways(WARM);
    unsigned long sender_locks = 0;
    for (int round = 0; round < 4; round++) { /* until the pool has grown to what chance may take */
        begin();
        send_both_ways(STEADY);
        sender_locks = own_locks;
        end();
        if (mappings == 0)
            break;
    }
    assert_int_equal(mappings, 0);
    assert_uint_in_range(sender_locks, 1, 2 * STEADY + 100);
    assert_true(locks - sender_locks <= 2 * STEADY / 32);
    assert_true(allocations <= 2 * STEADY / 64);
    close_sides();
}

int main(void) {
#ifndef CAN_COUNT
    fprintf(stderr, "SKIPPED: A SANITIZER HAS ITS OWN MALLOC, CALLS CANNOT BE COUNTED\n");
    return 77;
#endif
    return tests_run(NULL, NULL);
}
