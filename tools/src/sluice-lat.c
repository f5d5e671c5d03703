/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-lat - one message to and fro between two processes; each round trip is timed by itself
 * and half of it counts as one way. Percentiles come from a histogram, and the time in which the
 * machine hands one cache line from one CPU to the other stands beside them.
 *
 * One buffer serves the whole run: each side sends on the message that it was lent. With several sessions it goes on the
 * next one each time, or there is one message on its way on each of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/histogram.h"
#include "common/json.h"
#include "common/perf.h"
#include "common/tool.h"

static struct perf perf;
static struct histogram histogram;

/* ---- server ------------------------------------------------------------------------------------ */

static int finish_echo(struct perf *p, const struct control *plan, const sluice_event *event,
                       uint64_t echoed) {
    struct control end;
    int rc = endpoint_decode(&p->ep, event, &end, CONTROL_END);
    if (rc != 0)
        return rc;
    if (end.count != echoed || (plan->count != 0 && plan->count != echoed))
        return endpoint_fail_both(&p->ep, "the client counts %llu messages, %llu came",
                                  (unsigned long long)end.count, (unsigned long long)echoed);
    struct control done = {.kind = CONTROL_DONE, .count = echoed, .bytes = echoed * plan->size};
    return endpoint_say(&p->ep, &done);
}

/* Sends back what comes, until END. The first message is slept for, see perf.c. */
static int echo(struct perf *p, const struct control *plan) {
    struct endpoint *ep = &p->ep;
    uint64_t echoed = 0;
    sluice_event event;
    int rc = endpoint_await(ep, &event, perf_first_ns(p), NULL);
    if (rc != 0)
        return rc;
    for (int n = 1;;) {
        if (n < 0)
            return TOOL_FAILED;
        if (n > 0 && event.type == SLUICE_MESSAGE) {
            if (event.bytes != plan->size)
                return finish_echo(p, plan, &event, echoed);
            echoed++;
            rc = endpoint_send_on(ep, event.session, event.msg, true);
            if (rc != 0)
                return rc;
        } else if (n > 0) {
            endpoint_event(ep, &event);
            if (ep->closed)
                return endpoint_fail_closed(ep, "in the middle of a run");
        }
        n = endpoint_poll(ep, &event, 1, ENDPOINT_POLL_NS);
    }
}

/* ---- client ------------------------------------------------------------------------------------ */

/* The message that comes back, lent until the next poll; NULL after saying what went wrong. */
static sluice_msg *await_echo(struct endpoint *ep, uint64_t size) {
    sluice_event event;
    for (;;) {
        int n = endpoint_poll(ep, &event, 1, ENDPOINT_POLL_NS);
        if (n < 0)
            return NULL;
        if (n == 0)
            continue;
        if (event.type == SLUICE_MESSAGE) {
            if (event.bytes == size)
                return event.msg;
            struct control unexpected;
            endpoint_decode(ep, &event, &unexpected, 0);
            return NULL;
        }
        endpoint_event(ep, &event);
        if (ep->closed) {
            endpoint_fail_closed(ep, "in the middle of a run");
            return NULL;
        }
    }
}

/* count 0: until the duration is over. *sent counts the warm-up too. */
static int ping_pong(struct perf *p, uint64_t size, uint64_t count, uint64_t *sent) {
    struct endpoint *ep = &p->ep;
    uint64_t warmup = perf_warmup(p, size), started = 0;
    sluice_msg *msg;
    bool borrowed = false;
    int status = sluice_alloc(ep->node, size, &msg);
    if (status != 0)
        return tool_fail("no memory for a message of %llu bytes: %s", (unsigned long long)size,
                         sluice_strerror(status));
    memset(sluice_data(msg), 0, size);
    uint64_t before = clock_ticks();
    for (uint64_t i = 0;; i++) {
        if (i == warmup) {
            histogram_reset(&histogram);
            started = before;
        }
        if (count != 0 ? i == warmup + count
                       : i > warmup && clock_ticks_to_ns(before - started) >= p->o.duration_ns) {
            *sent = i;
            if (!borrowed)
                sluice_free(msg);
            return 0;
        }
        int rc = endpoint_send(ep, msg, borrowed);
        if (rc != 0)
            return rc;
        msg = await_echo(ep, size);
        if (msg == NULL)
            return TOOL_FAILED;
        borrowed = true;
        uint64_t now = clock_ticks();
        histogram_record(&histogram, clock_ticks_to_ns(now - before));
        before = now;
    }
}

/* ---- several sessions -------------------------------------------------------------------------- */

#define EVENTS_MAX 32 /* a poll */

struct rounds {
    struct perf *perf;
    uint64_t size, count; /* count 0: until the duration is over */
    uint64_t warmup, begun, back;
    uint64_t start_ticks, end_ticks; /* of what counts */
    uint64_t *asked;                 /* when the message on its way was sent, by session */
};

static bool begins_another(const struct rounds *r, uint64_t now) {
    if (r->count != 0)
        return r->begun < r->warmup + r->count;
    return r->back <= r->warmup || clock_ticks_to_ns(now - r->start_ticks) < r->perf->o.duration_ns;
}

static int ask(struct rounds *r, uint32_t on, sluice_msg *msg, bool borrowed) {
    struct endpoint *ep = &r->perf->ep;
    r->begun++;
    r->asked[on] = clock_ticks();
    return endpoint_send_on(ep, ep->many.session[on], msg, borrowed);
}

static int ask_first(struct rounds *r) {
    struct endpoint *ep = &r->perf->ep;
    uint32_t depth = r->perf->o.in_turn ? 1 : ep->many.count;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < depth && begins_another(r, 0); i++) {
        sluice_msg *msg;
        int status = sluice_alloc(ep->node, r->size, &msg);
        if (status != 0)
            return tool_fail("no memory for a message of %llu bytes: %s",
                             (unsigned long long)r->size, sluice_strerror(status));
        memset(sluice_data(msg), 0, r->size);
        rc = ask(r, i, msg, false);
    }
    return rc;
}

/* It came back. */
static int answered(struct rounds *r, const sluice_event *event) {
    struct endpoint *ep = &r->perf->ep;
    uint32_t on = many_number(event);
    if (event->bytes != r->size) {
        struct control unexpected;
        return endpoint_decode(ep, event, &unexpected, 0);
    }
    uint64_t now = clock_ticks();
    if (r->back++ == r->warmup) {
        histogram_reset(&histogram);
        r->start_ticks = r->end_ticks;
    }
    r->end_ticks = now;
    histogram_record(&histogram, clock_ticks_to_ns(now - r->asked[on]));
    if (!begins_another(r, now))
        return 0;
    uint32_t next = r->perf->o.in_turn ? (uint32_t)(r->begun % ep->many.count) : on;
    return ask(r, next, event->msg, true);
}

static int many_ping_pong(struct rounds *r) {
    struct endpoint *ep = &r->perf->ep;
    sluice_event events[EVENTS_MAX];
    r->asked = calloc(ep->many.count, sizeof *r->asked);
    r->end_ticks =
        clock_ticks(); /* the clock runs from here, or from the last one that does not count */
    int rc = r->asked ? ask_first(r) : tool_fail("no memory for %u sessions", ep->many.count);
    while (rc == 0 && r->back < r->begun) {
        int n = endpoint_poll(ep, events, EVENTS_MAX, ENDPOINT_POLL_NS);
        rc = n < 0 ? TOOL_FAILED : 0;
        for (int i = 0; rc == 0 && i < n; i++) {
            if (events[i].type == SLUICE_MESSAGE)
                rc = answered(r, &events[i]);
            else
                endpoint_event(ep, &events[i]);
        }
        if (rc == 0 && ep->closed)
            rc = endpoint_fail_closed(ep, "in the middle of a run");
    }
    free(r->asked);
    return rc;
}

/* Of all sessions together; 0: there is one. */
static double rounds_per_s;

static int ping_pong_on_many(struct perf *p, uint64_t size, uint64_t count, uint64_t *sent) {
    struct rounds r = {.perf = p, .size = size, .count = count, .warmup = perf_warmup(p, size)};
    int rc = many_ping_pong(&r);
    uint64_t ns = clock_ticks_to_ns(r.end_ticks - r.start_ticks);
    rounds_per_s = (double)histogram.count * 1e9 / (double)(ns == 0 ? 1 : ns);
    *sent = r.begun;
    return rc;
}

/* ---- results ----------------------------------------------------------------------------------- */

static void print_row(struct perf *p, uint64_t size) {
    const struct histogram *h = &histogram;
    /* One way is half the round trip. */
    double p50 = histogram_percentile(h, 0.5) / 2;
    double p99 = histogram_percentile(h, 0.99) / 2;
    double p999 = histogram_percentile(h, 0.999) / 2;
    double max = (double)h->max / 2, mean = histogram_mean(h) / 2;
    if (p->o.json) {
        struct json j;
        json_begin(&j, stdout);
        json_number(&j, "size", size);
        json_number(&j, "iterations", h->count);
        json_real(&j, "p50_ns", p50, 1);
        json_real(&j, "p99_ns", p99, 1);
        json_real(&j, "p999_ns", p999, 1);
        json_real(&j, "max_ns", max, 1);
        json_real(&j, "mean_ns", mean, 1);
        json_real(&j, "floor_ns", p->floor_ns, 1);
        if (p->o.sessions > 1) {
            json_number(&j, "sessions", p->o.sessions);
            json_real(&j, "rounds_per_s", rounds_per_s, 1);
        }
        json_end(&j);
        return;
    }
    char floor_text[32] = "-", ratio[32] = "-";
    if (p->floor_ns > 0) {
        snprintf(floor_text, sizeof floor_text, "%.1f", p->floor_ns);
        snprintf(ratio, sizeof ratio, "%.2f", p50 / p->floor_ns);
    }
    printf("%9llu %11llu %11.1f %11.1f %11.1f %12.1f %11.1f %9s %9s", (unsigned long long)size,
           (unsigned long long)h->count, p50, p99, p999, max, mean, floor_text, ratio);
    if (p->o.sessions > 1)
        printf(" %12.0f", rounds_per_s);
    putchar('\n');
}

static void heading(struct perf *p) {
    printf(
        "# one way in nanoseconds; floor: a cache line from CPU to CPU; ratio: p50 over floor\n");
    printf("%9s %11s %11s %11s %11s %12s %11s %9s %9s", "size", "iterations", "p50", "p99", "p99.9",
           "max", "mean", "floor", "ratio");
    if (p->o.sessions > 1)
        printf(" %12s", "rounds/s");
    putchar('\n');
}

static int run(struct perf *p, uint64_t size) {
    uint64_t count = perf_iterations(p, size), sent = 0;
    int rc = perf_plan(p, size, count == 0 ? 0 : count + perf_warmup(p, size), 0);
    if (rc != 0)
        return rc;
    perf_heading(p);
    rc = p->o.sessions > 1 ? ping_pong_on_many(p, size, count, &sent)
                           : ping_pong(p, size, count, &sent);
    if (rc != 0)
        return rc;
    struct control end = {.kind = CONTROL_END, .count = sent, .bytes = sent * size};
    struct control done;
    rc = endpoint_say(&p->ep, &end);
    if (rc == 0)
        rc = endpoint_hear(&p->ep, &done, CONTROL_DONE, NULL);
    if (rc == 0 && done.count != sent)
        rc = tool_fail("the server echoed %llu of %llu messages", (unsigned long long)done.count,
                       (unsigned long long)sent);
    if (rc == 0)
        print_row(p, size);
    return rc;
}

int main(int argc, char **argv) {
    static const struct perf_tool tool = {
        .id = CONTROL_LAT,
        .about = "latency of a message between two processes",
        .notes = "Start the server, then the client with the server's host. The client prints the\n"
                 "result: half the round trip, as percentiles, beside the time in which this\n"
                 "machine hands a cache line from one CPU to the other.\n\n"
                 "  sluice-lat                      sluice-lat 127.0.0.1 -s 64 -n 100000\n"
                 "  sluice-lat -p 0 --keep          sluice-lat 127.0.0.1:40123 -a --json\n"
                 "  sluice-lat                      sluice-lat 127.0.0.1 -q 1000 --each\n",
        .each = "with -q: one message on its way on every session",
        .in_turn = "with -q: one message in all, on the next session each time\n(the default)",
        .in_turn_first = true,
        .default_size = 64,
        .default_bytes = UINT64_C(256) << 20,
        .iterations_min = 200,
        .iterations_max = 100000,
        .default_warmup = 1000,
        .heading = heading,
        .run = run,
        .serve = echo,
    };
    tool_start("sluice-lat");
    return tool_end(perf_main(&perf, &tool, argc, argv));
}
