/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Without memory to send with every call that needs some answers EAGAIN, and WRITABLE follows, whichever way the
 * memory comes back and whoever waits for it.
 */
#include "support/pair.h"
#include "support/pool_stats.h"

#include <errno.h>
#include <semaphore.h>

#include "pool/internal.h"
#include "datapath/rx/message.h"

enum { HOARD = 8192, SIZE = 2000, MIB = 1 << 20 };

/* ---- a thread with a loop of its own on the node of the one that starves ------------------------- */

enum order { GET, FREE, POLL, CLOSE, ASK, QUIT };

struct helper {
    struct pair *p;
    sluice_loop *loop; /* NULL: it has none */
    pthread_t thread;
    sem_t go, done;
    enum order order;
    sluice_msg *held;
    int (*ask)(struct pair *p);
    int status;
};

static void obey(struct helper *h) {
    switch (h->order) {
    case GET:
        if (h->loop)
            assert_int_equal(sluice_poll(h->loop, NULL, 0, 0), 0);
        h->held = message_get(h->p->a.node->pool, SIZE);
        break;
    case FREE:
        sluice_free(h->held);
        break;
    case POLL:
        assert_int_equal(sluice_poll(h->loop, NULL, 0, 0), 0);
        break;
    case CLOSE:
        assert_int_equal(sluice_loop_close(h->loop), 0);
        break;
    case ASK:
        h->status = h->ask(h->p);
        break;
    case QUIT:
        break;
    }
}

static void *helper_main(void *arg) {
    struct helper *h = arg;
    enum order order;
    do {
        while (sem_wait(&h->go) != 0)
            ;
        order = h->order;
        obey(h);
        sem_post(&h->done);
    } while (order != QUIT);
    return NULL;
}

static void order(struct helper *h, enum order what) {
    h->order = what;
    sem_post(&h->go);
    while (sem_wait(&h->done) != 0)
        ;
}

static void helper_open(struct helper *h, struct pair *p, bool with_loop) {
    sluice_error e;
    *h = (struct helper){.p = p};
    sem_init(&h->go, 0, 0);
    sem_init(&h->done, 0, 0);
    if (with_loop)
        assert_int_equal(sluice_loop_open(p->a.node, &h->loop, &e), 0);
    assert_int_equal(pthread_create(&h->thread, NULL, helper_main, h), 0);
}

static void helper_close(struct helper *h) {
    order(h, QUIT);
    pthread_join(h->thread, NULL);
    sem_destroy(&h->go);
    sem_destroy(&h->done);
}

/* ---- who asks ------------------------------------------------------------------------------------ */

static uint8_t text[SIZE];

static int ask_alloc(struct pair *p) {
    sluice_msg *msg;
    int status = sluice_alloc(p->a.node, SIZE, &msg);
    if (status != 0)
        return status;
    memset(sluice_data(msg), 0, SIZE);
    status = sluice_send(p->a.session, msg, NULL);
    assert_int_equal(status, 0);
    return status;
}

static int ask_copy(struct pair *p) {
    return sluice_send_copy(p->a.session, text, SIZE, NULL);
}

/* A little less: the list of the pieces lies in the buffer too. */
static int ask_pieces(struct pair *p) {
    const sluice_piece pieces[] = {{text, SIZE / 2, NULL}, {text, SIZE / 2 - 200, NULL}};
    return sluice_send_pieces(p->a.session, pieces, 2, NULL);
}

static int (*const asks[])(struct pair *) = {ask_alloc, ask_copy, ask_pieces};

/* ---- the ways of memory --------------------------------------------------------------------------- */

enum way {
    OWN_CACHE,    /* the loop's thread frees */
    OTHER_CACHE,  /* another loop's thread frees */
    NO_CACHE,     /* a thread without a loop frees */
    HOARDED,      /* it lies free in the cache of another loop */
    CLOSED_CACHE, /* likewise, and that loop is closed */
    SENT,         /* a message was sent */
    GROWN,        /* the helper thread adds an arena */
    WAYS
};

static sluice_msg *hoard[HOARD];
static unsigned hoarded;

/* Everything there is, behind the back of those who wait. Its thread uses the cache of this loop. */
static void use_up(struct pair *p) {
    assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
    while (hoarded < HOARD && (hoard[hoarded] = message_get(p->a.node->pool, SIZE)))
        hoarded++;
    assert_uint_in_range(hoarded, 1, HOARD - 1);
}

static void give_back_all(struct pair *p) {
    assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
    while (hoarded > 0)
        sluice_free(hoard[--hoarded]);
}

static void before_it_is_used_up(struct pair *p, struct helper *h, enum way way) {
    struct pool *pool = p->a.node->pool;
    if (way == OTHER_CACHE || way == NO_CACHE || way == HOARDED || way == CLOSED_CACHE) {
        order(h, GET);
        assert_non_null(h->held);
    }
    if (way == GROWN) /* no arena can be had for now */
        pool->budget.bytes_max = pool_bytes(pool);
}

static void before_it_is_asked_for(struct pair *p, struct helper *h, enum way way) {
    if (way == HOARDED || way == CLOSED_CACHE)
        order(h, FREE);
    if (way == SENT) {
        memset(sluice_data(hoard[hoarded - 1]), 0, SIZE);
        assert_int_equal(sluice_send(p->a.session, hoard[--hoarded], NULL), 0);
    }
}

static void bring_it_back(struct pair *p, struct helper *h, enum way way) {
    struct pool *pool = p->a.node->pool;
    if (way == OWN_CACHE) {
        assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
        sluice_free(hoard[--hoarded]);
    } else if (way == OTHER_CACHE || way == NO_CACHE) {
        order(h, FREE);
    } else if (way == HOARDED) {
        order(h, POLL);
    } else if (way == CLOSED_CACHE) {
        order(h, CLOSE);
    } else if (way == GROWN) {
        pool->budget.bytes_max = 3 * MIB;
        pool_grow_ahead(pool, MIB);
        pool_grow_settle(pool);
    }
}

static void one_way(int (*ask)(struct pair *), enum way way, bool elsewhere) {
    struct pair p;
    struct helper other, caller;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 4 * MIB, .message_bytes_max = 256 << 10),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    helper_open(&other, &p, way != NO_CACHE);
    helper_open(&caller, &p, false);
    caller.ask = ask;
    before_it_is_used_up(&p, &other, way);
    use_up(&p);
    before_it_is_asked_for(&p, &other, way);
    for (int i = 0; i < 2; i++) { /* asking again changes nothing */
        if (elsewhere)
            order(&caller, ASK);
        assert_int_equal(elsewhere ? caller.status : ask(&p), SLUICE_EAGAIN);
    }
    bring_it_back(&p, &other, way);
    pair_expect(&p, &p.a, SLUICE_WRITABLE);
    if (elsewhere)
        order(&caller, ASK);
    assert_int_equal(elsewhere ? caller.status : ask(&p), 0);
    if (way == SENT)
        pair_expect(&p, &p.b, SLUICE_MESSAGE);
    pair_expect(&p, &p.b, SLUICE_MESSAGE);
    pair_expect_nothing(&p, &p.a); /* once */
    give_back_all(&p);
    pair_expect_nothing(&p, &p.a); /* nobody waits any more */
    helper_close(&caller);
    helper_close(&other);
    pair_close(&p);
}

TEST(who_waits_for_memory_hears_of_it_whichever_way_it_comes) {
    for (enum way way = 0; way < WAYS; way++)
        for (unsigned i = 0; i < sizeof asks / sizeof asks[0]; i++)
            for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
                print_message("way %d, call %u, %s\n", (int)way, i,
                              elsewhere ? "another thread" : "the loop's");
                one_way(asks[i], way, elsewhere);
            }
}

/* Who sleeps in a poll is woken, and the loop that has free buffers wakes it. */
static void *sleep_in_poll(void *arg) {
    struct helper *h = arg;
    sluice_event event;
    assert_int_equal(sluice_poll(h->loop, &event, 1, SLUICE_OFF), 1);
    assert_int_equal(event.type, SLUICE_WAKE);
    return NULL;
}

TEST(a_loop_that_sleeps_gives_back_what_its_cache_has) {
    struct pair p;
    struct helper h;
    pthread_t sleeper;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 4 * MIB, .message_bytes_max = 256 << 10),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    helper_open(&h, &p, true);
    order(&h, GET);
    use_up(&p);
    order(&h, FREE);
    assert_int_equal(pthread_create(&sleeper, NULL, sleep_in_poll, &h), 0);
    while (!atomic_load(&h.loop->mailbox.wakeup.state)) /* armed: about to sleep, or asleep */
        sched_yield();
    int status = ask_copy(&p);
    if (status == SLUICE_EAGAIN) { /* else it was quicker */
        pair_expect(&p, &p.a, SLUICE_WRITABLE);
        status = ask_copy(&p);
    }
    assert_int_equal(status, 0);
    pair_expect(&p, &p.b, SLUICE_MESSAGE);
    sluice_wake(h.loop);
    pthread_join(sleeper, NULL);
    give_back_all(&p);
    helper_close(&h);
    pair_close(&p);
}

/* It is told when it may have what it wants, not of each little that comes back. */
TEST(small_returns_bring_no_writable_to_who_wants_much) {
    enum { MUCH = 200000, SPAN_OF_SIZE = 31 };
    struct pair p;
    sluice_msg *msg = NULL;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 4 * MIB, .message_bytes_max = 256 << 10),
              PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    use_up(&p);
    unsigned vain = 0, all = hoarded;
    assert_int_equal(sluice_alloc(p.a.node, MUCH, &msg), SLUICE_EAGAIN);
    while (!msg && hoarded > 0) {
        sluice_event event;
        sluice_free(hoard[--hoarded]);
        if (sluice_poll(p.a.loop, &event, 1, 0) == 0)
            continue;
        assert_int_equal(event.type, SLUICE_WRITABLE);
        if (sluice_alloc(p.a.node, MUCH, &msg) != 0)
            vain++;
    }
    assert_non_null(msg);
    print_message("%u of %u came back, %u times told in vain\n", all - hoarded, all, vain);
    assert_true(vain <= (all - hoarded) / SPAN_OF_SIZE + 1);
    assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
    sluice_free(msg);
    give_back_all(&p);
    pair_close(&p);
}

static struct ibv_mr *refuse(struct ibv_pd *pd, void *addr, size_t length, int access) {
    (void)pd, (void)addr, (void)length, (void)access;
    errno = ENOMEM;
    return NULL;
}

/* What nobody could ever give back is no reason to wait; what a session holds for good is not either. */
TEST(without_memory_that_could_come_back_it_is_enomem) {
    struct pair p;
    sluice_msg *small, *large;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 64 * MIB), PAIR_LINK());
    pair_connect(&p, PAIR_LINK());
    assert_int_equal(pair_send(&p.a, 500000, 1, NULL), 0);
    pair_expect(&p, &p.b, SLUICE_MESSAGE);
    pair_expect_nothing(&p, &p.a); /* the buffer is back */
    assert_non_null(pair_session(&p.a)->connection->sq.headers);
    struct pool *pool = p.a.node->pool;
    struct fabric_ops fabric = *pool->budget.fabric;
    fabric.reg_mr = refuse;
    pool->budget.fabric = &fabric;
    assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
    assert_int_equal(sluice_alloc(p.a.node, 1000, &small), 0);
    assert_int_equal(sluice_alloc(p.a.node, 16 * MIB, &large), SLUICE_EAGAIN);
    pair_expect_nothing(&p, &p.a);
    assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
    sluice_free(small);
    pair_expect(&p, &p.a, SLUICE_WRITABLE);
    assert_true(sluice_poll(p.a.loop, NULL, 0, 0) >= 0);
    assert_int_equal(sluice_alloc(p.a.node, 16 * MIB, &large), SLUICE_ENOMEM);
    pair_expect_nothing(&p, &p.a);
    pair_close(&p);
}
