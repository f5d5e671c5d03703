/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_walk_test.c - random walks of whole sessions between two nodes, under random faults of the device, judged by
 * their history: what was accepted, what was told of it, what was delivered.
 *
 *   what is delivered is what was accepted: whole, in order, each once, after UP and before CLOSED
 *   what was told to be sent is delivered, unless the receiver hung up itself, or a large message in front of it was
 *   not done
 *   each tagged send and each request has one outcome, before CLOSED
 *   EAGAIN is followed by WRITABLE, or by CLOSED, and where nothing is broken no time has to pass for that: what
 *   sessions say to each other now and then may help one that stands still
 *   who hangs up with time enough has all delivered that was accepted, if nothing breaks it
 *   two sides that go on and have nothing to say to each other stay connected
 *   a session whose confirmation alone is lost comes up by what its dialer sends
 *   each session that was dialed, or came up, ends with one CLOSED
 *
 * What walks try differs between them, and between the ends of one: a thing of which all do a little is done by none for
 * long. Some ends tag nothing, so that only what the session sends itself may complete; some send only small
 * messages and now and then a large one; a side sleeps while the other one goes on.
 *
 * SLUICE_TEST_SEED=N begins with that walk, SLUICE_TEST_SEEDS=N makes so many; 100,000 of them are a night's work.
 */
#include "support/fault.h"
#include "support/log.h"
#include "support/pair.h"

#include "base/sanitize.h"
#include "soft/ipc/control_lock.h"

enum {
    SESSIONS = 3,
    MESSAGES = 512, /* of one direction */
    REQUESTS = 64,
    KEPT = 4,
    LARGE = 8000, /* nothing above it goes in one frame */
    STEPS = 250,
    WALKS = 200,
    WALKS_SANITIZED = 30
};
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
#define WALKS_HERE WALKS_SANITIZED
#else
#define WALKS_HERE WALKS
#endif
enum { NONE = 1 }; /* no outcome yet: no status is positive */

#define GRACE_NS UINT64_C(60000000000)
#define KEEPALIVE_NS UINT64_C(200000000)
#define STEP_NS UINT64_C(5000000)   /* added to the clock while an end is awaited */
#define HURRY_NS UINT64_C(50000000) /* of real time: by then what needs no time has happened */

/* What an end does, for a whole walk. */
enum tags { TAGS_NONE, TAGS_HALF, TAGS_ALL, TAGS_KINDS };
enum sizes { SIZES_MIXED, SIZES_SMALL, SIZES_SMALL_AND_LARGE, SIZES_KINDS };

/* One end of a session. */
struct end {
    enum tags tags;
    enum sizes sizes;
    bool talks;  /* asks */
    bool silent; /* sends nothing of its own */
    sluice_session handle;
    bool dialed, up, closed, hungup, waits;
    bool gracious; /* it hung up with time enough */
    sluice_reason reason;
    unsigned sent, told, received; /* accepted; tagged outcomes; delivered */
    int8_t outcome[MESSAGES];      /* of a tagged send: 0, a status or NONE; untagged: NONE */
    bool tagged[MESSAGES];
    unsigned asked, answered; /* requests of mine */
    unsigned heard;           /* of the peer */
    bool has_answer[REQUESTS], is_large[REQUESTS];
    uint64_t tokens[REQUESTS]; /* of requests that are not answered yet */
    unsigned token_count;
    sluice_msg *kept[KEPT];
    unsigned kept_count;
};

static struct walk {
    uint64_t seed, random;
    struct pair p;
    sluice_listener listeners[SESSIONS];
    char addresses[SESSIONS][64];
    struct end ends[2][SESSIONS]; /* of a, of b */
    uint64_t keepalive_ns;        /* off, no word of its own helps what stands still */
    bool sleepers;                /* sides sleep now and then */
    bool unconfirmed;             /* a listener's session breaks before it is confirmed */
    bool breaks_nothing;          /* the plan loses and delays what is made up for */
    bool stays;                   /* no side hangs up before all was tried */
    bool sleeps_first;            /* the listener, when a dialer is up */
    bool one_way;                 /* only dialers send, tag nothing, and have a window of bytes */
    unsigned asleep[2];           /* steps that a side has still to sleep */
    const char *plan;
    char plan_text[256];
} w;

/* Of all walks: that something was tried at all. */
static struct { unsigned sent, acknowledged, delivered, answers, waits, ups, broken; } seen;

static struct side *side_of(unsigned who) {
    return who == 0 ? &w.p.a : &w.p.b;
}

static uint64_t next(uint64_t below) { /* splitmix64 */
    uint64_t z = (w.random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

#define WRONG(...)                                                                                 \
    do {                                                                                           \
        print_error("SLUICE_TEST_SEED=%llu plan \"%s\"\n", (unsigned long long)w.seed, w.plan);    \
        verdict_wrong_data(__VA_ARGS__);                                                           \
    } while (0)

/* ---- messages ------------------------------------------------------------------------------------ */

static size_t size_of(unsigned who, unsigned i, unsigned number) {
    uint64_t z = (w.seed * 31 + who * 7 + i) * UINT64_C(0x9e3779b97f4a7c15) + number * 2654435761u;
    enum sizes sizes = w.ends[who][i].sizes;
    z ^= z >> 29;
    if (sizes == SIZES_SMALL || (sizes == SIZES_SMALL_AND_LARGE && z % 16 > 1))
        return z / 16 % 120;
    switch (z % 16) {
    case 0:
        return 100000 + z / 16 % 300000;
    case 1:
    case 2:
        return 8000 + z / 16 % 30000;
    case 3:
    case 4:
    case 5:
        return 1000 + z / 16 % 7000;
    default:
        return z / 16 % 120;
    }
}

static unsigned pattern_of(unsigned who, unsigned i, unsigned number) {
    return (unsigned)w.seed + who * 85 + i * 31 + number;
}

static void name_limit(struct end *end, int status) {
    end->waits |= status == SLUICE_EAGAIN;
    seen.waits += status == SLUICE_EAGAIN;
    if (status != SLUICE_EAGAIN && status != SLUICE_ECLOSED)
        WRONG("a send is refused with %s", sluice_strerror(status));
}

static bool send_one(unsigned who, unsigned i) {
    struct end *end = &w.ends[who][i];
    unsigned number = end->sent;
    sluice_send_options o = {.size = sizeof o, .flags = next(8) ? 0 : SLUICE_MORE};
    sluice_msg *msg;
    if (number == MESSAGES || sluice_alloc(side_of(who)->node, size_of(who, i, number), &msg) != 0)
        return false;
    pair_fill(msg, pattern_of(who, i, number));
    end->tagged[number] = end->tags == TAGS_ALL || (end->tags == TAGS_HALF && next(2) != 0);
    o.tag = end->tagged[number] ? number + 1 : 0;
    end->outcome[number] = NONE;
    int status = sluice_send(end->handle, msg, &o);
    if (status == 0) {
        end->sent++;
        return true;
    }
    sluice_free(msg);
    name_limit(end, status);
    return false;
}

static void ask(unsigned who, unsigned i) {
    struct end *end = &w.ends[who][i];
    sluice_send_options o = {.size = sizeof o, .tag = end->asked + 1};
    bool large = next(4) == 0;
    sluice_msg *msg;
    if (end->asked == REQUESTS || sluice_alloc(side_of(who)->node, large ? 20000 : 40, &msg) != 0)
        return;
    end->is_large[end->asked] = large;
    int status = sluice_request(end->handle, msg, &o);
    if (status == 0) {
        end->asked++;
        return;
    }
    sluice_free(msg);
    name_limit(end, status);
}

static void answer_one(unsigned who, unsigned i) {
    struct end *end = &w.ends[who][i];
    sluice_msg *msg;
    if (end->token_count == 0)
        return;
    uint64_t token = end->tokens[--end->token_count];
    if (next(3) == 0 || sluice_alloc(side_of(who)->node, next(4) ? 10 : 30000, &msg) != 0) {
        (void)sluice_reply_error(end->handle, token, 7);
        return;
    }
    if (sluice_reply(end->handle, token, msg) != 0)
        sluice_free(msg);
}

static void drop_kept(struct end *end) {
    while (end->kept_count > 0)
        sluice_free(end->kept[--end->kept_count]);
}

/* ---- what is told ---------------------------------------------------------------------------------- */

static void arrived(unsigned who, unsigned i, const sluice_event *event) {
    struct end *end = &w.ends[who][i];
    const struct end *from = &w.ends[!who][i];
    unsigned number = end->received++;
    if (number >= from->sent)
        WRONG("a message that was not sent: number %u of session %u", number, i);
    if (!pair_check(event->msg, size_of(!who, i, number), pattern_of(!who, i, number)))
        WRONG("message %u of session %u is another one", number, i);
    if (end->kept_count < KEPT && next(16) == 0) {
        sluice_keep(event->msg);
        end->kept[end->kept_count++] = event->msg;
    }
}

static void told_sent(struct end *end, unsigned i, const sluice_event *event) {
    uint64_t number = event->tag - 1;
    if (number >= end->sent || !end->tagged[number] || end->outcome[number] != NONE)
        WRONG("an outcome for nothing: tag %llu of session %u", (unsigned long long)event->tag, i);
    end->outcome[number] = (int8_t)event->status;
    end->told++;
}

static void told_closed(struct end *end, unsigned i, const sluice_event *event) {
    unsigned tagged = 0;
    for (unsigned k = 0; k < end->sent; k++)
        tagged += end->tagged[k];
    if (end->closed)
        WRONG("session %u is closed twice", i);
    if (end->told != tagged || end->answered != end->asked)
        WRONG("session %u closed (%s) with %u of %u outcomes, %u of %u answers", i,
              sluice_reason_text(event->reason), end->told, tagged, end->answered, end->asked);
    end->closed = true;
    end->waits = false;
    end->token_count = 0;
    end->reason = (sluice_reason)event->reason;
    drop_kept(end);
}

static void take(unsigned who, const sluice_event *event) {
    unsigned i = (unsigned)(uintptr_t)event->arg;
    struct end *end = &w.ends[who][i];
    if (end->closed)
        WRONG("%s behind CLOSED of session %u", sluice_event_name(event->type), i);
    if (!end->up && event->type != SLUICE_UP && event->type != SLUICE_CLOSED)
        WRONG("%s before UP of session %u", sluice_event_name(event->type), i);
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        end->up = true;
        end->handle = event->session;
        break;
    case SLUICE_CLOSED:
        told_closed(end, i, event);
        break;
    case SLUICE_MESSAGE:
        arrived(who, i, event);
        break;
    case SLUICE_SENT:
        told_sent(end, i, event);
        break;
    case SLUICE_WRITABLE:
        end->waits = false;
        break;
    case SLUICE_REQUEST:
        assert_true(end->token_count < REQUESTS);
        end->tokens[end->token_count++] = event->token;
        end->heard++;
        break;
    case SLUICE_REPLY:
        must_data(event->tag >= 1 && event->tag <= end->asked);
        if (end->has_answer[event->tag - 1])
            WRONG("two answers for request %llu", (unsigned long long)event->tag);
        end->has_answer[event->tag - 1] = true;
        end->answered++;
        break;
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
    case SLUICE_DONE:
    case SLUICE_NOTIFIED:
        fail_msg("%s was not asked for", sluice_event_name(event->type));
    }
}

static void turn(unsigned who) {
    struct side *side = side_of(who);
    sluice_event events[16];
    cm_progress(side->node->cm, 0);
    int n = sluice_poll(side->loop, events, (int)(1 + next(16)), 0);
    assert_true(n >= 0);
    for (int k = 0; k < n; k++)
        take(who, &events[k]);
}

/* The side sleeps, unless nothing else is done but to wait for it. */
static void turn_awake(unsigned who) {
    if (w.asleep[who] == 0)
        turn(who);
}

/* ---- a walk ---------------------------------------------------------------------------------------- */

static void choose_plan(void) {
    static const char *const errors[] = {"RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_OP_ERR",
                                         "GENERAL_ERR"};
    static const char *const cm[] = {
        "cm_in=RTU loss",  "cm_in=REP delay=2ms",  "cm_in=REQ delay=1ms",
        "cm_in=DREQ loss", "cm_in=RTU delay=20ms", "id=* after=ESTABLISHED event=ADDR_CHANGE"};
    unsigned at = 1 + (unsigned)(next(2) ? next(80) : next(6));
    switch (next(11)) {
    case 0:
    case 1:
        snprintf(w.plan_text, sizeof w.plan_text, "%s", cm[next(sizeof cm / sizeof *cm)]);
        w.breaks_nothing = strncmp(w.plan_text, "cm_in=R", 7) == 0;
        break;
    case 2:
        snprintf(w.plan_text, sizeof w.plan_text, "qp=* send=%u status=%s", at, errors[next(4)]);
        break;
    case 3:
        snprintf(w.plan_text, sizeof w.plan_text, "qp=* recv=%u status=LOC_PROT_ERR", at);
        break;
    case 4:
        snprintf(w.plan_text, sizeof w.plan_text, "qp=* send=%u..%u delay=500us; cm_in=RTU loss",
                 at, at + 5);
        w.breaks_nothing = true;
        break;
    case 5:
        snprintf(w.plan_text, sizeof w.plan_text, "call=reg_mr n=%u errno=ENOMEM", 1 + at % 8);
        break;
    case 6:
    case 7: /* the listener sees what came and that it broke, and not that the dialer was up */
        w.sleepers = w.sleeps_first = w.unconfirmed = true;
        snprintf(w.plan_text, sizeof w.plan_text,
                 "cm_in=RTU loss; qp=* recv=%u status=LOC_PROT_ERR", 2 + at % 6);
        break;
    default:
        w.plan_text[0] = '\0';
        break;
    }
    w.plan = w.plan_text;
}

static void choose_ways(void) {
    w.keepalive_ns = next(2) ? KEEPALIVE_NS : SLUICE_OFF;
    w.stays = next(3) == 0;
    w.sleepers |= next(2) != 0;
    w.sleeps_first |= next(2) != 0;
    w.one_way = !w.unconfirmed && next(4) == 0;
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < SESSIONS; i++) {
            struct end *end = &w.ends[who][i];
            end->tags = (enum tags)next(TAGS_KINDS);
            end->sizes = (enum sizes)next(SIZES_KINDS);
            end->talks = next(2) != 0;
            end->silent = next(4) == 0;
            if (w.unconfirmed) {
                end->tags = TAGS_ALL;
                end->sizes = SIZES_SMALL;
                end->silent = false;
            }
            if (!w.one_way)
                continue;
            end->tags = TAGS_NONE;
            end->sizes = next(2) ? SIZES_MIXED : SIZES_SMALL_AND_LARGE;
            end->talks = false;
            end->silent = who == 0;
        }
}

static void open_walk(void) {
    const uint32_t credits[] = {0, 4, 8, 64};
    const sluice_node_options node = {.log = log_nothing,
                                      .rendezvous_bytes = LARGE,
                                      .eager_bytes = next(2) ? 0 : 1024,
                                      .rendezvous = next(2) ? SLUICE_RENDEZVOUS_AUTO
                                                            : SLUICE_RENDEZVOUS_WRITE};
    memset(&w.p, 0, sizeof w.p);
    pair_clock = pair_frozen = pair_step = 0;
    pair_open_side(&w.p.a, &node);
    pair_open_side(&w.p.b, &node);
    for (unsigned i = 0; i < SESSIONS; i++) {
        const sluice_link_options link = {.arg = (void *)(uintptr_t)i,
                                          .keepalive_ns = w.keepalive_ns,
                                          .credits = credits[next(4)],
                                          .window_messages = next(2) ? 0 : 1 + (uint32_t)next(8),
                                          .window_bytes = next(2) ? 0 : 1 + next(40000),
                                          .requests = next(2) ? 0 : 1 + (uint32_t)next(4)};
        pair_listen(&w.p, &link);
        w.listeners[i] = w.p.listener;
        memcpy(w.addresses[i], w.p.address, sizeof w.addresses[i]);
    }
    if (*w.plan)
        fault_plan(w.plan);
}

static void dial(unsigned i) {
    struct end *end = &w.ends[1][i];
    const sluice_link_options link = {.arg = (void *)(uintptr_t)i,
                                      .keepalive_ns = w.keepalive_ns,
                                      .window_messages =
                                          w.one_way || next(2) ? 0 : 1 + (uint32_t)next(8),
                                      .window_bytes = w.one_way || !next(2) ? 1 + next(40000) : 0};
    memcpy(w.p.address, w.addresses[i], sizeof w.p.address);
    pair_dial(&w.p, &link);
    end->handle = w.p.b.session;
    end->dialed = true;
}

static void hang_up(struct end *end, uint64_t grace_ns) {
    if (end->closed || !(end->up || end->dialed))
        return;
    /* Once more with less time leaves less. */
    end->gracious = end->up && grace_ns == GRACE_NS && (!end->hungup || end->gracious);
    end->hungup = true;
    sluice_hangup(end->handle, grace_ns);
}

static bool may_send(const struct end *end) {
    return end->up && !end->closed && !end->hungup && !end->waits && !end->silent;
}

static void send_some(unsigned who, unsigned i, unsigned most) {
    for (unsigned n = 1 + (unsigned)next(most);
         n > 0 && may_send(&w.ends[who][i]) && send_one(who, i); n--)
        ;
}

static void act(unsigned who, unsigned i) {
    struct end *end = &w.ends[who][i];
    if (who == 1 && !end->dialed) {
        dial(i);
        return;
    }
    switch (next(32)) {
    case 0:
        if (!w.stays)
            hang_up(end, next(2) ? GRACE_NS : 0);
        break;
    case 1:
    case 2:
    case 3:
        if (may_send(end) && end->talks)
            ask(who, i);
        break;
    case 4:
    case 5:
    case 6:
        answer_one(who, i);
        break;
    case 7:
        drop_kept(end);
        break;
    case 8:
    case 9:
    case 10:
        for (unsigned n = (unsigned)next(20); n > 0; n--)
            turn_awake(who);
        break;
    case 11:
        if (w.sleepers && w.asleep[!who] == 0)
            w.asleep[who] = (unsigned)next(60);
        break;
    default:
        send_some(who, i, 8);
        break;
    }
}

static bool nobody_waits(void) {
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < SESSIONS; i++)
            if (w.ends[who][i].waits)
                return false;
    return true;
}

static bool all_dials_are_decided(void) {
    for (unsigned i = 0; i < SESSIONS; i++)
        if (w.ends[1][i].dialed && !w.ends[1][i].up && !w.ends[1][i].closed)
            return false;
    return true;
}

static bool a_dial_is_up(void) {
    bool up = all_dials_are_decided();
    for (unsigned i = 0; i < SESSIONS; i++)
        up |= w.ends[1][i].up;
    return up;
}

static bool all_are_closed(void) {
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < SESSIONS; i++)
            if ((w.ends[who][i].up || w.ends[who][i].dialed) && !w.ends[who][i].closed)
                return false;
    return true;
}

/* Both sides go on, hand back what they hold, and answer. Time is added when nothing comes without it. */
static void go_on_until(bool (*is_so)(void), const char *what) {
    uint64_t start = env_now(&env_default);
    for (unsigned n = 0; !is_so(); n++) {
        for (unsigned who = 0; who < 2; who++) {
            turn(who);
            for (unsigned i = 0; i < SESSIONS; i++) {
                drop_kept(&w.ends[who][i]);
                answer_one(who, i);
            }
        }
        if (n % 16 == 15)
            sched_yield();
        uint64_t passed = env_now(&env_default) - start;
        if (passed > HURRY_NS && n % 64 == 63 && !pair_frozen)
            pair_clock += STEP_NS;
        if (passed > PAIR_LIMIT_NS) {
            WRONG("never: %s", what);
            fail_msg("never: %s", what);
        }
    }
}

static void count(const struct end *from, const struct end *to) {
    seen.sent += from->sent;
    seen.delivered += to->received;
    seen.answers += from->answered;
    seen.ups += from->up;
    seen.broken += from->up && from->reason != SLUICE_REASON_LOCAL_CLOSE &&
                   from->reason != SLUICE_REASON_PEER_CLOSE;
    for (unsigned k = 0; k < from->sent; k++)
        seen.acknowledged += from->outcome[k] == 0;
}

/* Of messages and requests the next one is large and was not done, or may be. */
static bool large_in_front(unsigned who, unsigned i) {
    const struct end *from = &w.ends[who][i], *to = &w.ends[!who][i];
    unsigned lost = to->received;
    bool large = from->outcome[lost] != 0 && size_of(who, i, lost) > LARGE;
    for (unsigned k = to->heard; k < from->asked; k++)
        large |= from->is_large[k];
    return large;
}

/*
 * Who was told that a message was sent was told the truth: it is delivered, but behind a large one that was not done
 * when the session ended.
 */
static void judge(unsigned who, unsigned i) {
    const struct end *from = &w.ends[who][i], *to = &w.ends[!who][i];
    unsigned lost = to->received;
    count(from, to);
    if (from->gracious && !to->hungup && !*w.plan && lost != from->sent)
        WRONG("session %u was hung up with time enough, and %u of %u came (%s / %s)", i, lost,
              from->sent, sluice_reason_text(from->reason), sluice_reason_text(to->reason));
    if (w.breaks_nothing && who == 1 && from->sent > 0 && to->reason == SLUICE_REASON_TIMEOUT)
        WRONG("session %u was never confirmed, and %u messages came by it", i, lost);
    if (to->hungup || lost == from->sent || large_in_front(who, i))
        return;
    for (unsigned k = lost; k < from->sent; k++)
        if (from->outcome[k] == 0)
            WRONG("message %u of %u of session %u was acknowledged, %u came, the next of %zu bytes "
                  "with outcome %d (%s / %s)",
                  k, from->sent, i, lost, size_of(who, i, lost), from->outcome[lost],
                  sluice_reason_text(from->reason), sluice_reason_text(to->reason));
}

/*
 * Some intervals in which both sides go on, and nothing is sent but what the sessions themselves say. Only the clock of the
 * nodes goes so fast: a thread of the device that lost its CPU while it looked at a queue pair is waited for.
 */
static void idle(void) {
    for (unsigned n = 0; n < 5 * 16; n++) {
        pair_clock += KEEPALIVE_NS / 16;
        soft_lock();
        soft_unlock();
        for (unsigned k = 0; k < 4; k++)
            turn(k % 2);
    }
}

/* The other side said nothing for long: only where it was broken, or slept. */
static void judge_silence(void) {
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < SESSIONS; i++)
            if (w.ends[who][i].closed && w.ends[who][i].reason == SLUICE_REASON_KEEPALIVE &&
                !*w.plan)
                WRONG("nothing was heard of session %u, and it was there", i);
}

static void walk(uint64_t seed) {
    memset(&w, 0, sizeof w);
    w.seed = w.random = seed;
    choose_plan();
    choose_ways();
    open_walk();
    for (unsigned i = 0; i < SESSIONS; i++)
        if (next(4) != 0)
            dial(i);
    if (w.sleepers && w.sleeps_first) { /* the listener, before it sees that the dialer is up */
        go_on_until(a_dial_is_up, "UP or CLOSED of a dial");
        w.asleep[0] = 30 + (unsigned)next(60);
    } else if (next(4) != 0) {
        go_on_until(all_dials_are_decided, "UP or CLOSED of a dial");
    }
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned who = (unsigned)next(2);
        if (w.asleep[who] == 0)
            act(who, (unsigned)next(SESSIONS));
        for (unsigned n = (unsigned)next(4); n > 0; n--)
            turn_awake((unsigned)next(2));
        for (who = 0; who < 2; who++)
            w.asleep[who] -= w.asleep[who] > 0;
        if (next(8) == 0)
            sched_yield(); /* the device has a thread of its own */
    }
    pair_frozen = *w.plan ? 0 : env_now(&env_default);
    go_on_until(nobody_waits, "WRITABLE or CLOSED behind EAGAIN");
    pair_frozen = 0;
    if (w.stays || next(4) == 0)
        idle();
    for (unsigned i = 0; i < SESSIONS; i++) { /* one of them; what never came up ends by itself */
        unsigned who = (unsigned)next(2);
        send_some(who, i, 30); /* of which much is on its way then */
        hang_up(&w.ends[who][i], GRACE_NS);
    }
    for (unsigned i = 0; i < SESSIONS; i++)
        if (!w.ends[0][i].up || w.ends[1][i].closed)
            hang_up(&w.ends[1][i], GRACE_NS);
    go_on_until(all_are_closed, "CLOSED of every session");
    judge_silence();
    for (unsigned i = 0; i < SESSIONS; i++) {
        judge(0, i);
        judge(1, i);
    }
    fault_clear();
    sluice_close(w.p.b.node, 0);
    sluice_close(w.p.a.node, 0);
}

static uint64_t number_of(const char *name, uint64_t usual) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 10) : usual;
}

TEST(what_sessions_tell_is_true_whatever_happens) {
    uint64_t first = number_of("SLUICE_TEST_SEED", 1);
    uint64_t count = number_of("SLUICE_TEST_SEEDS", WALKS_HERE);
    for (uint64_t i = 0; i < count; i++)
        walk(first + i);
    print_message(
        "%u ends up, %u broke; %u sent, %u acknowledged, %u delivered; %u answers; EAGAIN %u\n",
        seen.ups, seen.broken, seen.sent, seen.acknowledged, seen.delivered, seen.answers,
        seen.waits);
    if (count < WALKS_SANITIZED)
        return;
    assert_true(seen.ups > 2 * count && seen.broken > count / 8);
    assert_true(seen.delivered > 20 * count && seen.acknowledged > 10 * count);
    assert_true(seen.answers > count && seen.waits > count / 4);
}
