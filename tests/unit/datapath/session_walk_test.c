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
#include "support/session_walk.h"

#include "common/sanitize.h"
#include "soft/ipc/control_lock.h"

enum { STEPS = 250, WALKS = 200, WALKS_SANITIZED = 30 };
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
#define WALKS_HERE WALKS_SANITIZED
#else
#define WALKS_HERE WALKS
#endif

#define GRACE_NS UINT64_C(60000000000)
#define KEEPALIVE_NS UINT64_C(200000000)
#define STEP_NS UINT64_C(5000000)   /* added to the clock while an end is awaited */
#define HURRY_NS UINT64_C(50000000) /* of real time: by then what needs no time has happened */

/* The side sleeps, unless nothing else is done but to wait for it. */
static void turn_awake(unsigned who) {
    if (walk.asleep[who] == 0)
        walk_turn(who);
}

/* ---- a walk ---------------------------------------------------------------------------------------- */

static void choose_plan(void) {
    static const char *const errors[] = {"RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "REM_OP_ERR",
                                         "GENERAL_ERR"};
    static const char *const cm[] = {
        "cm_in=RTU loss",  "cm_in=REP delay=2ms",  "cm_in=REQ delay=1ms",
        "cm_in=DREQ loss", "cm_in=RTU delay=20ms", "id=* after=ESTABLISHED event=ADDR_CHANGE"};
    unsigned at = 1 + (unsigned)(walk_random(2) ? walk_random(80) : walk_random(6));
    switch (walk_random(11)) {
    case 0:
    case 1:
        snprintf(walk.plan_text, sizeof walk.plan_text, "%s",
                 cm[walk_random(sizeof cm / sizeof *cm)]);
        walk.breaks_nothing = strncmp(walk.plan_text, "cm_in=R", 7) == 0;
        break;
    case 2:
        snprintf(walk.plan_text, sizeof walk.plan_text, "qp=* send=%u status=%s", at,
                 errors[walk_random(4)]);
        break;
    case 3:
        snprintf(walk.plan_text, sizeof walk.plan_text, "qp=* recv=%u status=LOC_PROT_ERR", at);
        break;
    case 4:
        snprintf(walk.plan_text, sizeof walk.plan_text,
                 "qp=* send=%u..%u delay=500us; cm_in=RTU loss", at, at + 5);
        walk.breaks_nothing = true;
        break;
    case 5:
        snprintf(walk.plan_text, sizeof walk.plan_text, "call=reg_mr n=%u errno=ENOMEM",
                 1 + at % 8);
        break;
    case 6:
    case 7: /* the listener sees what came and that it broke, and not that the dialer was up */
        walk.sleepers = walk.sleeps_first = walk.unconfirmed = true;
        snprintf(walk.plan_text, sizeof walk.plan_text,
                 "cm_in=RTU loss; qp=* recv=%u status=LOC_PROT_ERR", 2 + at % 6);
        break;
    default:
        walk.plan_text[0] = '\0';
        break;
    }
    walk.plan = walk.plan_text;
}

static void choose_ways(void) {
    walk.keepalive_ns = walk_random(2) ? KEEPALIVE_NS : SLUICE_OFF;
    walk.resume_ns = walk_random(3) || *walk.plan ? 0 : KEEPALIVE_NS; /* what breaks ends */
    walk.stays = walk_random(3) == 0;
    walk.sleepers |= walk_random(2) != 0;
    walk.sleeps_first |= walk_random(2) != 0;
    walk.one_way = !walk.unconfirmed && walk_random(4) == 0;
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < WALK_SESSIONS; i++) {
            struct walk_end *end = &walk.ends[who][i];
            end->tags = (enum walk_tags)walk_random(TAGS_KINDS);
            end->sizes = (enum walk_sizes)walk_random(SIZES_KINDS);
            end->talks = walk_random(4) != 0;
            end->silent = walk_random(4) == 0;
            if (walk.unconfirmed) {
                end->tags = TAGS_ALL;
                end->sizes = SIZES_SMALL;
                end->silent = false;
            }
            if (!walk.one_way)
                continue;
            end->tags = TAGS_NONE;
            end->sizes = walk_random(2) ? SIZES_MIXED : SIZES_SMALL_AND_LARGE;
            end->talks = false;
            end->silent = who == 0;
        }
}

static void open_walk(void) {
    const uint32_t credits[] = {0, 4, 8, 64};
    const sluice_node_options node = {.log = log_nothing,
                                      .rendezvous_bytes = WALK_LARGE,
                                      .eager_bytes = walk_random(2) ? 0 : 1024,
                                      .rendezvous = walk_random(2) ? SLUICE_RENDEZVOUS_AUTO
                                                                   : SLUICE_RENDEZVOUS_WRITE};
    memset(&walk.p, 0, sizeof walk.p);
    pair_clock = pair_frozen = pair_step = 0;
    pair_open_side(&walk.p.a, &node);
    pair_open_side(&walk.p.b, &node);
    for (unsigned i = 0; i < WALK_SESSIONS; i++) {
        const sluice_link_options link = {
            .arg = (void *)(uintptr_t)i,
            .keepalive_ns = walk.keepalive_ns,
            .resume_ns = walk.resume_ns,
            .credits = credits[walk_random(4)],
            .window_messages = walk_random(2) ? 0 : 1 + (uint32_t)walk_random(8),
            .window_bytes = walk_random(2) ? 0 : 1 + walk_random(40000),
            .requests = walk_random(2) ? 0 : 1 + (uint32_t)walk_random(4)};
        pair_listen(&walk.p, &link);
        walk.listeners[i] = walk.p.listener;
        memcpy(walk.addresses[i], walk.p.address, sizeof walk.addresses[i]);
    }
    if (*walk.plan)
        fault_plan(walk.plan);
}

static void dial(unsigned i) {
    struct walk_end *end = &walk.ends[1][i];
    const sluice_link_options link = {
        .arg = (void *)(uintptr_t)i,
        .keepalive_ns = walk.keepalive_ns,
        .resume_ns = walk.resume_ns,
        .window_messages = walk.one_way || walk_random(2) ? 0 : 1 + (uint32_t)walk_random(8),
        .window_bytes = walk.one_way || !walk_random(2) ? 1 + walk_random(40000) : 0};
    memcpy(walk.p.address, walk.addresses[i], sizeof walk.p.address);
    pair_dial(&walk.p, &link);
    end->handle = walk.p.b.session;
    end->dialed = true;
}

static void hang_up(struct walk_end *end, uint64_t grace_ns) {
    if (end->closed || !(end->up || end->dialed))
        return;
    /* Once more with less time leaves less. */
    end->gracious = end->up && grace_ns == GRACE_NS && (!end->hungup || end->gracious);
    end->hungup = true;
    sluice_hangup(end->handle, grace_ns);
}

static bool may_send(const struct walk_end *end) {
    return end->up && !end->closed && !end->hungup && !end->waits && !end->silent;
}

static void send_some(unsigned who, unsigned i, unsigned most) {
    for (unsigned n = 1 + (unsigned)walk_random(most);
         n > 0 && may_send(&walk.ends[who][i]) && walk_send(who, i); n--)
        ;
}

static void act(unsigned who, unsigned i) {
    struct walk_end *end = &walk.ends[who][i];
    if (who == 1 && !end->dialed) {
        dial(i);
        return;
    }
    switch (walk_random(32)) {
    case 0:
        if (!walk.stays)
            hang_up(end, walk_random(2) ? GRACE_NS : 0);
        break;
    case 1:
    case 2:
    case 3:
        if (may_send(end) && end->talks)
            walk_ask(who, i);
        break;
    case 4:
    case 5:
    case 6:
        walk_answer(who, i);
        break;
    case 7:
        walk_drop_kept(end);
        break;
    case 8:
    case 9:
    case 10:
        for (unsigned n = (unsigned)walk_random(20); n > 0; n--)
            turn_awake(who);
        break;
    case 11:
        if (walk.sleepers && walk.asleep[!who] == 0)
            walk.asleep[who] = (unsigned)walk_random(60);
        break;
    default:
        send_some(who, i, 8);
        break;
    }
}

static bool no_end_waits(void) {
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < WALK_SESSIONS; i++)
            if (walk.ends[who][i].waits)
                return false;
    return true;
}

static bool all_dials_are_decided(void) {
    for (unsigned i = 0; i < WALK_SESSIONS; i++)
        if (walk.ends[1][i].dialed && !walk.ends[1][i].up && !walk.ends[1][i].closed)
            return false;
    return true;
}

static bool a_dial_is_up(void) {
    bool up = all_dials_are_decided();
    for (unsigned i = 0; i < WALK_SESSIONS; i++)
        up |= walk.ends[1][i].up;
    return up;
}

static bool all_are_closed(void) {
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < WALK_SESSIONS; i++)
            if ((walk.ends[who][i].up || walk.ends[who][i].dialed) && !walk.ends[who][i].closed)
                return false;
    return true;
}

/* Both sides go on, hand back what they hold, and answer. Time is added when nothing comes without it. */
static void go_on_until(bool (*is_so)(void), const char *what) {
    uint64_t start = env_now(&env_default);
    for (unsigned n = 0; !is_so(); n++) {
        for (unsigned who = 0; who < 2; who++) {
            walk_turn(who);
            for (unsigned i = 0; i < WALK_SESSIONS; i++) {
                walk_drop_kept(&walk.ends[who][i]);
                walk_answer(who, i);
            }
        }
        if (n % 16 == 15)
            sched_yield();
        uint64_t passed = env_now(&env_default) - start;
        if (passed > HURRY_NS && n % 64 == 63 && !pair_frozen)
            pair_clock += STEP_NS;
        if (passed > PAIR_LIMIT_NS) {
            WALK_WRONG("never: %s", what);
            fail_msg("never: %s", what);
        }
    }
}

static void count(const struct walk_end *from, const struct walk_end *to) {
    walk_seen.sent += from->sent;
    walk_seen.delivered += to->received;
    walk_seen.answers += from->answered;
    walk_seen.ups += from->up;
    walk_seen.broken += from->up && from->reason != SLUICE_REASON_LOCAL_CLOSE &&
                        from->reason != SLUICE_REASON_PEER_CLOSE;
    for (unsigned k = 0; k < from->sent; k++)
        walk_seen.acknowledged += from->outcome[k] == 0;
}

/* Of messages and requests the next one is large and was not done, or may be. */
static bool large_in_front(unsigned who, unsigned i) {
    const struct walk_end *from = &walk.ends[who][i], *to = &walk.ends[!who][i];
    unsigned lost = to->received;
    bool large = from->outcome[lost] != 0 && walk_size_of(who, i, lost) > WALK_LARGE;
    for (unsigned k = to->heard; k < from->asked; k++)
        large |= from->is_large[k];
    return large;
}

/*
 * Who was told that a message was sent was told the truth: it is delivered, but behind a large one that was not done
 * when the session ended.
 */
static void judge(unsigned who, unsigned i) {
    const struct walk_end *from = &walk.ends[who][i], *to = &walk.ends[!who][i];
    unsigned lost = to->received;
    count(from, to);
    if (from->gracious && !to->hungup && !*walk.plan && lost != from->sent)
        WALK_WRONG("session %u was hung up with time enough, and %u of %u came (%s / %s)", i, lost,
                   from->sent, sluice_reason_text(from->reason), sluice_reason_text(to->reason));
    if (walk.breaks_nothing && who == 1 && from->sent > 0 && to->reason == SLUICE_REASON_TIMEOUT)
        WALK_WRONG("session %u was never confirmed, and %u messages came by it", i, lost);
    if (to->hungup || lost == from->sent || large_in_front(who, i))
        return;
    for (unsigned k = lost; k < from->sent; k++)
        if (from->outcome[k] == 0)
            WALK_WRONG(
                "message %u of %u of session %u was acknowledged, %u came, the next of %zu bytes "
                "with outcome %d (%s / %s)",
                k, from->sent, i, lost, walk_size_of(who, i, lost), from->outcome[lost],
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
            walk_turn(k % 2);
    }
}

/* The other side said nothing for long: only where it was broken, or slept. */
static void judge_silence(void) {
    for (unsigned who = 0; who < 2; who++)
        for (unsigned i = 0; i < WALK_SESSIONS; i++)
            if (walk.ends[who][i].closed && walk.ends[who][i].reason == SLUICE_REASON_KEEPALIVE &&
                !*walk.plan)
                WALK_WRONG("nothing was heard of session %u, and it was there", i);
}

static void one_walk(uint64_t seed) {
    memset(&walk, 0, sizeof walk);
    walk.seed = walk.random = seed;
    choose_plan();
    choose_ways();
    open_walk();
    for (unsigned i = 0; i < WALK_SESSIONS; i++)
        if (walk_random(4) != 0)
            dial(i);
    if (walk.sleepers &&
        walk.sleeps_first) { /* the listener, before it sees that the dialer is up */
        go_on_until(a_dial_is_up, "UP or CLOSED of a dial");
        walk.asleep[0] = 30 + (unsigned)walk_random(60);
    } else if (walk_random(4) != 0) {
        go_on_until(all_dials_are_decided, "UP or CLOSED of a dial");
    }
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned who = (unsigned)walk_random(2);
        if (walk.asleep[who] == 0)
            act(who, (unsigned)walk_random(WALK_SESSIONS));
        for (unsigned n = (unsigned)walk_random(4); n > 0; n--)
            turn_awake((unsigned)walk_random(2));
        for (who = 0; who < 2; who++)
            walk.asleep[who] -= walk.asleep[who] > 0;
        if (walk_random(8) == 0)
            sched_yield(); /* the device has a thread of its own */
    }
    /* What is acknowledged at all is so within a millisecond. */
    pair_frozen = *walk.plan || walk.resume_ns > 0 ? 0 : env_now(&env_default);
    go_on_until(no_end_waits, "WRITABLE or CLOSED behind EAGAIN");
    pair_frozen = 0;
    if (walk.stays || walk_random(4) == 0)
        idle();
    for (unsigned i = 0; i < WALK_SESSIONS;
         i++) { /* one of them; what never came up ends by itself */
        unsigned who = (unsigned)walk_random(2);
        send_some(who, i, 30); /* of which much is on its way then */
        hang_up(&walk.ends[who][i], GRACE_NS);
    }
    for (unsigned i = 0; i < WALK_SESSIONS; i++)
        if (!walk.ends[0][i].up || walk.ends[1][i].closed)
            hang_up(&walk.ends[1][i], GRACE_NS);
    go_on_until(all_are_closed, "CLOSED of every session");
    judge_silence();
    for (unsigned i = 0; i < WALK_SESSIONS; i++) {
        judge(0, i);
        judge(1, i);
    }
    fault_clear();
    sluice_close(walk.p.b.node, 0);
    sluice_close(walk.p.a.node, 0);
}

static uint64_t number_of(const char *name, uint64_t usual) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 10) : usual;
}

TEST(what_sessions_tell_is_true_whatever_happens) {
    uint64_t first = number_of("SLUICE_TEST_SEED", 1);
    uint64_t count = number_of("SLUICE_TEST_SEEDS", WALKS_HERE);
    for (uint64_t i = 0; i < count; i++)
        one_walk(first + i);
    print_message(
        "%u ends up, %u broke; %u sent, %u acknowledged, %u delivered; %u answers; EAGAIN %u\n",
        walk_seen.ups, walk_seen.broken, walk_seen.sent, walk_seen.acknowledged,
        walk_seen.delivered, walk_seen.answers, walk_seen.waits);
    if (count < WALKS_SANITIZED)
        return;
    assert_true(walk_seen.ups > 2 * count && walk_seen.broken > count / 8);
    assert_true(walk_seen.delivered > 20 * count && walk_seen.acknowledged > 10 * count);
    assert_true(walk_seen.answers > count && walk_seen.waits > count / 4);
}
