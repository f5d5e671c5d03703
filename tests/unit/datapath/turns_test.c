/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * turns_test.c - what a loop counts of its own work: how long it was at it, which rest is not, and how
 * well posts and polls are batched. The clock stands still but for what a test adds to it.
 */
#include <sys/epoll.h>
#include <unistd.h>

#include "support/pair.h"
#include "datapath/tx/coalesce.h"

#define MS 1000000ull

/* Stands in for libc's, so that a sleep of the test's own thread takes as long as a test wants. */
static _Thread_local uint64_t sleep_takes;

int epoll_wait(int epoll_fd, struct epoll_event *events, int max, int timeout_ms) {
    bool sleeps = timeout_ms != 0 && sleep_takes > 0;
    if (sleeps)
        pair_clock += sleep_takes;
    return epoll_pwait(epoll_fd, events, max, sleeps ? 0 : timeout_ms, NULL);
}

static struct {
    uint64_t takes; /* each message keeps the handler so long */
    unsigned ups, messages;
    sluice_session session;
} handled;

static void handler(const sluice_event *event, void *arg) {
    (void)arg;
    handled.session = event->session;
    handled.ups += event->type == SLUICE_UP;
    if (event->type != SLUICE_MESSAGE)
        return;
    handled.messages++;
    pair_clock += handled.takes;
}

static struct pair pair;

/* a listens: with the handler, or a's events are polled. Time stands still from here on. */
static void start(const sluice_link_options *a, const sluice_link_options *b) {
    memset(&handled, 0, sizeof handled);
    sleep_takes = 0;
    pair_open(&pair, PAIR_NODE(.idle = SLUICE_IDLE_BLOCK), a);
    pair_dial(&pair, b);
    pair_expect(&pair, &pair.b, SLUICE_UP);
    if (a->handler)
        for (int i = 0; handled.ups == 0 && i < 1000000; i++)
            pair_turn(&pair);
    else
        pair_expect(&pair, &pair.a, SLUICE_UP);
    pair_frozen = env_now(&env_default);
    pair_turns(&pair, 200);
    pair.a.loop->totals.stalls = pair.a.loop->totals.longest_busy_ns = 0;
}

static const struct loop_totals *totals(void) {
    return &pair.a.loop->totals;
}

static void arrive(unsigned count) {
    unsigned before = handled.messages;
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pair_send(&pair.b, 8, 0, NULL), 0);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (handled.messages < before + count && env_now(&env_default) < limit)
        pair_turn(&pair);
    assert_int_equal(handled.messages, before + count);
}

static void turn(int count) {
    while (count-- > 0)
        pair_turn(&pair);
}

/* ---- at work --------------------------------------------------------------------------------- */

TEST(a_slow_handler_is_a_stall_and_the_longest_turn) {
    start(PAIR_LINK(.handler = handler), PAIR_LINK(0));
    arrive(5);
    turn(64);
    assert_int_equal(totals()->stalls, 0);
    assert_int_equal(totals()->longest_busy_ns, 0);

    handled.takes = 5 * MS;
    arrive(1);
    turn(64);
    assert_int_equal(totals()->stalls, 1);
    assert_int_equal(totals()->longest_busy_ns, 5 * MS);

    handled.takes = 2 * MS;
    arrive(1);
    turn(64);
    assert_int_equal(totals()->stalls, 2);
    assert_int_equal(totals()->longest_busy_ns, 5 * MS);
    /* A reader of the page sees them too. */
    const struct stats_loop *page = &pair.a.node->stats.page->loops[pair.a.loop->index];
    loop_publish(pair.a.loop);
    assert_int_equal(page->stalls, 2);
    assert_int_equal(page->longest_busy_ns, 5 * MS);
    pair_close(&pair);
}

/* Without keepalive no deadline brings the loop to look at the clock: every 64th turn does. */
TEST(a_slow_handler_shows_without_any_deadline) {
    start(PAIR_LINK(.handler = handler, .keepalive_ns = SLUICE_OFF),
          PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    assert_true(pair.a.loop->next_deadline_ns == UINT64_MAX);
    handled.takes = 5 * MS;
    arrive(1);
    turn(64);
    assert_int_equal(totals()->stalls, 1);
    assert_int_equal(totals()->longest_busy_ns, 5 * MS);
    pair_close(&pair);
}

TEST(quick_handlers_are_no_stall) {
    start(PAIR_LINK(.handler = handler), PAIR_LINK(0));
    handled.takes = 10000; /* a batch of them in one turn is not above the threshold */
    for (int i = 0; i < 50; i++) {
        arrive(16);
        turn(64);
    }
    assert_int_equal(totals()->stalls, 0);
    assert_uint_in_range(totals()->longest_busy_ns, 10000, 64 * 16 * 10000);
    pair_close(&pair);
}

/* Whichever turn it was that found the message: one in 64 looks at the clock, and ends a span. */
TEST(a_program_busy_with_its_messages_is_a_stall) {
    start(PAIR_LINK(0), PAIR_LINK(0));
    for (unsigned i = 1; i <= 130; i++) {
        assert_int_equal(pair_send(&pair.b, 8, 0, NULL), 0);
        pair_expect(&pair, &pair.a, SLUICE_MESSAGE);
        pair_clock += 5 * MS; /* between two polls, with a message in its hands */
        turn(64 + 1);
        assert_int_equal(totals()->stalls, i);
        assert_int_equal(totals()->longest_busy_ns, 5 * MS);
    }
    pair_close(&pair);
}

/* ---- at rest --------------------------------------------------------------------------------- */

TEST(sleep_is_no_stall) {
    sluice_event event;
    start(PAIR_LINK(.handler = handler), PAIR_LINK(0));
    sleep_takes = 5 * MS;
    for (int i = 0; i < 20; i++) {
        uint64_t sleeps = totals()->sleeps;
        arrive(1); /* work right before it, and right after */
        assert_int_equal(sluice_poll(pair.a.loop, &event, 1, 5 * MS), 0);
        assert_true(totals()->sleeps > sleeps);
    }
    turn(64);
    assert_int_equal(totals()->stalls, 0);
    assert_int_equal(totals()->longest_busy_ns, 0);
    /* What is slept is not added to what is worked. */
    handled.takes = 3 * MS;
    arrive(1);
    assert_int_equal(sluice_poll(pair.a.loop, &event, 1, 5 * MS), 0);
    turn(64);
    assert_int_equal(totals()->stalls, 1);
    assert_int_equal(totals()->longest_busy_ns, 3 * MS);
    pair_close(&pair);
}

TEST(spinning_is_no_stall) {
    sluice_event event;
    start(PAIR_LINK(.handler = handler), PAIR_LINK(0));
    assert_int_equal(sluice_loop_set_idle(pair.a.loop, SLUICE_IDLE_SPIN), 0);
    uint64_t sleeps = totals()->sleeps, began = pair_clock;
    arrive(1);
    pair_step = 300000; /* every look at the clock, 64 empty turns after the other */
    assert_int_equal(sluice_poll(pair.a.loop, &event, 1, 20 * MS), 0);
    pair_step = 0;
    assert_true(pair_clock - began >= 20 * MS);
    assert_int_equal(totals()->sleeps, sleeps);
    assert_int_equal(totals()->stalls, 0);
    pair_close(&pair);
}

TEST(a_program_that_is_away_with_nothing_to_do_is_no_stall) {
    start(PAIR_LINK(0), PAIR_LINK(0));
    for (int i = 0; i < 200; i++) {
        pair_clock += 5 * MS;
        turn(1);
    }
    assert_int_equal(totals()->stalls, 0);
    pair_close(&pair);
}

TEST(a_program_that_sleeps_on_the_descriptor_is_no_stall) {
    sluice_event event;
    start(PAIR_LINK(0), PAIR_LINK(0));
    int fd = sluice_fd(pair.a.loop);
    assert_true(fd >= 0);
    while (sluice_poll(pair.a.loop, &event, 1, 0) > 0)
        ;
    for (int i = 0; i < 20; i++) {
        pair_clock += 5 * MS;
        assert_int_equal(pair_send(&pair.b, 8, 0, NULL), 0);
        struct epoll_event ready;
        int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event interest = {.events = EPOLLIN};
        assert_int_equal(epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &interest), 0);
        sluice_poll(pair.b.loop, NULL, 0, 0);
        assert_int_equal(epoll_wait(epoll_fd, &ready, 1, 20000), 1);
        assert_int_equal(close(epoll_fd), 0);
        int n;
        while ((n = sluice_poll(pair.a.loop, &event, 1, 0)) == 0)
            sluice_poll(pair.b.loop, NULL, 0, 0);
        assert_int_equal(event.type, SLUICE_MESSAGE);
        while (sluice_poll(pair.a.loop, &event, 1, 0) > 0)
            ;
    }
    assert_int_equal(totals()->stalls, 0);
    assert_int_equal(totals()->longest_busy_ns, 0);
    pair_close(&pair);
}

/* ---- batches --------------------------------------------------------------------------------- */

static const struct loop_totals *sent(void) {
    return loop_totals(pair.b.loop);
}

TEST(posts_and_polls_are_counted_with_what_was_in_them) {
    static const sluice_send_options more = {.size = sizeof more, .flags = SLUICE_MORE};
    start(PAIR_LINK(.handler = handler, .credits = 32), PAIR_LINK(.credits = 32));
    assert_int_equal(totals()->receive_wrs, 4);
    assert_int_equal(totals()->receive_posts, 1);
    pair_grant_all(&pair, pair_session(&pair.b), pair_session(&pair.a));
    pair_session(&pair.b)->tx.coalesce_bound = 0; /* each message a frame */
    struct loop_totals before = *sent(), a_before = *totals();
    /* Twice as many each time, in one post. */
    assert_int_equal(a_before.receive_wrs, 32);
    assert_int_equal(a_before.receive_posts, 4);

    for (int i = 0; i < LOOP_WR_BATCH; i++)
        assert_int_equal(pair_send(&pair.b, 8, 0, i + 1 < LOOP_WR_BATCH ? &more : NULL), 0);
    assert_int_equal(sent()->posts - before.posts, 1);
    assert_int_equal(sent()->send_wrs - before.send_wrs, LOOP_WR_BATCH);
    assert_int_equal(sent()->messages_sent - before.messages_sent, LOOP_WR_BATCH);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pair_send(&pair.b, 8, 0, NULL), 0);
    assert_int_equal(sent()->posts - before.posts, 4);
    assert_int_equal(sent()->send_wrs - before.send_wrs, LOOP_WR_BATCH + 3);

    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (handled.messages < LOOP_WR_BATCH + 3 && env_now(&env_default) < limit)
        pair_turn(&pair);
    assert_int_equal(handled.messages, LOOP_WR_BATCH + 3);
    turn(64);
    uint64_t completions = totals()->completions - a_before.completions;
    assert_true(completions >= LOOP_WR_BATCH + 3);
    assert_uint_in_range(totals()->polls - a_before.polls,
                         (completions + LOOP_WC_BATCH - 1) / LOOP_WC_BATCH, completions);
    uint64_t empty = totals()->polls;
    turn(64);
    assert_int_equal(totals()->polls, empty); /* one that finds nothing does not count */
    assert_true(totals()->receive_wrs > 32);
    assert_true(totals()->receive_posts < totals()->receive_wrs);
    pair_close(&pair);
}
