/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_rules_test.c - the rules that keep connection management from deadlocks, under a crowd of sessions
 * that come and go every way they can: an event is acknowledged before anything is done about it, an
 * id is destroyed by the CM thread alone, and only when its loop has given the connection back.
 */
#include "support/watched.h"

/* A node whose CM turns are taken by a thread of their own. */
struct engine {
    sluice_node *node;
    pthread_t thread;
    _Atomic bool stop;
};

static void *engine_main(void *arg) {
    struct engine *engine = arg;
    atomic_store(&watched.threads[engine->node->index], watched_self());
    while (!atomic_load(&engine->stop))
        cm_progress(engine->node->cm, 2000000);
    return NULL;
}

static void engine_start(struct engine *engine, sluice_node *node) {
    engine->node = node;
    atomic_store(&engine->stop, false);
    assert_int_equal(pthread_create(&engine->thread, NULL, engine_main, engine), 0);
}

/* From here on its turns are the caller's. */
static void engine_stop(struct engine *engine) {
    atomic_store(&engine->stop, true);
    assert_int_equal(pthread_join(engine->thread, NULL), 0);
    atomic_store(&watched.threads[engine->node->index], watched_self());
}

struct crowd {
    struct pair p;
    struct engine engines[2];
    unsigned up[2], closed[2], asked, dialed;
    uint64_t seed;
};

static void crowd_poll(struct crowd *c) {
    struct side *sides[] = {&c->p.a, &c->p.b};
    for (int i = 0; i < 2; i++) {
        sluice_event event;
        if (sluice_poll(sides[i]->loop, &event, 1, 0) != 1)
            continue;
        c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
        unsigned chance = (unsigned)(c->seed >> 40);
        if (event.type == SLUICE_CONNECT) {
            c->asked++;
            int status = chance % 4 == 0 ? sluice_refuse(event.session, 7, "not you")
                                         : sluice_accept(event.session, NULL);
            assert_true(status == 0 || status == SLUICE_ECLOSED);
        } else if (event.type == SLUICE_UP) {
            c->up[i]++;
            sides[i]->session = event.session;
            (void)pair_send(sides[i], 100 + chance % 5000, 1, NULL);
            if (chance % 3 == 0)
                sluice_hangup(event.session, chance % 2 ? 0 : 1000000000);
        } else if (event.type == SLUICE_MESSAGE) { /* or too many stay */
            sluice_hangup(event.session, chance % 2 ? 0 : 1000000000);
        } else if (event.type == SLUICE_CLOSED) {
            c->closed[i]++;
        }
    }
}

static unsigned crowd_sessions(struct crowd *c) {
    return session_table_used_count(c->p.a.node->index) +
           session_table_used_count(c->p.b.node->index);
}

/* Dials, accepts, refusals, hang-ups, broken queue pairs, lost and slow messages, one removal. */
static void crowd_run(struct crowd *c, unsigned dials, const char *plan, bool removal) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    watched_open(&c->p, PAIR_LINK(.flags = SLUICE_ASK, .credits = 8));
    c->p.a.node->options.handshakes_max = 2; /* so that some wait, and some are told BUSY */
    c->p.a.node->options.requests_max = 6;
    fault_plan(plan);
    engine_start(&c->engines[0], c->p.a.node);
    engine_start(&c->engines[1], c->p.b.node);
    bool removed = false;
    while (c->dialed < dials || crowd_sessions(c) > 0) {
        if (c->dialed < dials && crowd_sessions(c) < 24) {
            if (c->dialed % 8 == 7) /* nobody is there */
                snprintf(c->p.address, sizeof c->p.address, "127.0.0.1:1");
            else
                snprintf(c->p.address, sizeof c->p.address, "127.0.0.1:%d",
                         sluice_listener_port(c->p.listener));
            bool greets = c->dialed % 4 == 1;
            pair_dial(&c->p, PAIR_LINK(.flags = c->dialed % 3 == 0 ? SLUICE_ONCE : 0, .credits = 8,
                                       .timeout_ns = 300000000, /* of all tries */
                                       .private_data = greets ? "x" : NULL,
                                       .private_bytes = greets ? 1 : 0));
            c->dialed++;
        }
        crowd_poll(c);
        if (c->dialed == dials && !removed) {
            node_hangup_all(c->p.a.node, 0);
            node_hangup_all(c->p.b.node, 0);
        }
        if (removal && !removed && c->dialed > dials / 2) {
            watched_device(DEVICE_REMOVE, ORDER_REMOVAL_FIRST);
            removed = true;
        }
        if (removed) /* nobody else will end the sessions that wait for the listener's answer */
            c->dialed = dials;
        if (env_now(&env_default) >= limit)
            fail_msg("%u sessions do not end", crowd_sessions(c));
    }
    engine_stop(&c->engines[0]);
    engine_stop(&c->engines[1]);
    assert_true(c->closed[1] > 0);
    assert_true(c->closed[0] >= c->up[0]);
    watched_close(&c->p);
}

TEST(no_call_is_made_with_an_event_in_hand_and_ids_die_last) {
    static const struct {
        const char *plan;
        bool removal;
    } rounds[] = {
        {"cm=RTU n=3 delay=2ms", false},
        {"qp=* send=2 status=RETRY_EXC_ERR; id=* after=ESTABLISHED event=DISCONNECTED", false},
        {"id=* connect=1 event=UNREACHABLE; cm=REP delay=1ms", false},
        {"cm=* delay=1ms", true},
    };
    unsigned destroyed = atomic_load(&watched.destroyed);
    for (unsigned i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct crowd c = {.seed = i + 1};
        crowd_run(&c, 120, rounds[i].plan, rounds[i].removal);
    }
    assert_true(atomic_load(&watched.destroyed) - destroyed > 300);
}
