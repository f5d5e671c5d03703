/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* honest.c - see honest.h. The thread owns everything but the figures. */
#include "support/side.h"

#include <sched.h>
#include <time.h>

#include "hostile/honest.h"

static struct honest pair;
static pthread_t thread;
static int schedule; /* what the kernel says of the thread */
static _Atomic bool stop;
static _Atomic uint64_t rounds, worst_own, worst_wall;

/* Of a frame, of fragments, and by rendezvous. */
static size_t size_of(uint64_t round) {
    return round % 64 == 63 ? 200000 : round % 16 == 15 ? 20000 : round % 4 == 3 ? 4000 : 64;
}

static uint64_t own_time(void) {
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The victim's loop: back with what is the honest session's. */
static void turn_there(void) {
    sluice_event event;
    must(sluice_poll(pair.there, NULL, 0, 0) >= 0);
    while (sluice_poll(pair.there, &event, 1, 0) == 1)
        if (pair.on_event(&event) && event.type == SLUICE_MESSAGE) {
            sluice_keep(event.msg);
            must(sluice_send(event.session, event.msg, NULL) == 0);
        }
}

/* True: it is back, as it was. */
static bool turn_here(uint64_t round) {
    sluice_event event;
    bool back = false;
    while (!back && sluice_poll(pair.here, &event, 1, 0) == 1) {
        if (event.session.id != pair.session.id || event.type == SLUICE_WRITABLE)
            continue;
        if (event.type != SLUICE_MESSAGE)
            fprintf(stderr, "the honest session: %s %s\n", sluice_event_name(event.type),
                    sluice_reason_text(event.reason));
        must(event.type == SLUICE_MESSAGE);
        must(it_matches(event.msg, size_of(round), round));
        back = true;
    }
    return back;
}

/* How long the thread could run and was not run, as the kernel counts it; 0: it does not. */
static uint64_t delayed(void) {
    unsigned long long ran, waited = 0;
    char text[96];
    ssize_t n = schedule < 0 ? 0 : pread(schedule, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = 0;
    return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

static void go_round(uint64_t round) {
    uint64_t wall = sluice_now(), delay = delayed(), own = own_time();
    sluice_msg *msg;
    must(sluice_alloc(pair.node, size_of(round), &msg) == 0);
    it_fill(msg, round);
    must(sluice_send(pair.session, msg, NULL) == 0);
    for (unsigned turns = 1; !turn_here(round); turns++) {
        turn_there();
        if (turns % 64 == 0) {
            sched_yield();
            must(sluice_now() - wall < LIMIT_NS);
        }
    }
    own = own_time() - own;
    delay = delayed() - delay;
    wall = sluice_now() - wall;
    wall = wall > delay ? wall - delay : 0;
    if (own > atomic_load(&worst_own))
        atomic_store(&worst_own, own);
    if (wall > atomic_load(&worst_wall))
        atomic_store(&worst_wall, wall);
    atomic_fetch_add(&rounds, 1);
}

static void *go_on(void *unused) {
    (void)unused;
    schedule = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    while (!atomic_load(&stop))
        go_round(atomic_load(&rounds));
    if (schedule >= 0)
        close(schedule);
    return NULL;
}

void honest_start(const struct honest *honest) {
    pair = *honest;
    atomic_store(&stop, false);
    must(pthread_create(&thread, NULL, go_on, NULL) == 0);
}

void honest_stop(void) {
    atomic_store(&stop, true);
    must(pthread_join(thread, NULL) == 0);
}

uint64_t honest_rounds(void) {
    return atomic_load(&rounds);
}

void honest_worst(uint64_t *own_ns, uint64_t *wall_ns) {
    *own_ns = atomic_exchange(&worst_own, 0);
    *wall_ns = atomic_exchange(&worst_wall, 0);
}
