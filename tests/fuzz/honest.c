/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* honest.c - the honest side: its node, its turns, its account. */
#define _GNU_SOURCE
#include "honest.h"

#include "core/session_table.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"
#include "support/pool_stats.h"
#include "stranger.h"
#include "core/wire/frame.h"
#include "datapath/rndv/internal.h"
#include "datapath/rx/recv_queue.h"

#define BEGINNING_NS 1000000000000ull

void (*honest_heard)(unsigned kind, const uint8_t *data, uint64_t bytes);

static uint64_t clock_ns;
static uint32_t random_next;

static uint64_t now(void *arg) {
    (void)arg;
    return clock_ns;
}

void honest_pass(uint64_t ns) {
    clock_ns += ns;
}

static bool random_bytes(void *arg, void *out, size_t bytes) {
    (void)arg;
    for (size_t i = 0; i < bytes; i++) {
        random_next = random_next * 1664525 + 1013904223;
        ((uint8_t *)out)[i] = (uint8_t)(random_next >> 24);
    }
    return true;
}

static const struct sluice_env env = {.now_ns = now, .random_bytes = random_bytes};

static void silent(int level, const char *text, void *arg) {
    (void)level;
    (void)text;
    (void)arg;
}

static const sluice_key key = {.id = STRANGER_KEY, .bytes = 32, .secret = STRANGER_SECRET};

static sluice_link_options link_of(const struct honest *h, enum honest_link link) {
    sluice_link_options o = {.size = sizeof o,
                             .loop = h->loop,
                             .window_messages = 12,
                             .window_bytes = 300000,
                             .requests = 6,
                             .credits = link == LINK_FEW ? 4 : 24,
                             .keepalive_ns = link == LINK_FEW ? 0 : SLUICE_OFF,
                             .flags = link == LINK_PLACE ? SLUICE_RECEIVE_INTO
                                      : link == LINK_FEW ? SLUICE_ISOLATED
                                                         : 0};
    if (link == LINK_KEY) {
        o.key_count = 1;
        o.keys = &key;
    }
    return o;
}

void honest_open(struct honest *h, sluice_rendezvous way) {
    sluice_node_options o = {.size = sizeof o,
                             .device = "soft",
                             .workers = SLUICE_NO_WORKERS,
                             .eager_bytes = HONEST_FRAME,
                             .message_bytes_max = HONEST_MESSAGE,
                             .memory_bytes_max = 16 << 20,
                             .receive_bytes_max = 8 << 20,
                             .sessions_max = 8,
                             .rendezvous_bytes = HONEST_RENDEZVOUS,
                             .rendezvous = way,
                             .log = silent};
    sluice_error e = {0};
    memset(h, 0, sizeof *h);
    clock_ns = BEGINNING_NS;
    if (node_open_env(&h->node, &o, &env, true, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    PROVE(sluice_loop_open(h->node, &h->loop, &e) == 0);
    PROVE(sluice_region_open(h->node, NULL, HONEST_REGION, 0, &h->region, &e) == 0);
    for (int link = 0; link < LINKS; link++) {
        sluice_link_options lo = link_of(h, (enum honest_link)link);
        sluice_listener listener;
        lo.flags |= link >= LINK_ASK ? SLUICE_ASK : 0;
        PROVE(sluice_listen(h->node, "127.0.0.1:0", &lo, &listener, &e) == 0);
        h->port[link] = (uint16_t)sluice_listener_port(listener);
    }
}

/* All of one run that another could tell. */
void honest_begin(struct honest *h) {
    struct honest clean = {0};
    memcpy(&h->session, &clean.session, sizeof *h - offsetof(struct honest, session));
    memset(sluice_region_data(h->region), HONEST_SECRET, HONEST_REGION);
    random_next = 1;
}

void honest_dial(struct honest *h, uint16_t port, enum honest_link link) {
    sluice_link_options o = link_of(h, link);
    sluice_error e = {0};
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    o.flags |= SLUICE_ONCE;
    PROVE(sluice_dial(h->node, address, &o, &h->session, &e) == 0);
}

struct session *honest_session(const struct honest *h) {
    return h->session.id ? session_table_at(h->session.id) : NULL;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Eight bytes of its own in a row: the fuzzer changes no more than single words. */
static bool is_secret(const uint8_t *data, uint64_t bytes) {
    static const uint8_t secret[8] = {HONEST_SECRET, HONEST_SECRET, HONEST_SECRET, HONEST_SECRET,
                                      HONEST_SECRET, HONEST_SECRET, HONEST_SECRET, HONEST_SECRET};
    return memmem(data, bytes, secret, sizeof secret) != NULL;
}

static void outcome(struct honest *h, const sluice_event *event, enum honest_deed deed) {
    uint64_t tag = event->tag - 1;
    PROVE(tag < h->deeds && h->deed[tag].accepted == deed);
    PROVE(h->deed[tag].ended == 0);
    h->deed[tag].ended++;
}

static void take_message(struct honest *h, sluice_msg *msg) {
    if (!msg)
        return;
    const uint8_t *data = sluice_data(msg);
    PROVE(sluice_size(msg) <= HONEST_MESSAGE && !is_secret(data, sluice_size(msg)));
    if (h->keeps && h->kept_count < HONEST_KEPT) {
        sluice_keep(msg);
        h->kept[h->kept_count++] = msg;
    }
}

static void on_message(struct honest *h, const sluice_event *event) {
    bool request = event->type == SLUICE_REQUEST;
    honest_heard(request ? FRAME_REQUEST : FRAME_DATA, event->msg ? sluice_data(event->msg) : NULL,
                 event->msg ? sluice_size(event->msg) : event->value);
    take_message(h, event->msg);
    h->messages += !request;
    h->requests += request;
    if (request && h->token_count < HONEST_TOKENS)
        h->token[h->token_count++] = event->token;
}

static void on_closed(struct honest *h, const sluice_event *event) {
    const struct session *s = honest_session(h);
    sluice_session_info info = {.size = sizeof info};
    h->closed++;
    h->reason = event->reason;
    PROVE(atomic_load(&s->window.own_messages) == 0 && atomic_load(&s->window.own_bytes) == 0);
    PROVE(sluice_session_get_info(event->session, &info) == 0);
    memcpy(h->why, info.close_text, sizeof h->why);
    PROVE(info.window_messages_used == 0 && info.window_bytes_used == 0);
}

static void on_event(struct honest *h, const sluice_event *event) {
    if (h->session.id == 0)
        h->session = event->session;
    PROVE(event->session.id == h->session.id && h->closed == 0);
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        PROVE(!h->up);
        h->up = true;
        break;
    case SLUICE_CLOSED:
        on_closed(h, event);
        break;
    case SLUICE_MESSAGE:
    case SLUICE_REQUEST:
        PROVE(h->up);
        on_message(h, event);
        break;
    case SLUICE_REPLY:
        outcome(h, event, DEED_REQUEST);
        PROVE(event->status != 0 || event->msg);
        take_message(h, event->msg);
        h->replies++;
        break;
    case SLUICE_SENT:
        outcome(h, event, DEED_SEND);
        h->sent++;
        break;
    case SLUICE_DONE:
        outcome(h, event, DEED_ONE_SIDED);
        h->done++;
        break;
    case SLUICE_CONNECT:
        PROVE(!h->asked && !h->up);
        h->asked = true;
        break;
    case SLUICE_LARGE:
        if (h->place_count < HONEST_TOKENS)
            h->place[h->place_count++] = event->token;
        break;
    case SLUICE_WRITABLE:
    case SLUICE_DOWN:
    case SLUICE_NOTIFIED:
        PROVE(h->up);
        break;
    case SLUICE_WAKE:
    case SLUICE_MOVED:
        PROVE(!"a wake that nobody asked for");
    }
}

/* Borrowed messages end with the next poll, so what is in them is looked at before. */
bool honest_turn(struct honest *h) {
    sluice_event events[4];
    cm_progress(h->node->cm, 0);
    int n = sluice_poll(h->loop, events, 4, 0);
    PROVE(n >= 0);
    for (int i = 0; i < n; i++)
        on_event(h, &events[i]);
    return n > 0;
}

/* The connection manager's part is done by another thread: it always comes to an end. */
bool honest_busy(const struct honest *h) {
    const struct session *s = h->loop->sessions;
    if (!s || s->state == SESSION_OPENING)
        return false;
    if (s->state >= SESSION_RELEASED || (s->rndv && s->rndv->goes_on))
        return true;
    const struct soft_qp *qp = s->connection->qp ? soft_qp_of(s->connection->qp) : NULL;
    const struct soft_ring *tx = qp ? atomic_load(&qp->tx) : NULL;
    if (!tx || qp->state != IBV_QPS_RTS || qp->sq_head == qp->sq_tail)
        return false;
    return atomic_load(&tx->rx.stalled) == 0 || atomic_load(&tx->rx.down);
}

/* Nothing more comes of connecting by itself. */
bool honest_connected(const struct honest *h) {
    const struct session *s = h->loop->sessions;
    return !s || s->adopted || s->state >= SESSION_UP;
}

/* ---- proofs ---------------------------------------------------------------------------------- */

void honest_prove(const struct honest *h) {
    const struct session *s = honest_session(h);
    if (!s || h->closed || s->state != SESSION_UP || !s->connection->qp)
        return;
    /* Each credit the peer has, or is about to have, is a receive that is posted. */
    PROVE(s->connection->credits.granted <= s->connection->credits.max);
    PROVE(s->connection->rx.granted + s->connection->rx.unreported <=
          s->connection->credits.granted);
    PROVE(s->connection->rx.granted + s->connection->rx.unreported +
              s->connection->rx.queue->spare <=
          s->connection->rx.queue->posted);
    PROVE(s->connection->tx.credits <= s->connection->tx.credits_max);
}

bool honest_over(const struct honest *h) {
    return session_table_used_count(h->node->index) == 0;
}

void honest_settle(struct honest *h) {
    while (h->kept_count > 0)
        sluice_free(h->kept[--h->kept_count]);
    honest_turn(h); /* the last borrowed ones */
    for (uint32_t i = 0; i < h->deeds; i++)
        PROVE(h->deed[i].ended == 1);
    PROVE(h->closed == (h->session.id != 0));
    PROVE(pool_in_use(h->node->pool) == 0);
    /* Of what is received only receives are left that are posted for the next session. */
    struct recv_queue *shared = &h->loop->srq.queue;
    PROVE(recv_queue_post(h->loop, shared, NULL));
    PROVE(pool_in_use(h->node->rx_pool) == shared->posted && shared->spare == shared->posted);
    PROVE(atomic_load(&h->node->landing_bytes) == 0);
}
