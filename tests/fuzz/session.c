/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* session.c - a run: the two connect, act by turns as the input says, and part; then the account. */
#include "session.h"

#include <sched.h>

#include "soft/ipc/engine.h"
#include "soft/soft.h"

#define LIMIT_NS 20000000000ull /* far above what a loaded machine needs */
#define CALM 3u                 /* turns without anything that end an ACT_TURN */
#define LOOK 66u                /* so many where time has passed: a loop looks every 64th */
#define PATIENCE 512u           /* turns without anything until time passes at the end */

static struct stranger stranger;
static struct honest sides[2], *honest;
static bool trace, passed;

static void heard(unsigned kind, const uint8_t *data, uint64_t bytes) {
    stranger_check(&stranger, kind, data, bytes);
}

static bool turn_once(void) {
    bool moved = honest_turn(honest);
    return stranger_turn(&stranger) || moved;
}

/* Until nothing moves. */
static void turn(void) {
    uint64_t limit = soft_now_ns() + LIMIT_NS;
    unsigned enough = passed ? LOOK : CALM;
    passed = false;
    for (unsigned calm = 0; calm < enough;) {
        bool moved = turn_once(), busy = honest_busy(honest) || stranger_busy(&stranger);
        calm = moved || busy ? 0 : calm + 1;
        PROVE(!busy || soft_now_ns() < limit);
    }
    honest_prove(honest);
    stranger.calm = true;
}

#define TURN_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t limit_ = soft_now_ns() + LIMIT_NS;                                                \
        while (!(condition)) {                                                                     \
            if (!turn_once())                                                                      \
                sched_yield();                                                                     \
            PROVE(soft_now_ns() < limit_);                                                         \
        }                                                                                          \
    } while (0)

/* ---- beginning ------------------------------------------------------------------------------- */

static struct private_data_req request_of(bool greets, bool keyed) {
    struct private_data_req req = {.version_min = 1,
                                   .version_max = 1,
                                   .features = PRIVATE_DATA_FEATURE_SHARED |
                                               PRIVATE_DATA_FEATURE_ANSWERS |
                                               (greets ? PRIVATE_DATA_FEATURE_HANDSHAKE : 0),
                                   .eager_log2 = 10,
                                   .message_log2 = 17,
                                   .depth_in = 4,
                                   .depth_out = 4,
                                   .credits = STRANGER_RECEIVES};
    if (keyed) {
        req.features |= PRIVATE_DATA_FEATURE_HMAC;
        req.key_id = STRANGER_KEY;
    }
    memset(req.session_id, 0x51, sizeof req.session_id);
    /* What was proven once is refused the second time. */
    memcpy(req.nonce, &stranger.runs, sizeof stranger.runs);
    return req;
}

static void dial(enum honest_link link, bool greets, struct fuzz_input *in) {
    uint8_t bytes[PRIVATE_DATA_REQ_BYTES];
    struct private_data_req req = request_of(greets, link == LINK_KEY);
    private_data_req_encode(&req, bytes);
    bool altered = in && fuzz_take(in, 1) > 200;
    if (altered) {
        uint64_t at = fuzz_take(in, 1);
        bytes[at % sizeof bytes] ^= (uint8_t)fuzz_take(in, 1);
    }
    stranger_dial(&stranger, honest->port[link], bytes, sizeof bytes);
    stranger.req = req;
    stranger.trusted = !altered;
    TURN_UNTIL(stranger.up || stranger.refused || honest->asked);
}

static void answer(enum honest_link link, struct fuzz_input *in) {
    honest_dial(honest, stranger.port, link);
    TURN_UNTIL(stranger.id || honest->closed);
    if (!stranger.id)
        return;
    stranger_answer(&stranger, in);
    TURN_UNTIL(stranger.up || stranger.refused || stranger.gone || honest->closed);
}

/* ---- acts ------------------------------------------------------------------------------------ */

static uint64_t deadline_of(uint64_t how) {
    return how < 192 ? 0 : honest->node->env.now_ns(NULL) + (how - 191) * 10000000;
}

static void act_app(enum act act, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    switch ((int)act) {
    case APP_SEND:
        honest_send(honest, how * 8, how & 1, deadline_of(how), how & 2);
        break;
    case APP_SEND_LARGE:
        honest_send(honest, HONEST_RENDEZVOUS - 500 + how * 200, how & 1, 0, false);
        break;
    case APP_REQUEST:
        honest_request(honest, how & 1 ? how * 3 : how * 50, deadline_of(fuzz_take(in, 1)));
        break;
    case APP_KEEP:
        honest->keeps = how & 1;
        break;
    case APP_HANGUP:
        if (honest->session.id)
            sluice_hangup(honest->session, how < 128 ? 0 : how * 1000000);
        break;
    case APP_CLOCK:
        honest_pass(1000ull << how % 26);
        passed = true;
        break;
    }
}

/* It has broken a rule: the session ends for that, unless it was ending already. */
static void prove_ends(const struct session *s, bool was_up) {
    stranger.broke = false;
    turn();
    if (was_up) /* a turn without anything may come before the one that tells */
        TURN_UNTIL(honest->closed || s->state > SESSION_FLUSHING);
}

static void act(enum act act, struct fuzz_input *in) {
    const struct session *s = honest_session(honest);
    bool was_up = honest->up && !honest->closed && s->state == SESSION_UP && !stranger.gone &&
                  stranger.id->qp->state == IBV_QPS_RTS && s->connection->qp &&
                  s->connection->qp->state == IBV_QPS_RTS;
    if (session_say(&stranger, act, in)) {
        if (stranger.broke)
            prove_ends(s, was_up);
        return;
    }
    stranger.calm &= act == ACT_TURN;
    switch ((int)act) {
    case ACT_TURN:
        turn();
        break;
    case DEV_LEAVE:
        if (stranger.id && stranger.up && !stranger.gone) {
            soft_disconnect(stranger.id);
            TURN_UNTIL(stranger.gone || stranger.refused || honest->closed);
        }
        break;
    case DEV_ERROR:
        if (stranger.id && stranger.id->qp)
            soft_modify_qp(stranger.id->qp, &(struct ibv_qp_attr){.qp_state = IBV_QPS_ERR},
                           IBV_QP_STATE);
        break;
    case APP_REPLY:
        honest_reply(honest, in);
        break;
    case APP_FREE:
        honest_free(honest, in);
        break;
    case APP_CANCEL:
        honest_cancel(honest, in);
        break;
    case APP_REACH:
        honest_reach(honest, (uintptr_t)stranger.target, stranger.target_mr->rkey, in);
        break;
    case APP_PLACE:
        honest_place(honest, in);
        break;
    case APP_DECIDE:
        honest_decide(honest, in);
        break;
    default:
        act_app(act, in);
        break;
    }
}

/* ---- end ------------------------------------------------------------------------------------- */

/* Whoever goes first; time passes only where nothing else happens. */
static void part(bool stranger_first) {
    uint64_t limit = soft_now_ns() + LIMIT_NS;
    turn();
    if (stranger_first)
        stranger_leave(&stranger);
    else if (honest->session.id)
        sluice_hangup(honest->session, 0);
    else
        stranger_leave(&stranger);
    for (unsigned calm = 0; !honest_over(honest);) {
        calm = turn_once() ? 0 : calm + 1;
        if (calm == 0)
            continue;
        sched_yield();
        PROVE(soft_now_ns() < limit);
        if (calm % PATIENCE == 0)
            honest_pass(1000000000);
    }
    stranger_leave(&stranger);
    honest_settle(honest);
}

static void say_trace(void) {
    if (trace)
        fprintf(
            stderr,
            "up %d closed %u (%s: %s) messages %u requests %u replies %u sent %u done %u, stranger "
            "heard %u said %u%s\n",
            honest->up, honest->closed, sluice_reason_text((int)honest->reason), honest->why,
            honest->messages, honest->requests, honest->replies, honest->sent, honest->done,
            stranger.heard, stranger.said_count, stranger.trusted ? "" : ", not trusted");
}

static void run(const struct session_menu *menu, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    enum honest_link link = (enum honest_link)(how >> 2) % (menu->greets ? LINKS : LINK_ASK);
    honest = &sides[how & 1];
    honest_begin(honest);
    bool answers = how & 2;
    if (answers) {
        stranger_expect(&stranger);
        answer(link, menu->greets ? in : NULL);
    } else {
        dial(link, menu->greets || link >= LINK_ASK, menu->greets ? in : NULL);
    }
    if (!menu->greets)
        TURN_UNTIL(honest->up);
    else
        TURN_UNTIL(honest->asked || honest_connected(honest));
    while (in->left > 0) {
        uint8_t chosen = menu->acts[fuzz_take(in, 1) % menu->count];
        if (trace)
            fprintf(stderr, "act %u\n", chosen);
        act((enum act)chosen, in);
    }
    turn();
    say_trace();
    /* Nobody is refused who keeps the rules. */
    PROVE(!stranger.trusted || menu->greets ||
          (honest->reason != SLUICE_REASON_PROTOCOL && honest->reason != SLUICE_REASON_CREDITS));
    part(how & 128);
}

static void open_all(void) {
    static const struct session_menu plain = {NULL, 0, false};
    setenv("SLUICE_SOFT_TIMEWAIT_MS", "1", 1);
    honest_heard = heard;
    stranger_open(&stranger);
    honest_open(&sides[0], SLUICE_RENDEZVOUS_READ);
    honest_open(&sides[1], SLUICE_RENDEZVOUS_WRITE);
    for (uint8_t i = 0; i < 16; i++) { /* everything that is made once is made now */
        struct fuzz_input in = {&i, 1};
        run(&plain, &in);
    }
    trace = getenv("SLUICE_FUZZ_TRACE") != NULL;
}

int session_run(const struct session_menu *menu, const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    if (!honest)
        open_all();
    run(menu, &in);
    return 0;
}
