/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * A consumer that is stopped, and keeps all it was given: it holds its window of the receive memory and no more, and the
 * ninety-nine other sessions of its loop go on as if it were not there. Counted in messages a turn of the loop, not a
 * second. What a turn finds depends a little on the device's thread, which has its turns when the machine lets it: so both
 * are measured in alternation, and the medians compared.
 */
#include "support/pair.h"

enum {
    SESSIONS = 100,
    CREDITS = 32,
    WINDOW = 64,
    EACH = 4, /* messages a session may be given in a turn: more than a turn delivers */
    WARM = 200,
    TURNS = 200,
    KEPT_MAX = 4096,
    TRIES = 10,
    ROUNDS = 5,
    ROUNDS_MAX = 25, /* a cost is there in the median of any number of them; chance is not */
};

struct crowd {
    struct pair p;
    sluice_session at_b[SESSIONS];
    uint64_t stopped; /* the handle at the listener */
    sluice_msg *kept[KEPT_MAX];
    unsigned count;
    uint64_t others; /* messages delivered to them */
};

static void open_crowd(struct crowd *c, uint32_t flags) {
    memset(c, 0, sizeof *c);
    pair_open(&c->p, PAIR_NODE(.memory_bytes_max = 256 << 20),
              PAIR_LINK(.credits = CREDITS, .flags = flags));
    for (unsigned i = 0; i < SESSIONS; i++) {
        pair_connect(&c->p, PAIR_LINK(.window_messages = WINDOW));
        c->at_b[i] = c->p.b.session;
    }
    c->stopped = c->p.a.session.id; /* the last one */
}

/* All that fits is given to the others, and to the stopped one too if it is there. */
static void turn(struct crowd *c, bool there, size_t bytes) {
    sluice_event events[64];
    for (unsigned i = 0; i < (there ? SESSIONS : SESSIONS - 1); i++) {
        c->p.b.session = c->at_b[i];
        for (unsigned k = 0; k < EACH && pair_send(&c->p.b, bytes, k, NULL) == 0; k++)
            ;
    }
    cm_progress(c->p.a.node->cm, 0);
    cm_progress(c->p.b.node->cm, 0);
    int n = sluice_poll(c->p.b.loop, events, 64, 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(events[i].type, SLUICE_WRITABLE);
    n = sluice_poll(c->p.a.loop, events, 64, 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(events[i].type, SLUICE_MESSAGE);
        if (events[i].session.id != c->stopped) {
            c->others++;
            continue;
        }
        assert_true(c->count < KEPT_MAX);
        sluice_keep(events[i].msg);
        c->kept[c->count++] = events[i].msg;
    }
}

struct figures {
    uint64_t others; /* in TURNS turns */
    uint64_t kept, grown;
};

static struct figures measure(bool there, uint32_t flags, size_t bytes) {
    static struct crowd c;
    struct figures f;
    open_crowd(&c, flags);
    for (unsigned i = 0; i < WARM; i++)
        turn(&c, there, bytes);
    /* The device's thread may not have run yet: then nothing has come, and nothing is full. */
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (there && c.count == 0) {
        turn(&c, there, bytes);
        assert_true(env_now(&env_default) < limit);
    }
    /* Its window is full and nothing more comes; or the device's thread was kept from its turns until now. */
    unsigned before, tries = 0;
    do {
        before = c.count;
        c.others = 0;
        for (unsigned i = 0; i < TURNS; i++)
            turn(&c, there, bytes);
    } while (c.count != before && ++tries < TRIES);
    assert_int_equal(c.count, before);
    f.others = c.others;
    f.kept = c.count;
    f.grown = 0;
    for (unsigned i = 0; i < c.count; i++)
        f.grown += c.kept[i]->capacity;
    while (c.count > 0)
        sluice_free(c.kept[--c.count]);
    if (there) { /* and when it goes on, all is as before */
        limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (c.count == 0) {
            turn(&c, true, bytes);
            assert_true(env_now(&env_default) < limit);
        }
        while (c.count > 0)
            sluice_free(c.kept[--c.count]);
    }
    pair_close(&c.p);
    return f;
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *values, unsigned count) {
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* Rounds go on until the medians agree, for the machine's turns are not ours to plan. */
static void compare_with_and_without(size_t bytes, uint32_t flags) {
    uint64_t with[ROUNDS_MAX], without[ROUNDS_MAX], there = 0, gone = 1;
    unsigned rounds = 0;
    while (rounds < ROUNDS || (there * 100 < gone * 95 && rounds < ROUNDS_MAX)) {
        struct figures f = measure(false, flags, bytes);
        assert_int_equal(f.kept, 0);
        without[rounds] = f.others;
        f = measure(true, flags, bytes);
        assert_true(f.kept > 0);
        assert_true(f.grown <= CREDITS * 8192 + CREDITS * 512);
        with[rounds++] = f.others;
        there = median(with, rounds);
        gone = median(without, rounds);
    }
    print_message("    %zu bytes: %llu messages of the others with it, %llu without, %u rounds\n",
                  bytes, (unsigned long long)there, (unsigned long long)gone, rounds);
    assert_true(there * 100 >= gone * 95);
    assert_true(gone > TURNS * 10);
}

TEST(one_stopped_consumer_costs_its_window_and_nothing_of_the_others) {
    compare_with_and_without(64, 0);
    compare_with_and_without(2000, SLUICE_ISOLATED);
}
