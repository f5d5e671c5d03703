/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * embed_test.c - a loop inside of somebody else's: its descriptor in a plain epoll set, and in libuv. The
 * program sleeps in its own loop only, polls when the descriptor is readable until there is nothing
 * more, and must neither miss an event nor be kept awake while there is none.
 */
#include "support/side.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#ifdef HAVE_LIBUV
#include <uv.h>
#endif

enum { ROUNDS = 2000, WINDOW = 8 };

/* An echo on one side, a counter on the other; both driven by whoever has the descriptors. */
struct program {
    struct side side;
    bool echoes;
    unsigned up, received, closed, polls, wakes;
    sluice_session session;
    uint64_t next;
};

static void say(struct program *p) {
    size_t bytes = it_mixed(p->next);
    must(side_send(&p->side, p->session, bytes, p->next, 0) == 0);
    p->next++;
}

static void on_event(struct program *p, const sluice_event *event) {
    switch (event->type) {
    case SLUICE_UP:
        p->up++;
        p->session = event->session;
        for (unsigned i = 0; i < WINDOW && !p->echoes; i++)
            say(p);
        break;
    case SLUICE_MESSAGE:
        if (p->echoes) {
            must(sluice_send(event->session, event->msg, NULL) == 0);
        } else {
            must(it_matches(event->msg, it_mixed(p->received), p->received));
            if (p->next < ROUNDS)
                say(p);
        }
        p->received++;
        break;
    case SLUICE_CLOSED:
        p->closed++;
        break;
    case SLUICE_WAKE:
        p->wakes++;
        break;
    default:
        must(!"an event nobody asked for");
    }
}

/* What a program does when the descriptor is readable. */
static void drain(struct program *p) {
    sluice_event events[16];
    int n;
    p->polls++;
    while ((n = sluice_poll(p->side.loop, events, 16, 0)) > 0)
        for (int i = 0; i < n; i++)
            on_event(p, &events[i]);
    must(n == 0);
}

static void programs_open(struct program *a, struct program *b) {
    memset(a, 0, sizeof *a);
    memset(b, 0, sizeof *b);
    a->echoes = true;
    side_open(&a->side, false, NULL);
    side_open(&b->side, false, NULL);
    /* Silence shall be silence: keepalive looks around a few times in its interval. */
    const sluice_link_options quiet = {.keepalive_ns = SLUICE_OFF};
    int port = side_listen(&a->side, &quiet, NULL);
    side_dial(&b->side, port, &quiet);
}

static void programs_close(struct program *a, struct program *b) {
    assert_int_equal(a->up, 1);
    assert_int_equal(b->up, 1);
    must_data_equal(a->received, ROUNDS);
    must_data_equal(b->received, ROUNDS);
    assert_int_equal(a->closed, 1);
    assert_int_equal(b->closed, 1);
    side_close(&b->side, 0);
    side_close(&a->side, 0);
}

static uint64_t cpu_ns(void) {
    struct rusage use;
    must(getrusage(RUSAGE_THREAD, &use) == 0);
    return ((uint64_t)use.ru_utime.tv_sec + (uint64_t)use.ru_stime.tv_sec) * 1000000000 +
           ((uint64_t)use.ru_utime.tv_usec + (uint64_t)use.ru_stime.tv_usec) * 1000;
}

/* ---- epoll ----------------------------------------------------------------------------------- */

static void watch(int set, int fd, void *data) {
    struct epoll_event interest = {.events = EPOLLIN, .data.ptr = data};
    must(epoll_ctl(set, EPOLL_CTL_ADD, fd, &interest) == 0);
}

/* One round of the program; false when nothing came within limit_ms. */
static bool epoll_round(int set, int limit_ms) {
    struct epoll_event ready[4];
    int n = epoll_wait(set, ready, 4, limit_ms);
    must(n >= 0 || errno == EINTR);
    for (int i = 0; i < n; i++)
        drain(ready[i].data.ptr);
    return n > 0;
}

TEST(a_plain_epoll_program_misses_nothing) {
    struct program a, b;
    programs_open(&a, &b);
    int set = epoll_create1(EPOLL_CLOEXEC);
    must(set >= 0);
    watch(set, sluice_fd(a.side.loop), &a);
    watch(set, sluice_fd(b.side.loop), &b);
    while (b.received < ROUNDS)
        must(epoll_round(set, (int)(LIMIT_NS / MS)));
    /* With nothing to do the descriptors are quiet: what is readable is so for a reason. One is that credits a
     * peer no longer uses are taken back; somebody looks once a second until they are. */
    unsigned rounds = 0;
    while (epoll_round(set, 1500))
        must(++rounds < 100);
    uint64_t cpu = cpu_ns(), since = sluice_now();
    unsigned polls = a.polls + b.polls;
    must(!epoll_round(set, 300));
    assert_int_equal(a.polls + b.polls, polls);
    assert_true((cpu_ns() - cpu) * 6 < sluice_now() - since); /* of what the machine gave */
    sluice_wake(a.side.loop);                                 /* from anywhere */
    while (a.wakes == 0)
        must(epoll_round(set, (int)(LIMIT_NS / MS)));
    sluice_hangup(b.session, 0);
    while (a.closed + b.closed < 2)
        must(epoll_round(set, (int)(LIMIT_NS / MS)));
    close(set);
    programs_close(&a, &b);
}

/* Edge-triggered sets see each change once: a program that polls until 0 is still told of the next. */
TEST(an_edge_triggered_set_works_too) {
    struct program a, b;
    programs_open(&a, &b);
    int set = epoll_create1(EPOLL_CLOEXEC);
    must(set >= 0);
    struct program *both[] = {&a, &b};
    for (unsigned i = 0; i < 2; i++) {
        struct epoll_event interest = {.events = EPOLLIN | EPOLLET, .data.ptr = both[i]};
        must(epoll_ctl(set, EPOLL_CTL_ADD, sluice_fd(both[i]->side.loop), &interest) == 0);
    }
    while (b.received < ROUNDS)
        must(epoll_round(set, (int)(LIMIT_NS / MS)));
    sluice_hangup(b.session, 0);
    while (a.closed + b.closed < 2)
        must(epoll_round(set, (int)(LIMIT_NS / MS)));
    close(set);
    programs_close(&a, &b);
}

/* ---- libuv ----------------------------------------------------------------------------------- */

#ifdef HAVE_LIBUV

static unsigned ticks;

static void on_readable(uv_poll_t *handle, int status, int events) {
    struct program *p = handle->data;
    must(status == 0 && (events & UV_READABLE));
    drain(p);
    if (!p->echoes && p->received == ROUNDS && p->closed == 0)
        sluice_hangup(p->session, 0);
    if (p->closed)
        uv_poll_stop(handle);
}

/* The program's own work goes on beside it. */
static void on_tick(uv_timer_t *timer) {
    struct program *b = timer->data;
    ticks++;
    if (b->closed)
        uv_timer_stop(timer);
}

TEST(a_libuv_program_misses_nothing) {
    struct program a, b;
    uv_loop_t loop;
    uv_poll_t polls[2];
    uv_timer_t timer;
    programs_open(&a, &b);
    must(uv_loop_init(&loop) == 0);
    struct program *both[] = {&a, &b};
    for (unsigned i = 0; i < 2; i++) {
        must(uv_poll_init(&loop, &polls[i], sluice_fd(both[i]->side.loop)) == 0);
        polls[i].data = both[i];
        must(uv_poll_start(&polls[i], UV_READABLE, on_readable) == 0);
    }
    must(uv_timer_init(&loop, &timer) == 0);
    timer.data = &b;
    ticks = 0;
    must(uv_timer_start(&timer, on_tick, 1, 1) == 0);
    uv_run(&loop, UV_RUN_DEFAULT); /* until nothing is active */
    assert_true(ticks > 0);
    for (unsigned i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&polls[i], NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    must(uv_loop_close(&loop) == 0);
    programs_close(&a, &b);
}

#else

static void a_libuv_program_misses_nothing(void **state) {
    (void)state;
    fprintf(stderr, "LIBUV IS NOT INSTALLED: NOT TRIED\n");
    skip();
}

#endif
