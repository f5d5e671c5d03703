/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_walk_test.c - the whole table, walked on live connections: every event in every state that can
 * be reached, with plausible and with senseless contents, and two of them in a row. Whatever comes,
 * every session ends exactly once, nothing is left behind, and the node closes in time.
 */
#include "support/places.h"

#include "cm/cm_table.h"

#include "common/sanitize.h"
#include "support/tasks.h"
#include "support/usage.h"

#define UNKNOWN_EVENT 57
#define CLOSE_LIMIT_NS 10000000000ull

static void close_in_time(struct visit *v) {
    uint64_t start = env_now(&env_default);
    visit_close(v);
    assert_true(env_now(&env_default) - start < CLOSE_LIMIT_NS);
}

/* A node whose device is said to be removed is of no more use. */
static void renew(struct visit *v) {
    if (!v->p.a.node->cm->device_lost && !v->p.b.node->cm->device_lost)
        return;
    close_in_time(v);
    visit_open(v);
}

/* ---- one event ------------------------------------------------------------------------------- */

struct says {
    unsigned column;
    int status;
    const void *data;
    size_t bytes;
};

static const uint8_t noise[255] = {'S', 'L', 1, 56, 0xff, 0x80, 7};
static const uint8_t zeros[255];

static int number_of(unsigned column) {
    return column == CM_EVENT_UNKNOWN ? UNKNOWN_EVENT : (int)column;
}

/* False: there is nobody left it could be said to. */
static bool say(struct visit *v, const struct place *place, const struct says *says) {
    struct cm_owner *owner = place_owner(v, place);
    struct cm *cm = place_side(v, place)->node->cm;
    if (!owner || (!owner->id && owner->state != CM_BACKOFF))
        return false;
    struct rdma_cm_event event = {
        .event = (enum rdma_cm_event_type)number_of(says->column),
        .status = says->status,
    };
    uint64_t before = atomic_load(&cm->stats->events[says->column]);
    if (!visit_say(v, place, owner, &event, says->data, says->bytes))
        return false;
    assert_true(atomic_load(&cm->stats->events[says->column]) > before);
    return true;
}

static const struct says contents[] = {
    {0, 0, NULL, 0},
    {0, -ETIMEDOUT, NULL, 0},
    {0, 28, zeros, 148},
    {0, INT32_MIN, noise, 255},
};

TEST(every_event_in_every_state_leaves_a_node_that_works) {
    struct visit v;
    visit_open(&v);
    for (unsigned i = 0; i < PLACES; i++)
        for (unsigned column = 0; column < CM_EVENT_COUNT; column++)
            for (unsigned k = 0; k < sizeof contents / sizeof *contents; k++) {
                struct says says = contents[k];
                says.column = column;
                visit(&v, &places[i]);
                assert_true(say(&v, &places[i], &says));
                visit_end(&v);
                watched_rules_were_kept();
                renew(&v);
            }
    /* And it still does what it is there for. */
    pair_connect(&v.p, PAIR_LINK());
    assert_int_equal(pair_send(&v.p.b, 1000, 1, NULL), 0);
    pair_expect(&v.p, &v.p.a, SLUICE_MESSAGE);
    close_in_time(&v);
}

/* What the table ignores changes nothing: the connection comes about, and carries messages. */
TEST(an_ignored_event_changes_nothing) {
    struct visit v;
    visit_open(&v);
    for (unsigned i = 0; i < PLACES; i++)
        for (unsigned column = 0; column < CM_EVENT_COUNT; column++) {
            const struct place *place = &places[i];
            if (!cm_table[place->state][column].ignored || place->way == BY_FAILING ||
                place->way == BY_HANGING_UP)
                continue;
            struct cm_owner *owner = visit(&v, place);
            assert_true(say(&v, place, &(struct says){column, 77, noise, sizeof noise}));
            assert_int_equal(owner->state, place->state);
            visit_let_go(&v);
            visit_come_up(&v);
            assert_int_equal(pair_send(&v.p.b, 300, i, NULL), 0);
            pair_expect(&v.p, &v.p.a, SLUICE_MESSAGE);
            visit_end(&v);
        }
    close_in_time(&v);
}

/* ---- two in a row ---------------------------------------------------------------------------- */

static uint32_t next_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static struct says random_says(uint64_t *seed) {
    static const int statuses[] = {0, -1, -ETIMEDOUT, 4, 8, 10, 28, 35, ENOENT, INT32_MAX, -110};
    struct says says = contents[next_random(seed) % (sizeof contents / sizeof *contents)];
    says.column = next_random(seed) % CM_EVENT_COUNT;
    says.status = statuses[next_random(seed) % (sizeof statuses / sizeof *statuses)];
    /* A removal costs two nodes, so it is rare. */
    if (says.column == RDMA_CM_EVENT_DEVICE_REMOVAL && next_random(seed) % 8 != 0)
        says.column = RDMA_CM_EVENT_DISCONNECTED;
    return says;
}

#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
enum { SEQUENCES = 1000, WARM = 400 }; /* the others are walked without a sanitizer */
#else
enum { SEQUENCES = 4000, WARM = 400 };
#endif

TEST(two_events_in_a_row_leave_nothing_behind) {
    struct visit v;
    unsigned descriptors = 0, threads = 0;
    visit_open(&v);
    for (uint64_t i = 0; i < SEQUENCES; i++) {
        uint64_t seed = i * 2654435761u + 1;
        const struct place *place = &places[next_random(&seed) % PLACES];
        visit(&v, place);
        for (unsigned k = 0; k < 2; k++) {
            struct says says = random_says(&seed);
            if (!say(&v, place, &says))
                break;
            if (next_random(&seed) % 2)
                visit_turn(&v);
        }
        visit_end(&v);
        watched_rules_were_kept();
        renew(&v);
        if (i == WARM) {
            descriptors = usage_entries("/proc/self/fd");
            threads = tasks_alive();
        }
    }
    /* What the last one leaves to other threads is put away when these had their turns. */
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (usage_entries("/proc/self/fd") > descriptors || tasks_alive() > threads)
        assert_true(env_now(&env_default) < limit);
    close_in_time(&v);
}
