/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cancel_test.c - pthread_cancel(): a public call is not left halfway, and a thread that waits in sluice_poll() ends there at
 * once and leaves a loop that another thread polls on.
 *
 * With tests/linking/cancel_points.c preloaded it is looked at besides that the library comes to no place at which a thread
 * could be cancelled, whether one is or not.
 */
#include "support/every_call.h"
#include "support/rows.h"

#include <link.h>

/* ---- every call ---------------------------------------------------------------------------------- */

struct caller {
    struct scene *scene;
    const struct every_call *call;
    bool came_back;
};

/* It is to end at the first cancellation point that it comes to. */
static void *make_call(void *arg) {
    struct caller *caller = arg;
    struct scene *s = caller->scene;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    for (struct side *side = &s->c.a; s->mode == SCENE_OWNER; side = &s->c.b) {
        must(sluice_poll(side->loop, NULL, 0, 0) == 0);
        if (side == &s->c.b)
            break;
    }
    must(pthread_cancel(pthread_self()) == 0);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
    caller->call->make(s);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    caller->came_back = true;
    return NULL;
}

static void make_every_call(enum scene_mode mode) {
    struct scene s;
    scene_open(&s, mode, NULL);
    for (size_t i = 0; i < every_call_count; i++) {
        struct caller caller = {.scene = &s, .call = &every_call[i]};
        pthread_t thread;
        if (caller.call->before)
            caller.call->before(&s);
        must(pthread_create(&thread, NULL, make_call, &caller) == 0);
        must(pthread_join(thread, NULL) == 0);
        if (!caller.came_back)
            fprintf(stderr, "cancelled in: %s\n", caller.call->names);
        must(caller.came_back);
        if (caller.call->after)
            caller.call->after(&s);
        scene_works(&s);
    }
    scene_close(&s);
}

static void no_call_is_left_halfway(void **state) {
    make_every_call(*(const enum scene_mode *)*state);
}

/* ---- and no other call ----------------------------------------------------------------------------- */

static bool is_there(const char *name) {
    size_t bytes = strlen(name);
    for (size_t i = 0; i < every_call_count; i++)
        for (const char *at = every_call[i].names; (at = strstr(at, name)); at += bytes)
            if ((at == every_call[i].names || at[-1] == ' ') && (at[bytes] == ' ' || !at[bytes]))
                return true;
    return false;
}

/* The shared library as it is loaded; DT_GNU_HASH has no count, so its chains are followed. */
static const struct link_map *library(void) {
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next)
        if (strstr(map->l_name, "/libsluice.so"))
            return map;
    return NULL;
}

static uintptr_t dynamic(const struct link_map *map, ElfW(Sxword) tag) {
    for (const ElfW(Dyn) *at = map->l_ld; at->d_tag != DT_NULL; at++)
        if (at->d_tag == tag)
            return at->d_un.d_ptr;
    return 0;
}

static uint32_t count_symbols(const uint32_t *hash) {
    uint32_t buckets = hash[0], first = hash[1], last = 0;
    const uint32_t *bucket = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof *hash);
    const uint32_t *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    while (last >= first && !(chain[last - first] & 1))
        last++;
    return last + 1;
}

TEST(the_table_has_every_public_call) {
    const struct link_map *map = library();
    unsigned found = 0, missing = 0;
    must(map && dynamic(map, DT_GNU_HASH));
    const ElfW(Sym) *symbols = (const void *)dynamic(map, DT_SYMTAB);
    const char *names = (const void *)dynamic(map, DT_STRTAB);
    for (uint32_t i = count_symbols((const void *)dynamic(map, DT_GNU_HASH)); i-- > 0;) {
        const char *name = names + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF || strncmp(name, "sluice_", 7) != 0)
            continue;
        found++;
        if (!is_there(name + 7)) {
            fprintf(stderr, "not in the table: %s\n", name);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
    assert_true(found >= 50);
}

/* ---- waiting ----------------------------------------------------------------------------------------- */

struct wait {
    uint32_t idle;
    uint64_t wait_ns; /* 0: in turns of a microsecond, which it repeats */
    bool descriptor;  /* the loop's is used */
    bool early;       /* before it polls */
};

struct waiter {
    struct scene *scene;
    const struct wait *wait;
    _Atomic pid_t tid;
};

static void *wait_for_nothing(void *arg) {
    struct waiter *waiter = arg;
    const struct wait *wait = waiter->wait;
    sluice_event event;
    if (wait->early)
        pthread_cancel(pthread_self());
    atomic_store(&waiter->tid, gettid());
    do
        must(sluice_poll(waiter->scene->c.a.loop, &event, 1,
                         wait->wait_ns ? wait->wait_ns : 1000) == 0);
    while (wait->wait_ns == 0);
    return NULL;
}

/* The kernel says that it sleeps. Nothing can be said of one that spins. */
static void wait_asleep(const struct waiter *waiter) {
    char path[64], text[256] = "";
    while (atomic_load(&waiter->tid) == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&waiter->tid));
    for (uint64_t until = sluice_now() + LIMIT_NS; !strstr(text, ") S ");) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        must(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && sluice_now() < until);
        close(fd);
    }
}

static void a_thread_that_waits_ends_and_leaves_its_loop(void **state) {
    const struct wait *wait = *state;
    struct scene s;
    scene_open(&s, SCENE_FOREIGN, &(sluice_node_options){.idle = wait->idle});
    for (unsigned round = 0; round < 3; round++) {
        struct waiter waiter = {.scene = &s, .wait = wait};
        pthread_t thread;
        void *result = NULL;
        if (wait->descriptor)
            must(sluice_fd(s.c.a.loop) >= 0);
        must(pthread_create(&thread, NULL, wait_for_nothing, &waiter) == 0);
        if (wait->idle != SLUICE_IDLE_SPIN && !wait->early && wait->wait_ns != 0)
            wait_asleep(&waiter);
        must(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
        scene_works(&s);
    }
    scene_close(&s);
}

/* ---- calls of the application ----------------------------------------------------------------------- */

static _Atomic unsigned whole; /* of those calls */

/* Comes to a cancellation point, and is to be cancelled. */
static void be_cancelled(void) {
    pthread_cancel(pthread_self());
    pthread_testcancel();
    atomic_fetch_add(&whole, 1);
}

static void on_event(const sluice_event *event, void *arg) {
    if (event->type != SLUICE_MESSAGE)
        return;
    be_cancelled();
    atomic_store((_Atomic bool *)arg, true);
}

static uint32_t on_key(uint32_t key_id, void *secret, void *arg) {
    (void)key_id, (void)arg;
    be_cancelled();
    memset(secret, 7, SLUICE_SECRET_MIN);
    return SLUICE_SECRET_MIN;
}

/* Polls until it is cancelled, which the handler takes care of. */
static void *poll_on(void *arg) {
    sluice_event event;
    for (;;) {
        must(sluice_poll(arg, &event, 1, 0) == 0); /* not there */
        pthread_testcancel();
    }
    return NULL;
}

/* b, until the application was called at a more often than before. */
static void drive(struct couple *c, unsigned before) {
    struct note note;
    while (atomic_load(&whole) == before)
        if (side_next(&c->b, &note, MS)) {
            must(side_is(&note, SLUICE_UP));
            must(side_send(&c->b, c->at_b, 100, 1, 0) == 0);
        }
}

BOTH_MODES(a_handler_and_a_key_lookup_are_not_left_halfway) {
    static const uint8_t secret[SLUICE_SECRET_MIN] = {[0 ... SLUICE_SECRET_MIN - 1] = 7};
    const sluice_key key = {1, sizeof secret, secret};
    const sluice_link_options with_key = {.key_count = 1, .keys = &key};
    struct couple c;
    sluice_listener listener;
    _Atomic bool came = false;
    bool handlers = handlers_of(state);
    atomic_store(&whole, 0);
    couple_open(&c, handlers, NULL);
    sluice_link_options o = side_link(&c.a, &(sluice_link_options){.key_lookup = on_key});
    o.handler = on_event;
    o.handler_arg = (void *)&came;
    must(sluice_listen(c.a.node, it_address(0), &o, &listener, NULL) == 0);
    c.at_b = side_dial(&c.b, sluice_listener_port(listener), &with_key);
    c.b.partner = NULL;
    while (!atomic_load(&came)) {
        pthread_t thread;
        void *result;
        unsigned before = atomic_load(&whole);
        if (!handlers)
            must(pthread_create(&thread, NULL, poll_on, c.a.loop) == 0);
        drive(&c, before);
        if (handlers)
            continue; /* a worker goes on */
        must(pthread_join(thread, &result) == 0);
        assert_ptr_equal(result, PTHREAD_CANCELED);
    }
    assert_true(atomic_load(&whole) >= 2);
    couple_close(&c);
}

static const enum scene_mode modes[] = {SCENE_OWNER, SCENE_FOREIGN, SCENE_HANDLERS};

#define CALLS(name, mode)                                                                          \
    { "no_call_is_left_halfway/" name, no_call_is_left_halfway, NULL, NULL, (void *)&modes[mode] }
#define WAIT(name, ...) ROW(name, a_thread_that_waits_ends_and_leaves_its_loop, wait, __VA_ARGS__)

TEST_CASES(CALLS("owner", 0), CALLS("foreign", 1), CALLS("handlers", 2),
           WAIT(asleep_in_block_mode, .idle = SLUICE_IDLE_BLOCK, .wait_ns = SLUICE_OFF),
           WAIT(asleep_in_adaptive_mode, .idle = SLUICE_IDLE_ADAPTIVE, .wait_ns = SLUICE_OFF),
           WAIT(asleep_for_a_time, .idle = SLUICE_IDLE_BLOCK, .wait_ns = LIMIT_NS),
           WAIT(asleep_where_the_descriptor_is_used, .idle = SLUICE_IDLE_BLOCK,
                .wait_ns = SLUICE_OFF, .descriptor = true),
           WAIT(spinning, .idle = SLUICE_IDLE_SPIN, .wait_ns = SLUICE_OFF),
           WAIT(again_and_again_for_a_microsecond, .idle = SLUICE_IDLE_SPIN, .wait_ns = 0),
           WAIT(cancelled_before_it_polls, .idle = SLUICE_IDLE_BLOCK, .wait_ns = SLUICE_OFF,
                .early = true));
