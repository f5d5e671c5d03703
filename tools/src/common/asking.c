/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * asking.c - see asking.h.
 *
 * The server sleeps until a first message, which is empty, because the client measures the floor.
 */
#include "asking.h"

#include "common/clock.h"

#define EVENTS_MAX 32
#define DEPTH_MAX 256

struct rounds {
    struct perf *p;
    struct asking *a;
    uint64_t warmup, target; /* requests in all; UINT64_MAX until it is known */
    uint64_t sent, done;
    uint64_t start_ticks, end_ticks;
    uint64_t due[DEPTH_MAX];   /* ticks, by place */
    uint64_t ready[DEPTH_MAX]; /* places whose next request is due */
    uint64_t ready_count;
    bool blocked;
};

#define TOGETHER 8 /* answers in one go */

static int ask(struct rounds *r) {
    struct endpoint *ep = &r->p->ep;
    while (r->ready_count > 0 && r->sent < r->target && !r->blocked) {
        uint64_t place = r->ready[r->ready_count - 1];
        bool last = r->ready_count == 1 || r->sent + 1 == r->target;
        sluice_send_options o = {.size = sizeof o, .tag = place, .flags = last ? 0 : SLUICE_MORE};
        sluice_msg *msg;
        int status = sluice_alloc(ep->node, r->a->size, &msg);
        r->blocked = status == SLUICE_EAGAIN;
        if (r->blocked)
            return 0;
        if (status != 0)
            return tool_fail("no memory for a message of %llu bytes: %s",
                             (unsigned long long)r->a->size, sluice_strerror(status));
        status = sluice_request(ep->session, msg, &o);
        if (status != 0)
            sluice_free(msg);
        if (status == SLUICE_EAGAIN)
            r->blocked = true;
        else if (status != 0)
            return ep->closed ? endpoint_fail_closed(ep, "in the middle of a run")
                              : tool_fail("a request was refused: %s", sluice_strerror(status));
        else {
            r->ready_count--;
            r->sent++;
        }
    }
    return 0;
}

static int on_reply(struct rounds *r, const sluice_event *event, uint64_t now) {
    if (event->status != 0)
        return tool_fail("a request was not answered: %s", sluice_strerror(event->status));
    if (event->bytes != r->a->size)
        return endpoint_fail_both(&r->p->ep, "a reply of %u bytes", event->bytes);
    if (++r->done > r->warmup)
        histogram_record(&r->a->rounds, clock_ticks_to_ns(now - r->due[event->tag]));
    if (r->done == r->warmup)
        r->start_ticks = now;
    r->end_ticks = now;
    r->due[event->tag] = now;
    r->ready[r->ready_count++] = event->tag;
    return 0;
}

static int on_events(struct rounds *r, const sluice_event *events, int n) {
    uint64_t now = clock_ticks();
    for (int i = 0; i < n; i++) {
        if (events[i].type == SLUICE_REPLY) {
            int rc = on_reply(r, &events[i], now);
            if (rc != 0)
                return rc;
            continue;
        }
        if (events[i].type == SLUICE_MESSAGE) {
            struct control heard;
            int rc = endpoint_decode(&r->p->ep, &events[i], &heard, CONTROL_DONE);
            return rc != 0 ? rc : endpoint_fail_both(&r->p->ep, "DONE came too early");
        }
        if (events[i].type == SLUICE_WRITABLE)
            r->blocked = false;
        endpoint_event(&r->p->ep, &events[i]);
    }
    return 0;
}

static int rounds_loop(struct rounds *r) {
    struct endpoint *ep = &r->p->ep;
    sluice_event events[EVENTS_MAX];
    while (r->done < r->target) {
        if (ep->closed)
            return endpoint_fail_closed(ep, "in the middle of a run");
        int rc = ask(r);
        if (rc != 0)
            return rc;
        int n = endpoint_poll(ep, events, EVENTS_MAX, ENDPOINT_POLL_NS);
        rc = n < 0 ? TOOL_FAILED : on_events(r, events, n);
        if (rc != 0)
            return rc;
        if (r->target == UINT64_MAX && r->done > r->warmup &&
            clock_ticks_to_ns(r->end_ticks - r->start_ticks) >= r->p->o.duration_ns)
            r->target = r->sent;
    }
    return 0;
}

/* The server's count must be ours. */
static int confirm(struct perf *p, uint64_t sent) {
    struct control end = {.kind = CONTROL_END, .count = sent}, done;
    int rc = endpoint_say(&p->ep, &end);
    if (rc == 0)
        rc = endpoint_hear(&p->ep, &done, CONTROL_DONE, NULL);
    if (rc == 0 && done.count != sent)
        rc = tool_fail("the server answered %llu of %llu requests", (unsigned long long)done.count,
                       (unsigned long long)sent);
    return rc;
}

int asking_run(struct perf *p, struct asking *a, uint64_t warmup, uint64_t count) {
    struct rounds r = {.p = p, .a = a, .warmup = warmup};
    r.target = count != 0 ? warmup + count : UINT64_MAX;
    histogram_reset(&a->rounds);
    int status = sluice_send_copy(p->ep.session, "", 0, NULL); /* begin */
    if (status != 0)
        return tool_fail("cannot begin: %s", sluice_strerror(status));
    r.start_ticks = clock_ticks();
    for (uint64_t i = 0; i < a->depth; i++) {
        r.ready[r.ready_count++] = i;
        r.due[i] = r.start_ticks;
    }
    int rc = rounds_loop(&r);
    if (rc != 0)
        return rc;
    a->count = r.done - warmup;
    a->ns = clock_ticks_to_ns(r.end_ticks - r.start_ticks);
    return confirm(p, r.sent);
}

/* More answers follow to what was polled: they leave a few at a time, so that both sides work. */
static bool more_follow(const sluice_event *events, int i, int n) {
    return i % TOGETHER != TOGETHER - 1 && i + 1 < n && events[i + 1].type == SLUICE_REQUEST;
}

int asking_serve(struct perf *p, const struct control *plan) {
    static const sluice_send_options more = {.size = sizeof more, .flags = SLUICE_MORE};
    struct endpoint *ep = &p->ep;
    struct control done = {.kind = CONTROL_DONE}, heard = {0};
    sluice_event first, events[EVENTS_MAX];
    (void)plan;
    int rc = endpoint_await(ep, &first, PERF_FIRST_NS, NULL);
    while (rc == 0 && heard.kind == 0) {
        if (ep->closed)
            return endpoint_fail_closed(ep, "in the middle of a run");
        int n = endpoint_poll(ep, events, EVENTS_MAX, ENDPOINT_POLL_NS);
        if (n < 0)
            return TOOL_FAILED;
        for (int i = 0; i < n && rc == 0; i++) {
            if (events[i].type == SLUICE_REQUEST) {
                done.count += sluice_reply_with(ep->session, events[i].token, events[i].msg,
                                                more_follow(events, i, n) ? &more : NULL) == 0;
            } else if (events[i].type == SLUICE_MESSAGE) {
                rc = endpoint_decode(ep, &events[i], &heard, CONTROL_END);
            } else {
                endpoint_event(ep, &events[i]);
            }
        }
    }
    return rc != 0 ? rc : endpoint_say(ep, &done);
}
