/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* session_walk.c - see session_walk.h. */
#include "support/session_walk.h"

struct walk walk;
struct walk_seen walk_seen;

struct side *walk_side(unsigned who) {
    return who == 0 ? &walk.p.a : &walk.p.b;
}

uint64_t walk_random(uint64_t below) { /* splitmix64 */
    uint64_t z = (walk.random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % below;
}

/* ---- messages ------------------------------------------------------------------------------------ */

size_t walk_size_of(unsigned who, unsigned i, unsigned number) {
    uint64_t z =
        (walk.seed * 31 + who * 7 + i) * UINT64_C(0x9e3779b97f4a7c15) + number * 2654435761u;
    enum walk_sizes sizes = walk.ends[who][i].sizes;
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
    return (unsigned)walk.seed + who * 85 + i * 31 + number;
}

static void name_limit(struct walk_end *end, int status) {
    end->waits |= status == SLUICE_EAGAIN;
    walk_seen.waits += status == SLUICE_EAGAIN;
    if (status != SLUICE_EAGAIN && status != SLUICE_ECLOSED)
        WALK_WRONG("a send is refused with %s", sluice_strerror(status));
}

bool walk_send(unsigned who, unsigned i) {
    struct walk_end *end = &walk.ends[who][i];
    unsigned number = end->sent;
    sluice_send_options o = {.size = sizeof o, .flags = walk_random(8) ? 0 : SLUICE_MORE};
    sluice_msg *msg;
    if (number == WALK_MESSAGES ||
        sluice_alloc(walk_side(who)->node, walk_size_of(who, i, number), &msg) != 0)
        return false;
    pair_fill(msg, pattern_of(who, i, number));
    end->tagged[number] = end->tags == TAGS_ALL || (end->tags == TAGS_HALF && walk_random(2) != 0);
    o.tag = end->tagged[number] ? number + 1 : 0;
    end->outcome[number] = WALK_UNTOLD;
    int status = sluice_send(end->handle, msg, &o);
    if (status == 0) {
        end->sent++;
        return true;
    }
    sluice_free(msg);
    name_limit(end, status);
    return false;
}

void walk_ask(unsigned who, unsigned i) {
    struct walk_end *end = &walk.ends[who][i];
    sluice_send_options o = {.size = sizeof o, .tag = end->asked + 1};
    bool large = walk_random(4) == 0;
    sluice_msg *msg;
    if (end->asked == WALK_REQUESTS ||
        sluice_alloc(walk_side(who)->node, large ? 20000 : 40, &msg) != 0)
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

void walk_answer(unsigned who, unsigned i) {
    struct walk_end *end = &walk.ends[who][i];
    sluice_msg *msg;
    if (end->token_count == 0)
        return;
    uint64_t token = end->tokens[--end->token_count];
    if (walk_random(3) == 0 ||
        sluice_alloc(walk_side(who)->node, walk_random(4) ? 10 : 30000, &msg) != 0) {
        (void)sluice_reply_error(end->handle, token, 7);
        return;
    }
    if (sluice_reply(end->handle, token, msg) != 0)
        sluice_free(msg);
}

void walk_drop_kept(struct walk_end *end) {
    while (end->kept_count > 0)
        sluice_free(end->kept[--end->kept_count]);
}

/* ---- what is told ---------------------------------------------------------------------------------- */

static void arrived(unsigned who, unsigned i, const sluice_event *event) {
    struct walk_end *end = &walk.ends[who][i];
    const struct walk_end *from = &walk.ends[!who][i];
    unsigned number = end->received++;
    if (number >= from->sent)
        WALK_WRONG("a message that was not sent: number %u of session %u", number, i);
    if (!pair_check(event->msg, walk_size_of(!who, i, number), pattern_of(!who, i, number)))
        WALK_WRONG("message %u of session %u is another one", number, i);
    if (end->kept_count < WALK_KEPT && walk_random(16) == 0) {
        sluice_keep(event->msg);
        end->kept[end->kept_count++] = event->msg;
    }
}

static void told_sent(struct walk_end *end, unsigned i, const sluice_event *event) {
    uint64_t number = event->tag - 1;
    if (number >= end->sent || !end->tagged[number] || end->outcome[number] != WALK_UNTOLD)
        WALK_WRONG("an outcome for nothing: tag %llu of session %u", (unsigned long long)event->tag,
                   i);
    end->outcome[number] = (int8_t)event->status;
    end->told++;
}

static void told_closed(struct walk_end *end, unsigned i, const sluice_event *event) {
    unsigned tagged = 0;
    for (unsigned k = 0; k < end->sent; k++)
        tagged += end->tagged[k];
    if (end->closed)
        WALK_WRONG("session %u is closed twice", i);
    if (end->told != tagged || end->answered != end->asked)
        WALK_WRONG("session %u closed (%s) with %u of %u outcomes, %u of %u answers", i,
                   sluice_reason_text(event->reason), end->told, tagged, end->answered, end->asked);
    end->closed = true;
    end->waits = false;
    end->token_count = 0;
    end->reason = (sluice_reason)event->reason;
    walk_drop_kept(end);
}

static void take(unsigned who, const sluice_event *event) {
    unsigned i = (unsigned)(uintptr_t)event->arg;
    struct walk_end *end = &walk.ends[who][i];
    if (end->closed)
        WALK_WRONG("%s behind CLOSED of session %u", sluice_event_name(event->type), i);
    if (!end->up && event->type != SLUICE_UP && event->type != SLUICE_CLOSED)
        WALK_WRONG("%s before UP of session %u", sluice_event_name(event->type), i);
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
        assert_true(end->token_count < WALK_REQUESTS);
        end->tokens[end->token_count++] = event->token;
        end->heard++;
        break;
    case SLUICE_REPLY:
        must_data(event->tag >= 1 && event->tag <= end->asked);
        if (end->has_answer[event->tag - 1])
            WALK_WRONG("two answers for request %llu", (unsigned long long)event->tag);
        end->has_answer[event->tag - 1] = true;
        end->answered++;
        break;
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
    case SLUICE_DONE:
    case SLUICE_DOWN:
    case SLUICE_NOTIFIED:
    case SLUICE_MOVED:
        fail_msg("%s was not asked for", sluice_event_name(event->type));
    }
}

void walk_turn(unsigned who) {
    struct side *side = walk_side(who);
    sluice_event events[16];
    cm_progress(side->node->cm, 0);
    int n = sluice_poll(side->loop, events, (int)(1 + walk_random(16)), 0);
    assert_true(n >= 0);
    for (int k = 0; k < n; k++)
        take(who, &events[k]);
}
