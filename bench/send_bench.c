/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * send_bench.c - what a message costs, for others to be compared with. Both ends are turned by one thread over the
 * software device, so nothing is waited for: what is counted is work.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <sluice/sluice.h>

#include "shim.h"

enum { EVENTS = 32, TRIES = 1000000, SAMPLES = 65536 };

struct setting {
    size_t bytes;
    unsigned window; /* messages on their way at a time */
};

struct end {
    sluice_node *node;
    sluice_loop *loop;
    sluice_session session;
    bool up, closed;
    uint64_t received;
};

static void turn(struct end *end) {
    sluice_event events[EVENTS];
    int n = sluice_poll(end->loop, events, EVENTS, 0);
    for (int i = 0; i < n; i++) {
        end->received += events[i].type == SLUICE_MESSAGE;
        end->closed |= events[i].type == SLUICE_CLOSED;
        if (events[i].type == SLUICE_UP) {
            end->session = events[i].session;
            end->up = true;
        }
    }
}

static bool open_ends(struct end ends[2]) {
    char address[64];
    sluice_listener listener;
    sluice_error e;
    for (int i = 0; i < 2; i++)
        if (sluice_open(&ends[i].node,
                        SLUICE_NODE(.device = "soft", .workers = SLUICE_NO_WORKERS,
                                    .idle = SLUICE_IDLE_SPIN),
                        &e) != 0 ||
            sluice_loop_open(ends[i].node, &ends[i].loop, &e) != 0)
            return false;
    if (sluice_listen(ends[0].node, "127.0.0.1:0", SLUICE_LINK(.loop = ends[0].loop), &listener,
                      &e) != 0)
        return false;
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    if (sluice_dial(ends[1].node, address, SLUICE_LINK(.loop = ends[1].loop), &ends[1].session,
                    &e) != 0)
        return false;
    for (unsigned i = 0; i < TRIES && !(ends[0].up && ends[1].up); i++) {
        turn(&ends[0]);
        turn(&ends[1]);
    }
    return ends[0].up && ends[1].up;
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* From memory of the application. */
static bool send_window(struct end *from, const struct setting *setting) {
    static const char payload[65536];
    for (unsigned i = 0; i < setting->window; i++)
        if (sluice_send_copy(from->session, payload, setting->bytes, NULL) != 0)
            return false;
    return true;
}

static uint64_t samples[SAMPLES];

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double median(uint64_t count, unsigned window) {
    count = count < SAMPLES ? count : SAMPLES;
    qsort(samples, count, sizeof samples[0], by_size);
    return count > 0 ? (double)samples[count / 2] / window : 0;
}

/*
 * An iteration is a window: sent, taken by the other end, and completed. All of it is counted, since which
 * end copies the bytes is the device's business; sender_ns is what the sender's thread would have of it.
 */
static void eager(bench_state *state, void *arg) {
    const struct setting *setting = arg;
    struct end ends[2] = {{0}};
    uint64_t sent = 0, windows = 0, sender = 0;
    bool good = open_ends(ends);
    while (good && bench_next(state)) {
        uint64_t start = now(), posted, taken;
        good = send_window(&ends[1], setting);
        posted = now();
        sent += setting->window;
        for (unsigned i = 0; good && ends[0].received < sent; i++) {
            if (i > 0)
                turn(&ends[1]); /* it waits for credits */
            turn(&ends[0]);
            good = i < TRIES && !ends[0].closed;
        }
        taken = now();
        turn(&ends[1]);
        uint64_t end = now();
        bench_time(state, end - start);
        sender += posted - start + (end - taken);
        samples[windows++ % SAMPLES] = end - start;
    }
    if (!good)
        bench_fail(state, "the messages do not go");
    bench_counter(state, "median_ns", median(windows, setting->window)); /* of a message */
    bench_counter(state, "sender_ns", windows > 0 ? (double)sender / (double)sent : 0);
    for (int i = 0; i < 2; i++)
        if (ends[i].node)
            sluice_close(ends[i].node, 0);
}

BENCH_SETUP {
    static struct setting one = {4096, 1}, several = {4096, 16};
    bench_register_timed("send/eager/4096/window:1", eager, &one);
    bench_register_timed("send/eager/4096/window:16", eager, &several);
}
