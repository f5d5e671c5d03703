/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * in_place_test.c - plain memory sent from where it lies, from a registration that is kept: never what lay
 * there before, never more than the limit, and no key of it for anybody.
 *
 * The device of the sender here has what a NIC has and the software device does not: it goes on with the
 * pages a registration was made of, whatever the address means later. So a registration that outlives its
 * memory sends old bytes; a_registration_nobody_ended_shows shows that it does.
 */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/hole.h"
#include "support/wait.h"
#include "support/memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "datapath/rndv/internal.h"
#include "datapath/tx/iov.h"
#include "soft/object/mr.h"

#define PAGE ((size_t)4096)
#define AREA (32 * PAGE)
#define SMALL ((size_t)5000) /* in one frame of 8 KiB */
#define LARGE (20 * PAGE)    /* announced, and written */

static const struct fabric_ops *below;
static struct fabric_ops remembering;
static _Atomic int64_t kept; /* registrations of the application's memory */
static _Atomic int accesses; /* all rights these ever had */

static struct ibv_mr *remember_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    if (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ)) /* the library's own */
        return below->reg_mr(pd, addr, length, access);
    void *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return NULL;
    memcpy(copy, addr, length);
    struct ibv_mr *mr = below->reg_mr(pd, copy, length, access);
    if (!mr) {
        munmap(copy, length);
        return NULL;
    }
    struct soft_mr *soft = (struct soft_mr *)(void *)mr;
    soft->start = (uintptr_t)addr;
    soft->end = soft->start + length;
    soft->shift = (int64_t)((uintptr_t)copy - (uintptr_t)addr);
    mr->addr = addr;
    kept++;
    accesses |= access;
    return mr;
}

static int remember_dereg_mr(struct ibv_mr *mr) {
    struct soft_mr *soft = (struct soft_mr *)(void *)mr;
    void *copy = soft->shift ? (char *)mr->addr + soft->shift : NULL;
    size_t length = mr->length;
    int error = below->dereg_mr(mr);
    if (error == 0 && copy) {
        munmap(copy, length);
        kept--;
    }
    return error;
}

static char logged[600];

static void keep_log(int level, const char *text, void *arg) {
    (void)arg;
    if (level == SLUICE_LOG_INFO && strstr(text, "registrations"))
        snprintf(logged, sizeof logged, "%s", text);
}

static void open_pair(struct pair *p, uint32_t registrations, uint64_t bytes_max) {
    kept = 0;
    accesses = 0;
    logged[0] = 0;
    pair_open(p,
              PAIR_NODE(.log = keep_log, .registrations = registrations,
                        .registration_bytes_max = bytes_max),
              PAIR_LINK());
    below = p->b.node->fabric;
    remembering = *below;
    remembering.reg_mr = remember_reg_mr;
    remembering.dereg_mr = remember_dereg_mr;
    p->b.node->fabric = &remembering;
    pair_connect(p, PAIR_LINK());
}

static void close_pair(struct pair *p) {
    pair_close(p);
    assert_int_equal(kept, 0);
}

static sluice_registration_info info_of(struct pair *p) {
    sluice_registration_info info = {.size = sizeof info};
    assert_int_equal(sluice_registration_get_info(p->b.node, &info), 0);
    return info;
}

static uint8_t *map_at(void *where, size_t bytes, unsigned seed) {
    uint8_t *addr = mmap(where, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
    assert_ptr_not_equal(addr, MAP_FAILED);
    memory_fill(addr, bytes, seed);
    return addr;
}

static int send_in_place(struct pair *p, const void *data, size_t bytes) {
    sluice_piece piece = {data, bytes, NULL};
    return sluice_send_pieces(p->b.session, &piece, 1,
                              SLUICE_SEND(.tag = 1, .flags = SLUICE_IN_PLACE));
}

/* Sends, and says whether these bytes, filled with this seed, arrived. A test expects that they do not. */
static bool arrives(struct pair *p, const void *data, size_t bytes, unsigned seed) {
    assert_int_equal(send_in_place(p, data, bytes), 0);
    const sluice_msg *msg = pair_expect(p, &p->a, SLUICE_MESSAGE).msg;
    bool right = sluice_size(msg) == bytes && pair_holds(sluice_data(msg), bytes, seed);
    assert_int_equal(pair_expect(p, &p->b, SLUICE_SENT).status, 0);
    return right;
}

static bool watched(struct pair *p) {
    uint8_t *addr = map_at(NULL, AREA, 1);
    must_data(arrives(p, addr, LARGE, 1));
    munmap(addr, AREA);
    sluice_registration_info info = info_of(p);
    if (!info.on)
        print_message("%s\n", info.why);
    return info.on;
}

/* ---- what is sent, and by whose leave ---------------------------------------------------------- */

TEST(plain_memory_is_sent_from_where_it_lies) {
    struct pair p;
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
    uint8_t *addr = map_at(NULL, AREA, 1);
    assert_int_equal(send_in_place(&p, addr, LARGE), 0);
    struct rndv_tx *d = &pair_session(&p.b)->rndv->out[0];
    assert_int_equal(d->state, RNDV_TX_RTS);
    assert_int_equal(d->part_count, 1);
    assert_int_equal(d->parts[0].addr, (uintptr_t)addr);
    /* A peer reads nothing of it: no key was made. */
    assert_int_equal(d->way, RNDV_BY_WRITE);
    assert_int_equal(d->mw.rkey, 0);
    assert_false(d->mw.open);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, 1));
    pair_expect(&p, &p.b, SLUICE_SENT);
    for (unsigned i = 0; i < 50; i++)
        must_data(arrives(&p, addr, i % 2 ? LARGE : SMALL, 1));
    sluice_registration_info info = info_of(&p);
    assert_int_equal(info.misses, 1);
    assert_int_equal(info.hits, 50);
    assert_int_equal(info.copied, 0);
    assert_int_equal(info.bytes, LARGE);
    assert_int_equal(kept, 1);
    assert_int_equal(accesses, 0); /* nobody may write, nobody else may read */
    munmap(addr, AREA);
    close_pair(&p);
}

TEST(pieces_of_every_kind_make_one_message) {
    struct pair p;
    sluice_region *region;
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
    assert_int_equal(sluice_region_open(p.b.node, NULL, AREA, 0, &region, NULL), 0);
    uint8_t *plain = map_at(NULL, AREA, 1), *known = sluice_region_data(region);
    memory_fill(known, AREA, 1);
    const size_t at[] = {0, 100, 100 + PAGE - 1, 100 + 2 * PAGE, 100 + 6 * PAGE, LARGE};
    sluice_piece pieces[5];
    for (unsigned i = 0; i < 5; i++) {
        bool in_region = i == 3;
        pieces[i] = (sluice_piece){(in_region ? known : plain) + at[i], at[i + 1] - at[i],
                                   in_region ? region : NULL};
    }
    for (unsigned i = 0; i < 20; i++) {
        uint32_t flags = SLUICE_IN_PLACE | (i % 3 ? SLUICE_MORE : 0);
        pair_session(&p.b)->tx.rndv_above = i % 2 ? UINT64_MAX : 8192;
        assert_int_equal(
            sluice_send_pieces(p.b.session, pieces, 5, SLUICE_SEND(.tag = 1, .flags = flags)), 0);
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, 1));
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_SENT).status, 0);
    }
    assert_true(info_of(&p).hits >= 19);
    assert_int_equal(sluice_region_close(region), 0);
    munmap(plain, AREA);
    close_pair(&p);
}

TEST(small_pieces_are_copied_and_other_calls_refuse_the_flag) {
    struct pair p;
    sluice_msg *msg;
    uint8_t *addr = map_at(NULL, AREA, 1);
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
    must_data(arrives(&p, addr, SLUICE_IN_PLACE_MIN - 1, 1));
    must_data(arrives(&p, addr, 0, 1));
    assert_int_equal(info_of(&p).misses, 0);
    assert_int_equal(kept, 0);
    const sluice_send_options *o = SLUICE_SEND(.flags = SLUICE_IN_PLACE);
    assert_int_equal(sluice_alloc(p.b.node, 8, &msg), 0);
    assert_int_equal(sluice_send(p.b.session, msg, o), SLUICE_EINVAL);
    assert_int_equal(sluice_send_copy(p.b.session, addr, 8, o), SLUICE_EINVAL);
    assert_int_equal(sluice_request(p.b.session, msg, o), SLUICE_EINVAL);
    sluice_free(msg);
    /* A call that fails leaves nothing pinned. */
    assert_int_equal(send_in_place(&p, addr, (size_t)65 << 20), SLUICE_EMSGSIZE);
    sluice_piece wrong[2] = {{addr, LARGE, NULL}, {NULL, 8, NULL}};
    assert_int_equal(sluice_send_pieces(p.b.session, wrong, 2, o), SLUICE_EINVAL);
    sluice_session stale = p.b.session;
    sluice_hangup(p.b.session, 0);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    sluice_piece piece = {addr, LARGE, NULL};
    assert_int_equal(sluice_send_pieces(stale, &piece, 1, o), SLUICE_ECLOSED);
    sluice_registration_invalidate(addr, AREA);
    assert_int_equal(kept, 0);
    munmap(addr, AREA);
    close_pair(&p);
}

/* ---- other memory at the same address ---------------------------------------------------------- */

enum { UNMAP, REPLACE, MOVE, DISCARD, WAYS };

/* Returns where it is mapped now, with other content. */
static uint8_t *replace(struct pair *p, uint8_t *addr, unsigned how, unsigned seed) {
    void *moved;
    switch (how) {
    case UNMAP:
        munmap(addr, AREA);
        if (!hole_keep(addr, AREA))
            addr = map_at(NULL, AREA, 0);
        break;
    case REPLACE: /* mapped over */
        break;
    case MOVE:
        moved = mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        moved = mremap(addr, LARGE, LARGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved);
        assert_ptr_not_equal(moved, MAP_FAILED);
        if (!hole_keep(addr, LARGE)) {
            munmap(addr + LARGE, AREA - LARGE);
            addr = map_at(NULL, AREA, 0);
        }
        if (p)
            must_data(arrives(p, moved, LARGE, seed - 1));
        munmap(moved, LARGE);
        break;
    case DISCARD:
        madvise(addr + PAGE, LARGE - PAGE, MADV_DONTNEED);
        memory_fill(addr, AREA, seed);
        return addr;
    }
    return map_at(addr, AREA, seed);
}

TEST(memory_mapped_anew_is_sent_anew) {
    struct pair p;
    open_pair(&p, SLUICE_REGISTRATIONS_AUTO, 0);
    if (!watched(&p)) {
        close_pair(&p);
        skip();
    }
    unsigned seed = 1;
    uint8_t *addr = map_at(NULL, AREA, seed);
    for (; seed < 200; seed++) {
        must_data(arrives(&p, addr, LARGE, seed));
        must_data(arrives(&p, addr, SMALL, seed));
        addr = replace(&p, addr, seed % WAYS, seed + 1);
    }
    sluice_registration_info info = info_of(&p);
    assert_true(info.invalidated >= 199);
    assert_true(info.hits >= 199);
    assert_int_equal(info.copied, 0);
    munmap(addr, AREA);
    close_pair(&p);
}

TEST(memory_the_application_tells_of_is_sent_anew) {
    struct pair p;
    unsigned seed = 1;
    uint8_t *addr = map_at(NULL, AREA, seed);
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
    for (; seed < 100; seed++) {
        must_data(arrives(&p, addr, LARGE, seed));
        must_data(arrives(&p, addr, SMALL, seed));
        sluice_registration_invalidate(addr + seed % 20 * PAGE + seed, 1);
        assert_int_equal(kept, 0);
        addr = replace(NULL, addr, seed % WAYS, seed + 1);
    }
    assert_int_equal(info_of(&p).invalidated, 99);
    sluice_registration_invalidate(NULL, 0);
    sluice_registration_invalidate((void *)(UINTPTR_MAX - 5), 10);
    sluice_registration_invalidate(NULL, SIZE_MAX);
    munmap(addr, AREA);
    close_pair(&p);
}

/* That the tests above would notice. */
TEST(a_registration_nobody_ended_shows) {
    struct pair p;
    uint8_t *addr = map_at(NULL, AREA, 1);
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
    must_data(arrives(&p, addr, LARGE, 1));
    map_at(addr, AREA, 2); /* and the application does not tell */
    assert_false(arrives(&p, addr, LARGE, 2));
    munmap(addr, AREA);
    close_pair(&p);
}

struct turns {
    uint8_t *addr[2];
    _Atomic unsigned mapped[2], sent[2]; /* seeds */
    unsigned last;
};

/* The other area is sent from meanwhile. */
static void *map_in_turn(void *arg) {
    struct turns *t = arg;
    for (unsigned seed = 2; seed <= t->last; seed++)
        for (unsigned i = 0; i < 2; i++) {
            while (atomic_load(&t->sent[i]) != seed - 1)
                sched_yield();
            /* Without a gap in which another thread's memory could come there. */
            map_at(t->addr[i], AREA, seed);
            madvise(t->addr[i] + LARGE, AREA - LARGE, MADV_DONTNEED);
            atomic_store(&t->mapped[i], seed);
        }
    return NULL;
}

TEST(memory_another_thread_maps_anew_is_sent_anew) {
    struct pair p;
    pthread_t thread;
    open_pair(&p, SLUICE_REGISTRATIONS_AUTO, 0);
    if (!watched(&p)) {
        close_pair(&p);
        skip();
    }
    struct turns t = {
        .addr = {map_at(NULL, AREA, 1), map_at(NULL, AREA, 1)}, .mapped = {1, 1}, .last = 150};
    assert_int_equal(pthread_create(&thread, NULL, map_in_turn, &t), 0);
    for (unsigned seed = 1; seed <= t.last; seed++)
        for (unsigned i = 0; i < 2; i++) {
            while (atomic_load(&t.mapped[i]) != seed)
                sched_yield();
            must_data(arrives(&p, t.addr[i], LARGE, seed));
            must_data(arrives(&p, t.addr[i], SMALL, seed));
            atomic_store(&t.sent[i], seed);
        }
    pthread_join(thread, NULL);
    assert_true(info_of(&p).invalidated >= 2 * (t.last - 1));
    munmap(t.addr[0], AREA);
    munmap(t.addr[1], AREA);
    close_pair(&p);
}

/* The child unmaps and writes its own copy; the parent's goes on, and nobody waits for anybody. */
TEST(a_child_of_fork_changes_nothing) {
    struct pair p;
    int go[2];
    char byte;
    open_pair(&p, SLUICE_REGISTRATIONS_AUTO, 0);
    if (!watched(&p)) {
        close_pair(&p);
        skip();
    }
    uint8_t *addr = map_at(NULL, AREA, 1);
    must_data(arrives(&p, addr, LARGE, 1));
    assert_int_equal(pipe(go), 0);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(go[1]);
        memset(addr, 7, AREA);
        munmap(addr, AREA / 2);
        mmap(addr, AREA / 2, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        sluice_registration_invalidate(addr, AREA);
        sluice_registration_info info = {.size = sizeof info};
        bool right = sluice_registration_get_info(p.b.node, &info) == SLUICE_EFORKED &&
                     send_in_place(&p, addr, LARGE) == SLUICE_EFORKED;
        right &= read(go[0], &byte, 1) == 0; /* it lives as long as the parent's node */
        _exit(right ? 0 : 1);
    }
    close(go[0]);
    uint64_t misses = info_of(&p).misses;
    must_data(arrives(&p, addr, LARGE, 1));
    assert_int_equal(info_of(&p).misses, misses);
    map_at(addr, AREA, 2);
    must_data(arrives(&p, addr, LARGE, 2));
    close_pair(&p);
    munmap(addr, AREA); /* watched once, and nobody reads any more */
    close(go[1]);
    assert_int_equal(wait_exit(child), 0);
}

/* ---- limits and ends --------------------------------------------------------------------------- */

TEST(the_limit_holds_and_the_least_used_goes) {
    struct pair p;
    enum { AREAS = 8 };
    uint8_t *addr[AREAS];
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 3 * LARGE);
    for (unsigned i = 0; i < AREAS; i++)
        addr[i] = map_at(NULL, AREA, i);
    for (unsigned i = 0; i < 10 * AREAS; i++) {
        unsigned which = i % 2 ? 0 : i / 2 % AREAS;
        must_data(arrives(&p, addr[which], LARGE, which));
        sluice_registration_info info = info_of(&p);
        assert_true(info.bytes <= info.bytes_max);
        assert_true(kept <= 3);
    }
    sluice_registration_info info = info_of(&p);
    assert_int_equal(info.bytes_max, 3 * LARGE);
    assert_true(info.dropped > 20);
    assert_true(info.hits >= 5 * AREAS - 2); /* the one that is used all the time stays */
    /* What is larger than the limit, or finds everything in use, is copied. */
    uint8_t *big = map_at(NULL, 4 * LARGE, 9);
    must_data(arrives(&p, big, 4 * LARGE, 9));
    assert_int_equal(info_of(&p).copied, 1);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(send_in_place(&p, addr[i], LARGE), 0);
    assert_int_equal(info_of(&p).copied, 2);
    for (unsigned i = 0; i < 4; i++)
        assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, i));
    munmap(big, 4 * LARGE);
    for (unsigned i = 0; i < AREAS; i++)
        munmap(addr[i], AREA);
    close_pair(&p);
}

TEST(without_a_watch_it_is_off_and_says_so) {
    struct pair p;
    struct rlimit limit, none;
    uint8_t *addr = map_at(NULL, AREA, 1);
    open_pair(&p, SLUICE_REGISTRATIONS_OFF, 0);
    must_data(arrives(&p, addr, LARGE, 1));
    sluice_registration_info info = info_of(&p);
    assert_int_equal(info.on, 0);
    assert_int_equal(info.copied, 1);
    assert_string_equal(info.why, "off: by option");
    close_pair(&p);
    open_pair(&p, SLUICE_REGISTRATIONS_AUTO, 0);
    assert_string_equal(info_of(&p).why, "not used yet");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0; /* no descriptor, no userfaultfd */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int status = send_in_place(&p, addr, LARGE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, LARGE, 1));
    pair_expect(&p, &p.b, SLUICE_SENT);
    map_at(addr, AREA, 2);
    must_data(arrives(&p, addr, LARGE, 2));
    info = info_of(&p);
    assert_int_equal(info.on, 0);
    assert_int_equal(info.copied, 2);
    assert_non_null(strstr(info.why, "off: userfaultfd is not allowed"));
    assert_non_null(strstr(logged, info.why));
    munmap(addr, AREA);
    close_pair(&p);
}

/* Its pages belong to a file: the kernel tells nothing of them. */
TEST(memory_that_cannot_be_watched_is_copied) {
    struct pair p;
    open_pair(&p, SLUICE_REGISTRATIONS_AUTO, 0);
    if (!watched(&p)) {
        close_pair(&p);
        skip();
    }
    char name[] = "/tmp/in_place_XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    unlink(name);
    assert_int_equal(ftruncate(fd, AREA), 0);
    uint8_t *addr = mmap(NULL, AREA, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(addr, MAP_FAILED);
    for (unsigned seed = 3; seed < 6; seed++) { /* in a folder of tmpfs the kernel may watch it */
        memory_fill(addr, AREA, seed);
        sluice_registration_invalidate(addr, AREA);
        must_data(arrives(&p, addr, LARGE, seed));
    }
    munmap(addr, AREA);
    close(fd);
    close_pair(&p);
}

TEST(a_session_that_ends_in_the_middle_unpins) {
    uint8_t *addr = map_at(NULL, AREA, 1);
    for (unsigned way = 0; way < 8; way++) {
        struct pair p;
        unsigned outcomes = 0;
        open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
        if (way & 2)
            pair_session(&p.b)->tx.rndv_above = UINT64_MAX;
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(send_in_place(&p, addr, LARGE), 0);
        if (way & 4) { /* on its way, it is not found any more, and ends with the message */
            sluice_registration_invalidate(addr, AREA);
            assert_int_equal(kept, 1);
        }
        sluice_hangup(way & 1 ? p.a.session : p.b.session, 0);
        sluice_event event;
        do {
            assert_true(pair_next(&p, &p.b, &event));
            outcomes += event.type == SLUICE_SENT;
        } while (event.type != SLUICE_CLOSED);
        must_data_equal(outcomes, 3);
        sluice_registration_invalidate(addr, AREA);
        assert_int_equal(kept, 0);
        assert_int_equal(info_of(&p).bytes, 0);
        close_pair(&p);
    }
    munmap(addr, AREA);
}

TEST(a_device_that_is_gone_keeps_none) {
    struct pair p;
    uint8_t *addr = map_at(NULL, AREA, 1);
    open_pair(&p, SLUICE_REGISTRATIONS_NOTIFIED, 0);
    must_data(arrives(&p, addr, LARGE, 1));
    assert_int_equal(send_in_place(&p, addr, SMALL), 0); /* pinned */
    regcache_lazy_detach(&p.b.node->regcache);
    assert_int_equal(kept, 0);
    assert_int_equal(info_of(&p).on, 0);
    assert_string_equal(info_of(&p).why, "off: the device is gone");
    sluice_hangup(p.b.session, 0);
    pair_expect(&p, &p.b, SLUICE_SENT);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    munmap(addr, AREA);
    close_pair(&p);
}
