/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pair.h - two nodes in one thread: no thread of the library runs, the test takes every turn of
 * both CM threads and both loops itself, and owns the clock. Only the software device between them
 * works on its own, so waiting has a limit in real time.
 */
#ifndef TESTS_PAIR_H
#define TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "datapath/datapath.h"
#include "node/node.h"

#define PAIR_LIMIT_NS 20000000000ull /* far above what a loaded machine with a sanitizer needs */
#define PAIR_UNUSED __attribute__((unused))

static uint64_t pair_clock; /* nanoseconds the test has added to the real clock */

static uint64_t pair_now(void *arg) {
    (void)arg;
    return env_now(&env_default) + pair_clock;
}

static _Atomic uint32_t pair_random_next; /* set back, the same numbers come again */

static void pair_random(void *arg, void *out, size_t bytes) {
    (void)arg;
    uint32_t next = atomic_load(&pair_random_next);
    for (size_t i = 0; i < bytes; i++) {
        next = next * 1664525 + 1013904223;
        ((uint8_t *)out)[i] = (uint8_t)(next >> 24);
    }
    atomic_store(&pair_random_next, next);
}

static const struct sluice_env pair_env = {.now_ns = pair_now, .random_bytes = pair_random};

struct side {
    sluice_node *node;
    sluice_loop *loop;
    sluice_session session;
    uint32_t closed; /* CLOSED events seen */
};

struct pair {
    struct side a, b; /* a listens, b dials */
    sluice_listener listener;
    char address[64];
};

static void pair_open_side(struct side *side, const sluice_node_options *given) {
    sluice_node_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.device = "soft";
    o.workers = SLUICE_NO_WORKERS;
    memset(side, 0, sizeof *side);
    if (node_open_env(&side->node, &o, &pair_env, true, &e) != 0)
        fail_msg("%s", e.text);
    assert_int_equal(sluice_loop_open(side->node, &side->loop, &e), 0);
}

static void pair_listen(struct pair *p, const sluice_link_options *given) {
    sluice_link_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.loop = p->a.loop;
    if (sluice_listen(p->a.node, "127.0.0.1:0", &o, &p->listener, &e) != 0)
        fail_msg("%s", e.text);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%d", sluice_listener_port(p->listener));
}

static void pair_dial(struct pair *p, const sluice_link_options *given) {
    sluice_link_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.loop = p->b.loop;
    if (sluice_dial(p->b.node, p->address, &o, &p->b.session, &e) != 0)
        fail_msg("%s", e.text);
}

/* One turn of everything that makes no events; the loops only make progress. */
static void pair_turn(struct pair *p) {
    cm_turn(&p->a.node->cm, 0);
    cm_turn(&p->b.node->cm, 0);
    assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
    assert_true(sluice_poll(p->b.loop, NULL, 0, 0) >= 0);
}

static void pair_note(struct side *side, const sluice_event *event) {
    if (event->type == SLUICE_CLOSED)
        side->closed++;
    if (event->type == SLUICE_UP || event->type == SLUICE_CONNECT)
        side->session = event->session;
}

/* The next event of one side, the other making progress; false when the limit passed. */
static bool pair_next(struct pair *p, struct side *side, sluice_event *event) {
    struct side *other = side == &p->a ? &p->b : &p->a;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (unsigned i = 0; (i & 255) || env_now(&env_default) < limit; i++) {
        cm_turn(&p->a.node->cm, 0);
        cm_turn(&p->b.node->cm, 0);
        int n = sluice_poll(side->loop, event, 1, 0);
        assert_true(n >= 0);
        if (n > 0) {
            pair_note(side, event);
            return true;
        }
        assert_true(sluice_poll(other->loop, NULL, 0, 0) >= 0);
        sched_yield();
    }
    return false;
}

static sluice_event pair_expect(struct pair *p, struct side *side, sluice_event_type type) {
    sluice_event event = {0};
    if (!pair_next(p, side, &event))
        fail_msg("no event, expected %s", sluice_event_name(type));
    if (event.type != type)
        fail_msg("%s (status %d, %s), expected %s", sluice_event_name(event.type), event.status,
                 sluice_reason_text(event.reason), sluice_event_name(type));
    return event;
}

/* Nothing comes on this side for a good number of turns. */
PAIR_UNUSED static void pair_expect_nothing(struct pair *p, struct side *side) {
    sluice_event event;
    for (int i = 0; i < 200; i++) {
        pair_turn(p);
        int n = sluice_poll(side->loop, &event, 1, 0);
        if (n != 0)
            fail_msg("%s came unexpectedly", sluice_event_name(event.type));
    }
}

PAIR_UNUSED static void pair_open(struct pair *p, const sluice_node_options *node,
                                  const sluice_link_options *link) {
    memset(p, 0, sizeof *p);
    pair_clock = 0;
    pair_open_side(&p->a, node);
    pair_open_side(&p->b, node);
    pair_listen(p, link);
}

PAIR_UNUSED static void pair_connect(struct pair *p, const sluice_link_options *link) {
    pair_dial(p, link);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
}

PAIR_UNUSED static void pair_close(struct pair *p) {
    sluice_close(p->b.node, 0);
    sluice_close(p->a.node, 0);
}

PAIR_UNUSED static struct session *pair_session(struct side *side) {
    return slot_find(side->session.id);
}

#define PAIR_NODE(...) (&(sluice_node_options){.size = 0, __VA_ARGS__})
#define PAIR_LINK(...) (&(sluice_link_options){.size = 0, __VA_ARGS__})

PAIR_UNUSED static void pair_fill(sluice_msg *msg, unsigned seed) {
    uint8_t *data = sluice_data(msg);
    for (size_t i = 0; i < sluice_size(msg); i++)
        data[i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

PAIR_UNUSED static bool pair_check(const sluice_msg *msg, size_t bytes, unsigned seed) {
    const uint8_t *data = sluice_data(msg);
    if (sluice_size(msg) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != (uint8_t)(seed + i * 7 + (i >> 8)))
            return false;
    return true;
}

PAIR_UNUSED static int pair_send(struct side *side, size_t bytes, unsigned seed,
                                 const sluice_send_options *o) {
    sluice_msg *msg;
    int status = sluice_alloc(side->node, bytes, &msg);
    if (status != 0)
        return status;
    pair_fill(msg, seed);
    status = sluice_send(side->session, msg, o);
    if (status != 0)
        sluice_free(msg);
    return status;
}

#endif
