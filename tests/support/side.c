/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* side.c - see side.h. */
#include "support/side.h"

#include "support/verdict_event.h"

/* ---- patterns ----------------------------------------------------------------------------------- */

const uint8_t *it_pattern(size_t from, size_t bytes, uint64_t seed) {
    static __thread uint8_t part[IT_PART];
    pattern_fill(part, from, bytes, seed);
    return part;
}

void it_fill(sluice_msg *msg, uint64_t seed) {
    uint8_t *p = sluice_data(msg);
    for (size_t i = 0, n, bytes = sluice_size(msg); i < bytes; i += n) {
        n = bytes - i < IT_PART ? bytes - i : IT_PART;
        memcpy(p + i, it_pattern(i, n, seed), n);
    }
}

bool it_matches(const sluice_msg *msg, size_t bytes, uint64_t seed) {
    const uint8_t *p = sluice_data(msg);
    if (sluice_size(msg) != bytes) {
        verdict_wrong_data("message %llu has %zu bytes, not %zu", (unsigned long long)seed,
                           sluice_size(msg), bytes);
        return false;
    }
    for (size_t i = 0; i < bytes; i += IT_PART) {
        size_t n = bytes - i < IT_PART ? bytes - i : IT_PART;
        const uint8_t *part = it_pattern(i, n, seed);
        if (memcmp(p + i, part, n) == 0)
            continue;
        size_t at = 0;
        while (at < n - 1 && p[i + at] == part[at])
            at++;
        verdict_wrong_data("message %llu: byte %zu of %zu differs", (unsigned long long)seed,
                           i + at, bytes);
        return false;
    }
    return true;
}

size_t it_mixed(uint64_t i) {
    static const size_t sizes[] = {0, 1, 100, 20000, 13, 4000, 70000, 0, 512, 200000};
    return sizes[i % (sizeof sizes / sizeof sizes[0])];
}

/* ---- a side ------------------------------------------------------------------------------------- */

bool side_of_listener(const sluice_event *event) {
    sluice_session_info info = {.size = sizeof info};
    if (event->type != SLUICE_CLOSED || sluice_session_get_info(event->session, &info) == 0)
        return false;
    must(event->reason == SLUICE_REASON_DEVICE_REMOVED && event->status == SLUICE_EDEVICE);
    return true;
}

static void side_copy(struct note *note, const sluice_event *event) {
    memset(note, 0, sizeof *note);
    note->event = *event;
    if (event->type == SLUICE_MESSAGE || event->type == SLUICE_REQUEST ||
        event->type == SLUICE_REPLY) {
        note->msg = event->msg;
        sluice_keep(note->msg);
    } else if (event->type == SLUICE_CONNECT) {
        snprintf(note->peer, sizeof note->peer, "%s", event->peer->address);
    } else if (event->type == SLUICE_UP || event->type == SLUICE_CLOSED) {
        note->info.size = sizeof note->info;
        must(sluice_session_get_info(event->session, &note->info) == 0);
    }
}

static void side_handler(const sluice_event *event, void *arg) {
    struct side *side = arg;
    uint64_t one = 1;
    if (side_of_listener(event)) {
        atomic_fetch_add(&side->listeners_lost, 1);
        return;
    }
    struct note *note = malloc(sizeof *note);
    side_copy(note, event);
    pthread_mutex_lock(&side->lock);
    *side->tail = note;
    side->tail = &note->next;
    pthread_mutex_unlock(&side->lock);
    (void)!write(side->bell, &one, sizeof one);
}

void side_open(struct side *side, bool handlers, const sluice_node_options *given) {
    static const int no_pinning[] = {-1, -1, -1, -1};
    sluice_node_options o = given ? *given : (sluice_node_options){0};
    sluice_error e = {0};
    memset(side, 0, sizeof *side);
    side->handlers = handlers;
    side->tail = &side->head;
    side->bell = -1;
    pthread_mutex_init(&side->lock, NULL);
    o.size = sizeof o;
    o.device = it_device();
    o.workers = handlers ? 1 : SLUICE_NO_WORKERS;
    o.worker_cpus = handlers ? no_pinning : NULL;
    if (sluice_open(&side->node, &o, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_open");
    }
    if (handlers) {
        side->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
        must(side->bell >= 0);
    } else {
        must(sluice_loop_open(side->node, &side->loop, &e) == 0);
    }
}

sluice_link_options side_link(struct side *side, const sluice_link_options *given) {
    sluice_link_options o = given ? *given : (sluice_link_options){0};
    o.size = sizeof o;
    if (side->handlers) {
        o.handler = side_handler;
        o.handler_arg = side;
    } else {
        o.loop = side->loop;
    }
    return o;
}

bool side_take(struct side *side, struct note *out) {
    uint64_t count;
    if (!side->handlers) {
        sluice_event event;
        int n;
        while ((n = sluice_poll(side->loop, &event, 1, 0)) == 1 && side_of_listener(&event))
            atomic_fetch_add(&side->listeners_lost, 1);
        must(n >= 0);
        if (n == 1)
            side_copy(out, &event);
        return n == 1;
    }
    if (read(side->bell, &count, sizeof count) != sizeof count)
        return false;
    pthread_mutex_lock(&side->lock);
    struct note *note = side->head;
    side->head = note->next;
    if (!side->head)
        side->tail = &side->head;
    pthread_mutex_unlock(&side->lock);
    *out = *note;
    free(note);
    return true;
}

int side_fd(struct side *side) {
    return side->handlers ? side->bell : sluice_fd(side->loop);
}

void side_close(struct side *side, uint64_t grace_ns) {
    struct note note;
    if (!it_rnr_provoked)
        must(it_rnr() == 0);
    sluice_close(side->node, grace_ns);
    while (side->handlers && side_take(side, &note)) /* messages died with their node */
        ;
    if (side->bell >= 0)
        close(side->bell);
    pthread_mutex_destroy(&side->lock);
}

void note_free(struct note *note) {
    sluice_free(note->msg);
    note->msg = NULL;
}

bool side_next(struct side *side, struct note *out, uint64_t limit_ns) {
    uint64_t until = sluice_now() + limit_ns;
    for (;;) {
        if (side_take(side, out))
            return true;
        struct pollfd fds[2] = {{.fd = side_fd(side), .events = POLLIN}};
        nfds_t n = 1;
        if (side->partner && side->partner->loop) {
            must(sluice_poll(side->partner->loop, NULL, 0, 0) >= 0);
            fds[n++] = (struct pollfd){.fd = side_fd(side->partner), .events = POLLIN};
        }
        uint64_t now = sluice_now();
        if (now >= until)
            return false;
        /* Our loop may have been given something by the partner's turn, which does not show. */
        uint64_t ms = (until - now) / MS + 1;
        must(poll(fds, n, n == 2 ? 1 : (int)(ms > 60000 ? 60000 : ms)) >= 0 || errno == EINTR);
    }
}

bool side_is(const struct note *note, sluice_event_type type) {
    if (note->event.type == type)
        return true;
    fprintf(stderr, "%s (status %d, %s: %s), expected %s\n", sluice_event_name(note->event.type),
            note->event.status, sluice_reason_text(note->event.reason),
            note->event.type == SLUICE_CLOSED ? note->info.close_text : "",
            sluice_event_name(type));
    verdict_event(&note->event, (int)type);
    return false;
}

struct note side_expect(struct side *side, sluice_event_type type) {
    struct note note;
    if (!side_next(side, &note, LIMIT_NS)) {
        fprintf(stderr, "no event, expected %s\n", sluice_event_name(type));
        verdict_event(NULL, (int)type);
        must(!"an event");
    }
    must(side_is(&note, type));
    return note;
}

void side_expect_closed(struct side *side, sluice_reason reason) {
    struct note note = side_expect(side, SLUICE_CLOSED);
    if (note.event.reason != reason)
        fprintf(stderr, "closed: %s (%s), expected %s\n", sluice_reason_text(note.event.reason),
                note.info.close_text, sluice_reason_text((int)reason));
    must(note.event.reason == reason);
}

void side_expect_nothing(struct side *side) {
    struct note note;
    bool came = false;
    if (side->handlers)
        came = side_next(side, &note, 50 * MS);
    for (unsigned wakes = 0; !side->handlers && !came && wakes < 3; wakes++) {
        sluice_wake(side->loop);
        must(side_next(side, &note, LIMIT_NS));
        came = note.event.type != SLUICE_WAKE;
    }
    if (came) {
        fprintf(stderr, "%s came unexpectedly\n", sluice_event_name(note.event.type));
        verdict_event(&note.event, 0);
        must(!"silence");
    }
}

void side_expect_removed(struct side *side, unsigned sessions, uint64_t tag) {
    unsigned outcomes = 0;
    for (unsigned closed = 0; closed < sessions;) {
        struct note note = {0};
        must(side_next(side, &note, LIMIT_NS));
        if (note.event.type == SLUICE_SENT) {
            must_data(note.event.tag == tag);
            outcomes++;
        } else {
            must(note.event.type == SLUICE_CLOSED);
            assert_int_equal(note.event.reason, SLUICE_REASON_DEVICE_REMOVED);
            closed++;
        }
        note_free(&note);
    }
    must_data_equal(outcomes, 1);
    side_expect_nothing(side);
}

void side_expect_listeners_lost(struct side *side, unsigned count) {
    uint64_t until = sluice_now() + LIMIT_NS;
    while (atomic_load(&side->listeners_lost) < count) {
        struct note note;
        must(sluice_now() < until);
        must(!side_next(side, &note, MS));
    }
    side_expect_nothing(side);
    must(atomic_load(&side->listeners_lost) == count);
}

int side_listen(struct side *side, const sluice_link_options *given, sluice_listener *out) {
    sluice_link_options o = side_link(side, given);
    sluice_listener listener;
    sluice_error e = {0};
    if (sluice_listen(side->node, it_address(0), &o, &listener, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_listen");
    }
    if (out)
        *out = listener;
    return sluice_listener_port(listener);
}

sluice_session side_dial(struct side *side, int port, const sluice_link_options *given) {
    sluice_link_options o = side_link(side, given);
    sluice_session session = {0};
    sluice_error e = {0};
    if (sluice_dial(side->node, it_address(port), &o, &session, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_dial");
    }
    return session;
}

int side_send(struct side *side, sluice_session session, size_t bytes, uint64_t seed,
              uint64_t tag) {
    sluice_msg *msg;
    must(sluice_alloc(side->node, bytes, &msg) == 0);
    it_fill(msg, seed);
    int status = sluice_send(session, msg, SLUICE_SEND(.tag = tag));
    if (status != 0)
        sluice_free(msg);
    return status;
}

sluice_node_info side_node_info(sluice_node *node) {
    sluice_node_info info = {.size = sizeof info};
    must(sluice_node_get_info(node, &info) == 0);
    return info;
}

void couple_open(struct couple *c, bool handlers, const sluice_node_options *node) {
    memset(c, 0, sizeof *c);
    side_open(&c->a, handlers, node);
    side_open(&c->b, handlers, node);
    c->a.partner = &c->b;
    c->b.partner = &c->a;
}

void couple_connect(struct couple *c, const sluice_link_options *link) {
    if (c->port == 0)
        c->port = side_listen(&c->a, link, &c->listener);
    c->at_b = side_dial(&c->b, c->port, link);
    must(side_expect(&c->b, SLUICE_UP).event.session.id == c->at_b.id);
    c->at_a = side_expect(&c->a, SLUICE_UP).event.session;
}

void couple_close(struct couple *c) {
    side_close(&c->b, 0);
    side_close(&c->a, 0);
}
