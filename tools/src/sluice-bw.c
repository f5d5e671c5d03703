/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-bw - how many messages and bytes a second one process carries to another. The sender
 * keeps the window full; the receiver counts and confirms the count at the end, and the clock runs
 * from the first send to that confirmation, so that nothing counts that has not arrived.
 *
 * Client and server run the same function on a struct stream: with -b both send, without it the
 * server's share is nothing. The client closes its data with END, the server with DONE.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sluice/memory.h>

#include "common/asking.h"
#include "common/clock.h"
#include "common/copy.h"
#include "common/json.h"
#include "common/perf.h"
#include "common/tool.h"

#define FILL_MAX 64      /* sends between two polls */
#define EVENTS_MAX 32    /* a poll */
#define MEMCPY_FROM 4096 /* below, a copy's time is that of the clock */

static struct perf perf;

/* The sessions whose window has room are a ring. */
struct lane {
    uint32_t next, before;
    bool full;
};

struct stream {
    struct perf *perf;
    uint64_t size, batch;
    uint64_t target; /* messages to send, UINT64_MAX until it is known */
    uint64_t sent, received;
    uint64_t expected;                            /* most the peer may send */
    uint64_t start_ticks, end_ticks, duration_ns; /* duration 0: the target decides */
    bool server, started, blocked;
    bool in_turn;       /* with several sessions: each message on the next */
    uint32_t on;        /* the session that the next message goes on */
    struct lane *lanes; /* with several: by session */
    bool end_heard, closing_sent;
    struct control heard;  /* the peer's END or DONE */
    sluice_msg *held;      /* refused with EAGAIN, to be sent next */
    sluice_region *region; /* --region: what is sent, every time; else NULL */
    uint8_t *bytes;        /* --copy: likewise */
};

/* A server may hear of the first message before its other sessions are up. */
static bool data_left(const struct stream *s) {
    return s->started && s->sent < s->target && many_are_up(&s->perf->ep.many);
}

/* What comes on other sessions may come behind the end. */
static bool all_came(const struct stream *s) {
    return s->end_heard &&
           (!s->lanes || s->received >= (s->server ? s->heard.count : s->heard.sent));
}

static bool closing_due(const struct stream *s) {
    return !s->closing_sent && s->sent == s->target && (!s->server || all_came(s));
}

static sluice_msg *closing_message(struct stream *s) {
    struct control closing = {.kind = s->server ? CONTROL_DONE : CONTROL_END};
    closing.count = s->server ? s->received : s->sent;
    closing.bytes = closing.count * s->size;
    closing.sent = s->sent;
    return endpoint_compose(&s->perf->ep, &closing);
}

static sluice_session session_of(const struct stream *s) {
    const struct endpoint *ep = &s->perf->ep;
    return s->lanes ? ep->many.session[s->on] : ep->session;
}

static bool lanes_open(struct stream *s) {
    uint32_t count = s->perf->ep.many.count;
    s->lanes = calloc(count, sizeof *s->lanes);
    for (uint32_t i = 0; s->lanes && i < count; i++)
        s->lanes[i] = (struct lane){.next = (i + 1) % count, .before = (i + count - 1) % count};
    return s->lanes;
}

static void go_on(struct stream *s) {
    s->on = s->lanes[s->on].next;
    s->blocked = s->lanes[s->on].full;
}

/* EAGAIN: the session's window is full. In turn it is waited for, else another one goes first. */
static void block(struct stream *s) {
    struct lane *lane = s->lanes ? &s->lanes[s->on] : NULL;
    s->blocked = true;
    if (!lane || lane->full)
        return;
    lane->full = true;
    if (s->in_turn || lane->next == s->on)
        return;
    s->lanes[lane->next].before = lane->before;
    s->lanes[lane->before].next = lane->next;
    go_on(s);
}

static void unblock(struct stream *s, uint32_t number) {
    s->blocked = false;
    if (!s->lanes)
        return;
    struct lane *lane = &s->lanes[number], *on = &s->lanes[s->on];
    if (lane->full && !s->in_turn && number != s->on) {
        if (on->full) { /* the ring was empty but for that one, which leaves it */
            lane->next = lane->before = number;
            s->on = number;
        } else {
            *lane = (struct lane){.next = on->next, .before = s->on};
            s->lanes[on->next].before = number;
            on->next = number;
        }
    }
    lane->full = false;
    s->blocked = s->lanes[s->on].full;
}

static const sluice_send_options more = {.size = sizeof more, .flags = SLUICE_MORE};

static bool last_of_list(const struct stream *s) {
    if (s->lanes && s->in_turn)
        return true;
    return s->sent + 1 == s->target || (s->sent + 1) % s->batch == 0;
}

static void sent_one(struct stream *s, bool last) {
    s->sent++;
    if (s->lanes && last)
        go_on(s);
}

/* Data that stays this program's: from the region, or copied. As send_one(). */
static int send_own(struct stream *s) {
    const sluice_send_options *o = last_of_list(s) ? NULL : &more;
    int status;
    if (s->region) {
        sluice_piece piece = {sluice_region_data(s->region), s->size, s->region};
        status = sluice_send_pieces(session_of(s), &piece, 1, o);
    } else {
        status = sluice_send_copy(session_of(s), s->bytes, s->size, o);
    }
    if (status == SLUICE_EAGAIN)
        return block(s), 0;
    if (status != 0)
        return tool_fail("a message cannot be sent: %s", sluice_strerror(status)), -1;
    sent_one(s, o == NULL);
    return 1;
}

/* One message, data or the closing one. 1 sent, 0 no room, -1 failed (said). */
static int send_one(struct stream *s) {
    struct endpoint *ep = &s->perf->ep;
    bool data = s->sent < s->target;
    sluice_msg *msg = s->held;
    if (data && (s->region || s->bytes))
        return send_own(s);
    if (msg == NULL && data) {
        int status = sluice_alloc(ep->node, s->size, &msg);
        s->blocked = status == SLUICE_EAGAIN;
        if (s->blocked)
            return 0; /* no session is full by that */
        if (status != 0)
            return tool_fail("no memory for a message of %llu bytes: %s",
                             (unsigned long long)s->size, sluice_strerror(status)),
                   -1;
    }
    if (msg == NULL && (msg = closing_message(s)) == NULL)
        return -1;
    bool last = !data || last_of_list(s);
    s->held = NULL;
    sluice_session session = data ? session_of(s) : ep->session;
    int status = sluice_send(session, msg, last ? NULL : &more);
    if (status == 0) {
        if (data)
            sent_one(s, last);
        else
            s->closing_sent = true;
        return 1;
    }
    if (status == SLUICE_EAGAIN) {
        s->held = msg;
        if (data)
            block(s);
        else
            s->blocked = true;
        return 0;
    }
    return endpoint_send_slow(ep, session, msg, false, status), -1;
}

/* Fills the window. 0 or -1. */
static int fill(struct stream *s) {
    int sent = 0;
    while (sent < FILL_MAX && !s->blocked && (data_left(s) || closing_due(s))) {
        int n = send_one(s);
        if (n < 0)
            return -1;
        sent += n;
        if (n == 0 && s->blocked)
            break;
    }
    if (sent > 0)
        s->perf->ep.quiet_since_ns = 0;
    return 0;
}

static int on_message(struct stream *s, const sluice_event *event) {
    struct endpoint *ep = &s->perf->ep;
    s->started = true;
    if (event->bytes == s->size) {
        if (s->received++ >= s->expected)
            return endpoint_fail_both(ep, "more messages came than were announced");
        return 0;
    }
    int rc = endpoint_decode(ep, event, &s->heard, s->server ? CONTROL_END : CONTROL_DONE);
    if (rc != 0)
        return rc;
    if (s->end_heard || (!s->server && !s->closing_sent))
        return endpoint_fail_both(ep, "the end of the data came too early");
    if (s->server && s->heard.count > s->expected)
        return endpoint_fail_both(ep, "more messages are counted than were announced");
    s->end_heard = true;
    if (s->server && s->target == UINT64_MAX)
        s->target = s->sent + (s->held != NULL); /* open-ended: the client has had enough */
    return 0;
}

static int on_events(struct stream *s, const sluice_event *events, int n) {
    for (int i = 0; i < n; i++) {
        if (events[i].type == SLUICE_MESSAGE) {
            int rc = on_message(s, &events[i]);
            if (rc != 0)
                return rc;
            continue;
        }
        if (events[i].type == SLUICE_WRITABLE)
            unblock(s, many_number(&events[i]));
        endpoint_event(&s->perf->ep, &events[i]);
    }
    return 0;
}

static bool finished(const struct stream *s) {
    return all_came(s) && s->closing_sent;
}

static int stream_loop(struct stream *s) {
    struct endpoint *ep = &s->perf->ep;
    sluice_event events[EVENTS_MAX];
    while (!finished(s)) {
        if (ep->closed)
            return endpoint_fail_closed(ep, "in the middle of a run");
        if (fill(s) != 0)
            return TOOL_FAILED;
        if (finished(s))
            break; /* what comes next belongs to the next round */
        if (s->duration_ns != 0 && s->target == UINT64_MAX &&
            clock_ticks_to_ns(clock_ticks() - s->start_ticks) >= s->duration_ns)
            s->target = s->sent + (s->held != NULL); /* what was begun is sent */
        bool waits = s->blocked || !(data_left(s) || closing_due(s));
        uint64_t wait_ns = waits ? ENDPOINT_POLL_NS : 0;
        int n = endpoint_poll(ep, events, EVENTS_MAX, wait_ns);
        int rc = n < 0 ? TOOL_FAILED : on_events(s, events, n);
        if (rc != 0)
            return rc;
    }
    s->end_ticks = clock_ticks();
    return 0;
}

static int stream_run(struct stream *s) {
    struct endpoint *ep = &s->perf->ep;
    sluice_error e;
    int rc = 0;
    if (ep->many.count > 1 && !lanes_open(s))
        return tool_fail("no memory for %u sessions", ep->many.count);
    if (s->perf->o.region && s->target != 0 &&
        sluice_region_open(ep->node, NULL, s->size, 0, &s->region, &e) != 0)
        return tool_fail("no registered memory: %s", e.text);
    if (s->perf->o.copy && s->target != 0 && !(s->bytes = calloc(1, s->size + 1)))
        return tool_fail("no memory for %llu bytes", (unsigned long long)s->size);
    if (s->server) { /* asleep until the client begins: it is measuring the floor */
        sluice_event event;
        rc = endpoint_await(ep, &event, perf_first_ns(s->perf), NULL);
        if (rc == 0)
            rc = on_message(s, &event);
    } else {
        s->started = true;
        s->start_ticks = clock_ticks();
    }
    if (rc == 0)
        rc = stream_loop(s);
    sluice_free(s->held);
    s->held = NULL;
    /* All of it has arrived, or nobody cares. What is on its way still ends with the node. */
    if (s->region && sluice_region_close(s->region) == 0)
        s->region = NULL;
    free(s->bytes);
    free(s->lanes);
    s->bytes = NULL;
    s->lanes = NULL;
    return rc;
}

/* ---- server ------------------------------------------------------------------------------------ */

static int serve(struct perf *p, const struct control *plan) {
    if ((plan->flags & CONTROL_REQUESTS) != 0)
        return asking_serve(p, plan);
    bool open_ended = (plan->flags & CONTROL_UNTIL_END) != 0;
    uint64_t count = open_ended ? UINT64_MAX : plan->count;
    struct stream s = {.perf = p,
                       .server = true,
                       .in_turn = (plan->flags & CONTROL_IN_TURN) != 0,
                       .size = plan->size,
                       .batch = p->o.list,
                       .target = (plan->flags & CONTROL_BOTH_WAYS) != 0 ? count : 0,
                       .expected = count};
    int rc = stream_run(&s);
    if (rc == 0 && s.heard.count != s.received)
        rc = tool_fail("the client sent %llu messages, %llu came",
                       (unsigned long long)s.heard.count, (unsigned long long)s.received);
    return rc;
}

/* ---- client ------------------------------------------------------------------------------------ */

/* One round of data. count 0: until the duration is over. */
static int transfer(struct perf *p, struct stream *s, uint64_t size, uint64_t count) {
    *s = (struct stream){.perf = p,
                         .in_turn = p->o.in_turn,
                         .size = size,
                         .batch = p->o.list,
                         .target = count != 0 ? count : UINT64_MAX,
                         .expected = !p->o.both_ways ? 0
                                     : count != 0    ? count
                                                     : UINT64_MAX,
                         .duration_ns = count != 0 ? 0 : p->o.duration_ns};
    int rc = perf_plan(p, size, count, p->o.both_ways ? CONTROL_BOTH_WAYS : 0);
    if (rc != 0)
        return rc;
    perf_heading(p);
    rc = stream_run(s);
    if (rc != 0)
        return rc;
    if (s->heard.count != s->sent || s->heard.bytes != s->sent * size)
        return tool_fail("the server received %llu of %llu messages",
                         (unsigned long long)s->heard.count, (unsigned long long)s->sent);
    if (s->heard.sent != s->received)
        return tool_fail("the server sent %llu messages, %llu came",
                         (unsigned long long)s->heard.sent, (unsigned long long)s->received);
    return 0;
}

static void print_row(struct perf *p, const struct stream *s) {
    uint64_t messages = s->sent + s->received;
    uint64_t ns = clock_ticks_to_ns(s->end_ticks - s->start_ticks);
    double seconds = (double)(ns == 0 ? 1 : ns) / 1e9;
    double rate = (double)messages / seconds;
    double bytes_rate = rate * (double)s->size;
    if (p->o.json) {
        struct json j;
        json_begin(&j, stdout);
        json_number(&j, "size", s->size);
        json_number(&j, "messages", messages);
        json_real(&j, "messages_per_s", rate, 1);
        json_real(&j, "bytes_per_s", bytes_rate, 1);
        if (p->o.sessions > 1)
            json_number(&j, "sessions", p->o.sessions);
        json_end(&j);
        return;
    }
    char floor_text[32] = "-", copy[32] = "-", ratio[32] = "-";
    if (p->floor_ns > 0)
        snprintf(floor_text, sizeof floor_text, "%.1f", p->floor_ns);
    double memcpy_rate = s->size >= MEMCPY_FROM ? copy_bytes_per_s(s->size) : -1;
    if (memcpy_rate > 0) {
        snprintf(copy, sizeof copy, "%.0f", memcpy_rate / 1e6);
        snprintf(ratio, sizeof ratio, "%.2f", bytes_rate / memcpy_rate);
    }
    printf("%9llu %11llu %14.0f %12.1f %10.1f %9s %11s %9s\n", (unsigned long long)s->size,
           (unsigned long long)messages, rate, bytes_rate / 1e6, 1e9 / rate, floor_text, copy,
           ratio);
}

static struct asking asking;

static int ask(struct perf *p, uint64_t size) {
    asking.size = size;
    asking.depth = p->o.requests;
    int rc = perf_plan(p, size, perf_iterations(p, size), CONTROL_REQUESTS);
    if (rc == 0) {
        perf_heading(p);
        rc = asking_run(p, &asking, perf_warmup(p, size), perf_iterations(p, size));
    }
    if (rc != 0)
        return rc;
    const struct histogram *h = &asking.rounds;
    double rate = (double)asking.count * 1e9 / (double)(asking.ns == 0 ? 1 : asking.ns);
    double p50 = histogram_percentile(h, 0.5), p99 = histogram_percentile(h, 0.99);
    double p999 = histogram_percentile(h, 0.999);
    if (!p->o.json) {
        printf("%9llu %11llu %14.0f %10.0f %10.0f %10.0f %10llu\n", (unsigned long long)size,
               (unsigned long long)asking.count, rate, p50, p99, p999, (unsigned long long)h->max);
        return 0;
    }
    struct json j;
    json_begin(&j, stdout);
    json_number(&j, "size", size);
    json_number(&j, "depth", asking.depth);
    json_number(&j, "requests", asking.count);
    json_real(&j, "requests_per_s", rate, 1);
    json_real(&j, "p50_ns", p50, 1);
    json_real(&j, "p99_ns", p99, 1);
    json_real(&j, "p999_ns", p999, 1);
    json_number(&j, "max_ns", h->max);
    json_end(&j);
    return 0;
}

static void heading(struct perf *p) {
    if (p->o.requests != 0) {
        printf(
            "# requests and replies, %llu in flight; times are of a round trip, in ns, from the\n"
            "# moment the request was due\n%9s %11s %14s %10s %10s %10s %10s\n",
            (unsigned long long)p->o.requests, "size", "requests", "requests/s", "p50", "p99",
            "p99.9", "max");
        return;
    }
    printf("# %s; MB are 10^6 bytes; floor: ns to hand a cache line from CPU to CPU;\n"
           "# ratio: MB/s over those of memcpy on one CPU at this size\n",
           p->o.both_ways ? "both directions together" : "one direction, confirmed by the server");
    printf("%9s %11s %14s %12s %10s %9s %11s %9s\n", "size", "messages", "messages/s", "MB/s",
           "ns/message", "floor", "memcpy MB/s", "ratio");
}

static int run(struct perf *p, uint64_t size) {
    if (p->o.requests != 0)
        return ask(p, size);
    struct stream s;
    uint64_t warmup = perf_warmup(p, size);
    int rc = 0;
    if (warmup > 0)
        rc = transfer(p, &s, size, warmup);
    if (rc == 0)
        rc = transfer(p, &s, size, perf_iterations(p, size));
    if (rc == 0)
        print_row(p, &s);
    return rc;
}

int main(int argc, char **argv) {
    static const struct option extra[] = {
        {'b', "bidirectional", NULL, OPTION_FLAG, &perf.o.both_ways, NULL, 0, 0, NULL,
         "both sides send at the same time; figures are the sum"},
        {'l', "list", "N", OPTION_NUMBER, &perf.o.list, NULL, 1, 1024, NULL,
         "sends posted together, on either side (default 16; 1 posts\neach by itself)"},
        {'t', "window", "N", OPTION_NUMBER, &perf.o.window, NULL, 1, 65536, NULL,
         "messages on their way at most, on each session (default: the\nlibrary's)"},
        {0, "credits", "N", OPTION_NUMBER, &perf.o.credits, NULL, 4, 1024, NULL,
         "receive buffers posted for the peer (default: the library's)"},
        {0, "region", NULL, OPTION_FLAG, &perf.o.region, NULL, 0, 0, NULL,
         "send the same registered memory again and again, as most other\ntools do, on this side "
         "(default: each message has a buffer)"},
        {0, "copy", NULL, OPTION_FLAG, &perf.o.copy, NULL, 0, 0, NULL,
         "send bytes of this program again and again, which the library\ncopies, on this side"},
        {0, "requests", "DEPTH", OPTION_NUMBER, &perf.o.requests, NULL, 1, 256, NULL,
         "client: requests instead of messages, so many in flight; the\nserver sends each back as "
         "its reply"},
    };
    static const struct perf_tool tool = {
        .id = CONTROL_BW,
        .about = "messages and bytes a second between two processes",
        .notes = "Start the server, then the client with the server's host. The client sends and\n"
                 "prints the result, which the server has confirmed message by message. With -b\n"
                 "the server's own -l, -t and --credits hold for its direction.\n\n"
                 "  sluice-bw                      sluice-bw 127.0.0.1 -s 64K\n"
                 "  sluice-bw -p 0 --keep          sluice-bw 127.0.0.1:40123 -a -D 1 --json\n"
                 "  sluice-bw                      sluice-bw 127.0.0.1 -s 64 -q 1000\n",
        .each = "with -q: on any session whose window has room (the default)",
        .in_turn =
            "with -q: each message on the next session, whose window is\nwaited for; without -l",
        .default_size = 65536,
        .default_bytes = UINT64_C(4) << 30,
        .iterations_min = 500,
        .iterations_max = 2000000,
        .default_warmup = 1000,
        .extra = extra,
        .extra_count = sizeof extra / sizeof extra[0],
        .heading = heading,
        .run = run,
        .serve = serve,
    };
    tool_start("sluice-bw");
    perf.o.list = 16;
    return tool_end(perf_main(&perf, &tool, argc, argv));
}
