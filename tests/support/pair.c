/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* pair.c - see pair.h. */
#include "support/pair.h"

#include "support/verdict_event.h"

uint64_t pair_clock;
uint64_t pair_frozen;
uint64_t pair_step;

void (*pair_on_clock)(void);

uint64_t pair_now(void *arg) {
    void (*hook)(void) = pair_on_clock;
    (void)arg;
    if (hook) {
        pair_on_clock = NULL;
        hook();
        pair_on_clock = hook;
    }
    if (pair_step)
        pair_clock += pair_step;
    return (pair_frozen ? pair_frozen : env_now(&env_default)) + pair_clock;
}

_Atomic uint32_t pair_random_next;

bool pair_random(void *arg, void *out, size_t bytes) {
    (void)arg;
    uint32_t next = atomic_load(&pair_random_next);
    for (size_t i = 0; i < bytes; i++) {
        next = next * 1664525 + 1013904223;
        ((uint8_t *)out)[i] = (uint8_t)(next >> 24);
    }
    atomic_store(&pair_random_next, next);
    return true;
}

const struct sluice_env pair_env = {.now_ns = pair_now, .random_bytes = pair_random};

static uint64_t pair_rnr; /* what there was before */
bool pair_rnr_provoked;

bool pair_is_like(const char *profile) {
    const char *like = getenv("SLUICE_SOFT_PROFILE");
    return like && strcmp(like, profile) == 0;
}

const char *pair_env_or(const char *name, const char *usual) {
    const char *value = getenv(name);
    return value && *value ? value : usual;
}

void pair_open_side(struct side *side, const sluice_node_options *given) {
    sluice_node_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.device = pair_env_or("SLUICE_DEVICE", "soft");
    o.workers = SLUICE_NO_WORKERS;
    memset(side, 0, sizeof *side);
    if (node_open_env(&side->node, &o, &pair_env, true, &e) != 0)
        fail_msg("%s", e.text);
    assert_int_equal(sluice_loop_open(side->node, &side->loop, &e), 0);
}

/* Tests that are run again with sessions whose frames are kept until they are acknowledged. */
static void kept(sluice_link_options *o) {
    if (getenv("SLUICE_TEST_KEPT") && o->resume_ns == 0)
        o->resume_ns = PAIR_LIMIT_NS;
}

void pair_listen(struct pair *p, const sluice_link_options *given) {
    sluice_link_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.loop = p->a.loop;
    kept(&o);
    const char *host = pair_env_or("SLUICE_TEST_HOST", "127.0.0.1");
    snprintf(p->address, sizeof p->address, "%s:0", host);
    if (sluice_listen(p->a.node, p->address, &o, &p->listener, &e) != 0)
        fail_msg("%s", e.text);
    snprintf(p->address, sizeof p->address, "%s:%d", host, sluice_listener_port(p->listener));
}

void pair_dial(struct pair *p, const sluice_link_options *given) {
    sluice_link_options o = *given;
    sluice_error e = {0};
    o.size = sizeof o;
    o.loop = p->b.loop;
    kept(&o);
    if (sluice_dial(p->b.node, p->address, &o, &p->b.session, &e) != 0)
        fail_msg("%s", e.text);
}

void pair_turn(struct pair *p) {
    cm_progress(p->a.node->cm, 0);
    cm_progress(p->b.node->cm, 0);
    assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
    assert_true(sluice_poll(p->b.loop, NULL, 0, 0) >= 0);
}

bool pair_of_listener(const sluice_event *event) {
    return event->type == SLUICE_CLOSED && (event->session.id >> 32 & LISTENER_SLOT);
}

void pair_note(struct side *side, const sluice_event *event) {
    if (pair_of_listener(event))
        side->listeners_lost++;
    else if (event->type == SLUICE_CLOSED)
        side->closed++;
    if (event->type == SLUICE_UP || event->type == SLUICE_CONNECT)
        side->session = event->session;
}

bool pair_next(struct pair *p, struct side *side, sluice_event *event) {
    struct side *other = side == &p->a ? &p->b : &p->a;
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (unsigned i = 0; (i & 255) || env_now(&env_default) < limit; i++) {
        cm_progress(p->a.node->cm, 0);
        cm_progress(p->b.node->cm, 0);
        int n = sluice_poll(side->loop, event, 1, 0);
        assert_true(n >= 0);
        if (n > 0) {
            pair_note(side, event);
            if (pair_of_listener(event))
                continue;
            return true;
        }
        assert_true(sluice_poll(other->loop, NULL, 0, 0) >= 0);
        sched_yield();
    }
    return false;
}

sluice_event pair_expect(struct pair *p, struct side *side, sluice_event_type type) {
    sluice_event event = {0};
    if (!pair_next(p, side, &event)) {
        verdict_event(NULL, (int)type);
        fail_msg("no event, expected %s", sluice_event_name(type));
    }
    if (event.type != type) {
        verdict_event(&event, (int)type);
        fail_msg("%s (status %d, %s), expected %s", sluice_event_name(event.type), event.status,
                 sluice_reason_text(event.reason), sluice_event_name(type));
    }
    return event;
}

void pair_expect_nothing(struct pair *p, struct side *side) {
    sluice_event event;
    for (int i = 0; i < 200; i++) {
        pair_turn(p);
        int n = sluice_poll(side->loop, &event, 1, 0);
        if (n == 1 && pair_of_listener(&event))
            pair_note(side, &event);
        else if (n != 0) {
            verdict_event(&event, 0);
            fail_msg("%s came unexpectedly", sluice_event_name(event.type));
        }
    }
}

void pair_without(uint32_t without) {
    static const char *const names[] = {
#define TECHNIQUES_X(name, text, what) text,
        TECHNIQUES(TECHNIQUES_X)
#undef TECHNIQUES_X
    };
    char list[256] = "";
    for (unsigned i = 0; i < TECHNIQUE_COUNT; i++)
        if (without & 1u << i)
            strcat(strcat(list, *list ? "," : ""), names[i]);
    assert_int_equal(setenv("SLUICE_WITHOUT", list, 1), 0);
}

void pair_open(struct pair *p, const sluice_node_options *node, const sluice_link_options *link) {
    memset(p, 0, sizeof *p);
    pair_clock = pair_frozen = pair_step = 0;
    pair_rnr = atomic_load(&soft_rnr);
    pair_rnr_provoked = false;
    pair_open_side(&p->a, node);
    pair_open_side(&p->b, node);
    unsetenv("SLUICE_WITHOUT");
    pair_listen(p, link);
}

void pair_connect(struct pair *p, const sluice_link_options *link) {
    pair_dial(p, link);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
}

void pair_close(struct pair *p) {
    sluice_close(p->b.node, 0);
    sluice_close(p->a.node, 0);
    if (!pair_rnr_provoked)
        assert_int_equal(atomic_load(&soft_rnr), pair_rnr);
}

struct session *pair_session(struct side *side) {
    return session_table_at(side->session.id);
}

sluice_session_info pair_info(sluice_session session) {
    sluice_session_info info = {.size = sizeof info};
    assert_int_equal(sluice_session_get_info(session, &info), 0);
    return info;
}

void pair_dial_name(struct pair *p, const char *name, const sluice_link_options *given) {
    char address[64];
    memcpy(address, p->address, sizeof address);
    snprintf(p->address, sizeof p->address, "%.40s%.8s", name, strrchr(address, ':'));
    pair_dial(p, given);
    memcpy(p->address, address, sizeof address);
}

void pair_turns(struct pair *p, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        pair_turn(p);
}

void pair_raw_frame(struct side *side, const struct frame *f, size_t bytes) {
    enum { ROOM = 2048 };
    struct session *s = pair_session(side);
    struct ibv_send_wr wr = {.num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    sluice_msg *msg;
    assert_true(bytes <= FRAME_BYTES + ROOM);
    assert_int_equal(sluice_alloc(side->node, ROOM, &msg), 0);
    memset(sluice_data(msg), 'x', ROOM);
    uint8_t *at = (uint8_t *)sluice_data(msg) - FRAME_BYTES;
    frame_put(at, f);
    struct ibv_sge sge = {(uintptr_t)at, (uint32_t)bytes, msg->lkey};
    wr.sg_list = &sge;
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
}

sluice_msg *pair_forge(struct side *side, const struct frame *f, const void *payload,
                       size_t bytes) {
    struct session *s = pair_session(side);
    sluice_msg *msg;
    assert_int_equal(sluice_alloc(side->node, 256, &msg), 0);
    uint8_t *at = msg->data - FRAME_BYTES;
    post_header(s->connection, at, f->type, f->flags, f->length, f->total);
    memcpy(msg->data, payload, bytes);
    struct ibv_sge sge = {(uintptr_t)at, FRAME_BYTES + f->length, msg->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = wr_send_id(s->connection, s->connection->sq.tail),
                                   .sg_list = &sge,
                                   .num_sge = 1,
                                   .opcode = IBV_WR_SEND};
    assert_int_equal(ibv_post_send(s->connection->qp, &wr, &bad), 0);
    return msg;
}

static uint8_t pair_patterns[2 * PAIR_PATTERN];

static void pair_patterns_make(void) {
    for (size_t i = 0; i < sizeof pair_patterns; i++)
        pair_patterns[i] = (uint8_t)(i * 7 + (i >> 8));
}

const uint8_t *pair_pattern(unsigned seed) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, pair_patterns_make);
    return pair_patterns + (size_t)(seed & 255) * 256;
}

void pair_fill_bytes(uint8_t *at, size_t bytes, unsigned seed) {
    const uint8_t *pattern = pair_pattern(seed);
    for (size_t n; bytes > 0; at += n, bytes -= n) {
        n = bytes < PAIR_PATTERN ? bytes : PAIR_PATTERN;
        memcpy(at, pattern, n);
    }
}

bool pair_holds(const uint8_t *at, size_t bytes, unsigned seed) {
    const uint8_t *pattern = pair_pattern(seed);
    for (size_t n; bytes > 0; at += n, bytes -= n) {
        n = bytes < PAIR_PATTERN ? bytes : PAIR_PATTERN;
        if (memcmp(at, pattern, n) != 0)
            return false;
    }
    return true;
}

void pair_fill(sluice_msg *msg, unsigned seed) {
    pair_fill_bytes(sluice_data(msg), sluice_size(msg), seed);
}

bool pair_check(const sluice_msg *msg, size_t bytes, unsigned seed) {
    if (sluice_size(msg) == bytes && pair_holds(sluice_data(msg), bytes, seed))
        return true;
    verdict_wrong_data("a message of %zu bytes that should have %zu of pattern %u",
                       sluice_size(msg), bytes, seed);
    return false;
}

int pair_send(struct side *side, size_t bytes, unsigned seed, const sluice_send_options *o) {
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

void pair_grant_all(struct pair *p, struct session *sender, struct session *receiver) {
    struct session *r = receiver;
    struct sluice_loop *l = atomic_load(&r->loop);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (r->connection->credits.granted < r->connection->credits.max) {
        uint32_t before = r->connection->credits.granted;
        r->connection->credits.checked_ns = l->now_ns;
        r->connection->credits.seen = r->connection->rx.sequence - r->connection->credits.granted;
        credits_grow(l, r->connection);
        if (r->connection->credits.granted == before)
            fail_msg("%u credits of %u, and no more", r->connection->credits.granted,
                     r->connection->credits.max);
    }
    recv_queue_repost(l, r->connection);
    if (r->connection->rx.unreported > 0)
        assert_true(send_control(l, r, FRAME_CREDIT));
    while (sender->connection->tx.credits <
           r->connection->credits.granted - r->connection->credits.retained) {
        pair_turn(p);
        if (env_now(&env_default) >= limit)
            fail_msg("%u credits of %u: %u kept, %u with the peer, %u owed, %u to be posted",
                     sender->connection->tx.credits, r->connection->credits.granted,
                     r->connection->credits.retained, r->connection->rx.granted,
                     r->connection->rx.unreported, r->connection->rx.repost_count);
    }
}

/* ---- as the set-up of a test ---- */

static struct pair pair_of_test;

int pair_opened(void **state) {
    *state = &pair_of_test;
    pair_open(*state, PAIR_NODE(), PAIR_LINK());
    return 0;
}

int pair_connected(void **state) {
    pair_opened(state);
    pair_connect(*state, PAIR_LINK());
    return 0;
}

int pair_closed(void **state) {
    pair_close(*state);
    return 0;
}
