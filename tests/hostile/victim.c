/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* victim.c - see victim.h. Events of the victim's loop are the honest thread's while that runs. */
#include "support/side.h"

#include <sched.h>

#include "hostile/belongings.h"
#include "hostile/frame_form.h"
#include "hostile/frame_speak.h"
#include "hostile/honest.h"
#include "hostile/victim.h"
#include "node/node.h"

#define MIB ((uint64_t)1 << 20)
#define REGION_BYTES 4096u
#define MEASURED 3u /* regions, and as many set-ups or more */
#define CALLERS 2u  /* that open and close regions at the same time */

struct victim_seen victim_seen;

/* Which listener a session came by, or what dialed it: its argument. */
static char by_honest, by_hostile;

static struct {
    sluice_node *node, *other; /* the victim's, and that of the honest */
    sluice_loop *loop, *honest,
        *set_ups; /* the victim's; the honest pair's other end; the main thread's */
    sluice_listener hostile, welcome;
    sluice_session there; /* the victim's end of the honest session */
    sluice_region *region;
    sluice_token token;
    struct honest pair;
    uint64_t quiet_ns; /* a set-up takes while nobody attacks */
    _Atomic unsigned need;
    _Atomic uint64_t hostile_id; /* of the last hostile session that came up */
} victim;

static struct belongings before; /* while nothing goes on */

/* ---- what becomes of hostile sessions ------------------------------------------------------------ */

/* Of a session that the application is not told of. */
static void on_log(int level, const char *text, void *arg) {
    (void)level;
    (void)arg;
    const char *refused = strstr(text, " refused: ");
    if (strstr(text, "session with ") && strstr(text, " closed: "))
        atomic_fetch_or(&victim_seen.logged, ENDS(PROTOCOL));
    for (unsigned reason = 1; refused && reason <= SLUICE_REASON_ACCESS; reason++)
        if (strcmp(refused + strlen(" refused: "), sluice_reason_text((int)reason)) == 0)
            atomic_fetch_or(&victim_seen.logged, 1u << reason);
}

/* One that it could not send is none. */
static int send_some(sluice_session session, size_t bytes, bool request) {
    sluice_msg *msg;
    int status = sluice_alloc(victim.node, bytes, &msg);
    if (status != 0)
        return status;
    it_fill(msg, 1);
    status = request ? sluice_request(session, msg, SLUICE_SEND(.tag = 1))
                     : sluice_send(session, msg, NULL);
    if (status != 0)
        sluice_free(msg);
    return status;
}

static void serve(sluice_session session) {
    static const uint8_t part[FORM_LARGE / 2];
    const sluice_piece pieces[2] = {{part, sizeof part, NULL}, {part, sizeof part, NULL}};
    unsigned need = atomic_load(&victim.need);
    int status = 0;
    for (unsigned i = 0; i < (need == NEED_MANY ? 40u : 1u); i++)
        if (need == NEED_PIECES)
            status = sluice_send_pieces(session, pieces, 2, SLUICE_SEND(.tag = 1));
        else
            status = send_some(session,
                               need == NEED_LARGE  ? FORM_LARGE
                               : need == NEED_MANY ? 3000
                                                   : 64,
                               need == NEED_REQUEST);
    must(status == 0 || status == SLUICE_ECLOSED || need == NEED_MANY);
}

static void on_message(const sluice_event *event) {
    const uint8_t *data = sluice_data(event->msg);
    size_t bytes = sluice_size(event->msg), i = 0;
    if (bytes == sizeof FRAME_SPEAK_LAST && memcmp(data, FRAME_SPEAK_LAST, bytes) == 0) {
        atomic_fetch_add(&victim_seen.last, 1);
        sluice_hangup(event->session, 0);
    }
    if (bytes <= LINK_FRAME)
        return;
    while (i < bytes && data[i] == 0)
        i++;
    atomic_fetch_add(&victim_seen.wrong, i != bytes);
    atomic_fetch_add(&victim_seen.large, 1);
}

static bool on_event(const sluice_event *event) {
    if (event->arg == &by_honest) {
        if (event->session.id != victim.there.id)
            return false; /* one of those that are set up */
        must(event->type == SLUICE_MESSAGE || event->type == SLUICE_WRITABLE);
        return true;
    }
    if (event->type == SLUICE_UP) {
        atomic_store(&victim.hostile_id, event->session.id);
        atomic_fetch_add(&victim_seen.ups, 1);
        serve(event->session);
    } else if (event->type == SLUICE_CLOSED) {
        must(event->reason > 0 && event->reason <= SLUICE_REASON_ACCESS);
        atomic_fetch_or(&victim_seen.reasons, 1u << event->reason);
        atomic_fetch_add(&victim_seen.closed, 1);
    } else if (event->type == SLUICE_MESSAGE) {
        on_message(event);
    }
    return false;
}

void victim_serve(unsigned need) {
    atomic_store(&victim.need, need);
}

void victim_forget(void) {
    atomic_store(&victim_seen.ups, 0);
    atomic_store(&victim_seen.closed, 0);
    atomic_store(&victim_seen.reasons, 0);
    atomic_store(&victim_seen.logged, 0);
    atomic_store(&victim_seen.last, 0);
    atomic_store(&victim_seen.large, 0);
    atomic_store(&victim_seen.wrong, 0);
}

void victim_hang_up(void) {
    sluice_hangup((sluice_session){atomic_load(&victim.hostile_id)}, 0);
}

void victim_dial(unsigned port) {
    sluice_session session;
    sluice_error e;
    must(sluice_dial(victim.node, it_address((int)port),
                     SLUICE_LINK(.loop = victim.loop, .arg = &by_hostile, .flags = SLUICE_ONCE,
                                 .private_data = "hello", .private_bytes = 5),
                     &session, &e) == 0);
}

/* ---- life ---------------------------------------------------------------------------------------- */

static sluice_node *open_node(void) {
    const sluice_node_options options = {.size = sizeof options,
                                         .device = "soft",
                                         .workers = SLUICE_NO_WORKERS,
                                         .log = on_log,
                                         .memory_bytes_max = 64 * MIB,
                                         .receive_bytes_max = 24 * MIB,
                                         .message_bytes_max = MIB,
                                         .sessions_max = 256};
    sluice_node *node;
    sluice_error e = {0};
    if (sluice_open(&node, &options, &e) != 0)
        fprintf(stderr, "%s\n", e.text);
    must(!e.text[0]);
    return node;
}

static sluice_loop *open_loop(sluice_node *node) {
    sluice_loop *loop;
    sluice_error e;
    must(sluice_loop_open(node, &loop, &e) == 0);
    return loop;
}

static void listen_at(sluice_listener *listener, const char *address, char *by,
                      uint64_t timeout_ns) {
    sluice_error e;
    must(sluice_listen(
             victim.node, address,
             SLUICE_LINK(.loop = victim.loop, .arg = by, .credits = 16, .timeout_ns = timeout_ns),
             listener, &e) == 0);
}

/* The next event of that session on a loop of this thread; the victim's is turned by the honest thread. */
static void await(sluice_loop *loop, sluice_session session, sluice_event_type type) {
    uint64_t until = sluice_now() + LIMIT_NS;
    for (;;) {
        sluice_event event;
        while (sluice_poll(loop, &event, 1, 10 * MS) == 1)
            if (event.session.id == session.id) {
                if (event.type != type)
                    fprintf(stderr, "an honest session: %s, %s\n", sluice_event_name(event.type),
                            sluice_reason_text(event.reason));
                must(event.type == type);
                return;
            }
        must(sluice_now() < until);
    }
}

static sluice_session dial(sluice_loop *loop) {
    sluice_session session;
    sluice_error e;
    must(sluice_dial(victim.other, it_address(sluice_listener_port(victim.welcome)),
                     SLUICE_LINK(.loop = loop), &session, &e) == 0);
    return session;
}

static void connect_pair(void) {
    uint64_t until = sluice_now() + LIMIT_NS;
    bool here = false;
    victim.pair.session = dial(victim.honest);
    while (!here || victim.there.id == 0) {
        sluice_event event;
        if (sluice_poll(victim.honest, &event, 1, 0) == 1)
            here = event.type == SLUICE_UP;
        if (sluice_poll(victim.loop, &event, 1, 0) == 1 && event.type == SLUICE_UP)
            victim.there = event.session;
        must(sluice_now() < until);
    }
}

void victim_open(void) {
    sluice_error e;
    victim.node = open_node();
    victim.other = open_node();
    victim.loop = open_loop(victim.node);
    victim.honest = open_loop(victim.other);
    victim.set_ups = open_loop(victim.other);
    listen_at(&victim.hostile, it_address(0), &by_hostile, 1000 * MS);
    listen_at(&victim.welcome, "*:0", &by_honest,
              0); /* of whose names there may be more exact ones */
    must(sluice_region_open(victim.node, NULL, REGION_BYTES,
                            SLUICE_MAY_READ | SLUICE_MAY_WRITE | SLUICE_MAY_ATOMIC, &victim.region,
                            &e) == 0);
    must(sluice_region_token(victim.region, 0, REGION_BYTES,
                             SLUICE_MAY_READ | SLUICE_MAY_WRITE | SLUICE_MAY_ATOMIC,
                             &victim.token) == 0);
    victim.pair = (struct honest){
        .node = victim.other, .here = victim.honest, .there = victim.loop, .on_event = on_event};
    connect_pair();
    victim_begin(); /* once: what comes with the first of everything is there */
    victim_dial(1);
    while (atomic_load(&victim_seen.closed) == 0)
        sched_yield();
    victim_go_on(256);
    victim.quiet_ns = victim_measure(false).set_up_ns;
    honest_stop();
}

void victim_close(void) {
    must(sluice_region_close(victim.region) == 0);
    sluice_close(victim.other, 0);
    sluice_close(victim.node, 0);
}

void victim_move(void) {
    sluice_unlisten(victim.welcome);
    listen_at(&victim.welcome, "*:0", &by_honest,
              0); /* of whose names there may be more exact ones */
}

unsigned victim_port(void) {
    return (unsigned)sluice_listener_port(victim.hostile);
}

unsigned victim_welcome(void) {
    return (unsigned)sluice_listener_port(victim.welcome);
}

uint32_t victim_qpn(void) {
    return session_table_at(victim.there.id)->connection->qp->qp_num;
}

const sluice_token *victim_token(uint8_t fill) {
    memset(sluice_region_data(victim.region), fill, REGION_BYTES);
    return &victim.token;
}

bool victim_untouched(uint8_t fill) {
    const uint8_t *data = sluice_region_data(victim.region);
    unsigned i = 0;
    while (i < REGION_BYTES && data[i] == fill)
        i++;
    return i == REGION_BYTES;
}

/* ---- measuring ------------------------------------------------------------------------------------ */

void victim_go_on(unsigned rounds) {
    uint64_t seen = honest_rounds(), goal = seen + rounds, until = sluice_now() + LIMIT_NS;
    for (uint64_t now; (now = honest_rounds()) < goal; seen = now) {
        if (now != seen)
            until = sluice_now() + LIMIT_NS; /* of a round */
        must(sluice_now() < until);
        sched_yield();
    }
}

static uint64_t set_up(void) {
    uint64_t start = sluice_now();
    sluice_session session = dial(victim.set_ups);
    await(victim.set_ups, session, SLUICE_UP);
    uint64_t took = sluice_now() - start;
    sluice_hangup(session, 0);
    await(victim.set_ups, session, SLUICE_CLOSED);
    return took;
}

static uint64_t memory(void) {
    sluice_region *region;
    sluice_error e;
    uint64_t start = sluice_now();
    must(sluice_region_open(victim.node, NULL, REGION_BYTES, SLUICE_MAY_READ | SLUICE_MAY_WRITE,
                            &region, &e) == 0);
    must(sluice_region_close(region) == 0);
    return sluice_now() - start;
}

struct victim_worst victim_take(void) {
    struct victim_worst worst = {0};
    honest_worst(&worst.own_ns, &worst.wall_ns);
    return worst;
}

static _Atomic unsigned measuring;

/* The quickest of some calls that may wait for a peer; others must not wait for them, however many do. */
static void *memory_some(void *least) {
    for (unsigned i = 0; i < MEASURED; i++) {
        uint64_t took = memory();
        if (took < *(uint64_t *)least)
            *(uint64_t *)least = took;
    }
    atomic_fetch_sub(&measuring, 1);
    return NULL;
}

struct victim_worst victim_measure(bool slowest) {
    uint64_t least = UINT64_MAX, most = 0, regions[CALLERS];
    pthread_t threads[CALLERS];
    atomic_store(&measuring, CALLERS);
    for (unsigned i = 0; i < CALLERS; i++) {
        regions[i] = UINT64_MAX;
        must(pthread_create(&threads[i], NULL, memory_some, &regions[i]) == 0);
    }
    for (unsigned i = 0; i < MEASURED || atomic_load(&measuring) > 0; i++) {
        uint64_t took = set_up();
        least = took < least ? took : least;
        most = took > most ? took : most;
    }
    for (unsigned i = 0; i < CALLERS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    struct victim_worst worst = victim_take();
    worst.set_up_ns = slowest ? most : least;
    worst.memory_ns = regions[0] > regions[1] ? regions[0] : regions[1];
    return worst;
}

/*
 * What is promised by the clock, or, on a machine whose system calls are slow, by what it takes to let in as many strangers
 * as a listener has at a time whose requests are not whole (docs/security.md).
 */
static uint64_t bound_ns(void) {
    uint64_t strangers = 64 * victim.quiet_ns;
    return strangers > VICTIM_BOUND_NS ? strangers : VICTIM_BOUND_NS;
}

bool victim_withstood(const struct victim_worst *worst) {
    uint64_t bound = bound_ns();
    return worst->own_ns < bound && worst->wall_ns < bound && worst->set_up_ns < bound &&
           worst->memory_ns < bound;
}

static void raise_to(uint64_t *all, uint64_t one) {
    *all = one > *all ? one : *all;
}

void victim_worse(struct victim_worst *all, const struct victim_worst *one) {
    raise_to(&all->own_ns, one->own_ns);
    raise_to(&all->wall_ns, one->wall_ns);
    raise_to(&all->set_up_ns, one->set_up_ns);
    raise_to(&all->memory_ns, one->memory_ns);
}

void victim_tell(const char *what, unsigned uid, const struct victim_worst *worst) {
    if (bound_ns() > VICTIM_BOUND_NS)
        print_message("    a set-up takes %llu us here while nobody attacks: bound %llu us\n",
                      (unsigned long long)victim.quiet_ns / 1000,
                      (unsigned long long)bound_ns() / 1000);
    print_message(
        "    uid %u, %s: round trip %llu us (own time %llu), set-up %llu us, region %llu us\n", uid,
        what, (unsigned long long)worst->wall_ns / 1000, (unsigned long long)worst->own_ns / 1000,
        (unsigned long long)worst->set_up_ns / 1000, (unsigned long long)worst->memory_ns / 1000);
}

/* ---- what it has ---------------------------------------------------------------------------------- */

static struct belongings count(void) {
    sluice_node *const nodes[] = {victim.node, victim.other};
    return belongings_count(nodes, 2);
}

/* Receives that sessions share: one that is counted and not there is missed by somebody, later. */
static void count_receives(void) {
    const struct recv_queue *q = &victim.loop->srq.queue;
    uint32_t counted = q->spare;
    for (const struct session *s = victim.loop->sessions; s; s = s->next)
        if (s->connection->rx.queue == q)
            counted += s->connection->rx.granted + s->connection->rx.unreported +
                       s->connection->recv.reserved;
    if (counted != q->posted)
        fprintf(stderr, "%u receives are counted, %u posted\n", counted, q->posted);
    must(counted == q->posted);
}

/* The loops are nobody else's now. */
static void turn(void) {
    sluice_event event;
    while (sluice_poll(victim.loop, &event, 1, 0) == 1)
        (void)on_event(&event);
    must(sluice_poll(victim.honest, NULL, 0, 0) >= 0);
    must(sluice_poll(victim.set_ups, NULL, 0, 0) >= 0);
}

void victim_begin(void) {
    uint64_t until = sluice_now() + LIMIT_NS;
    while (before = count(), before.sessions > 2) { /* the two ends of the honest one */
        turn();
        must(sluice_now() < until);
    }
    honest_start(&victim.pair);
}

void victim_end(void) {
    uint64_t until = sluice_now() + LIMIT_NS;
    struct belongings now;
    honest_stop();
    while (now = count(), !belongings_returned(&now, &before)) {
        turn();
        if (sluice_now() < until)
            continue;
        belongings_tell(&now, &before);
        must(!"descriptors, threads and memory return");
    }
    count_receives();
}
