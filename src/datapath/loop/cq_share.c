/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* cq_share.c - how a loop's completion queue is divided. Owner: the loop's thread, see cq_share.h. */
#include "datapath/loop/cq_share.h"

#include "core/context.h"

#define SENDS 128u      /* of a send queue of full depth */
#define SENDS_LEAST 16u /* enough for a few messages on their way, and SQ_RESERVE beside them */
#define REPLIES_LEAST 8u
#define ENTRIES_MIN 4096u
#define ENTRIES_MAX 262144u /* unless the promised shares need more: 16 MiB of a NIC's entries */
#define ENTRIES_SESSION (SENDS + CREDITS_DEFAULT)
#define RECEIVES_MIN 2048u
#define RECEIVES_LEAST 256u /* fewer are not worth sharing */
#define RECEIVES_SESSION 32u
#define GENEROUS 64u /* so many times its equal part of what is left over a connection may take */

static uint32_t least_of(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

uint32_t cq_share_sends(const struct ibv_device_attr *attr) {
    uint32_t depth = SENDS;
    while (depth > 8 && depth > (uint32_t)attr->max_qp_wr)
        depth /= 2;
    return depth;
}

static uint32_t sends_least(const struct ibv_device_attr *attr) {
    return least_of(cq_share_sends(attr), SENDS_LEAST);
}

uint32_t cq_share_least(const struct ibv_device_attr *attr) {
    return sends_least(attr) + CREDITS_INITIAL + REPLIES_LEAST;
}

/* The device may not say, and then there is no bound that is known. */
static uint32_t entries_most(const struct ibv_device_attr *attr) {
    return attr->max_cqe > 0 ? (uint32_t)attr->max_cqe : UINT32_MAX;
}

int cq_share_entries(const sluice_node *n) {
    const struct ibv_device_attr *attr = &n->device_attr;
    uint64_t sessions = n->options.sessions_max;
    uint64_t entries = sessions * ENTRIES_SESSION, promised = sessions * cq_share_least(attr);
    entries = entries < ENTRIES_MIN ? ENTRIES_MIN : entries;
    entries = entries > ENTRIES_MAX ? ENTRIES_MAX : entries;
    entries = entries < 2 * promised ? 2 * promised : entries;
    return (int)least_of(entries > INT32_MAX ? INT32_MAX : (uint32_t)entries, entries_most(attr));
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* What sessions are promised that have no share yet. They may be other loops': nothing says where the next one comes. */
static uint64_t promised(const struct sluice_loop *l) {
    uint64_t sessions = l->node->options.sessions_max;
    uint64_t coming = sessions > l->cq_shares ? sessions - l->cq_shares : 0;
    return coming * cq_share_least(&l->node->device_attr);
}

/* What is left over beside those; negative: so much is missing. */
static int64_t left_over(const struct sluice_loop *l) {
    return l->cq_size - (int64_t)l->cq_used - (int64_t)promised(l);
}

uint32_t cq_share_receives(const struct sluice_loop *l) {
    uint64_t sessions = l->node->options.sessions_max, wanted = sessions * RECEIVES_SESSION;
    int64_t left = left_over(l) / 2;
    wanted = wanted < RECEIVES_MIN ? RECEIVES_MIN : wanted;
    if (left < (int64_t)RECEIVES_LEAST)
        return 0;
    return left < (int64_t)wanted ? (uint32_t)left : (uint32_t)wanted;
}

/* Of what is left over, as much of `wanted` as one connection may have. */
static uint32_t take_more(const struct sluice_loop *l, uint64_t used, uint32_t wanted) {
    int64_t left = left_over(l) - (int64_t)used;
    uint64_t coming = l->node->options.sessions_max > l->cq_shares
                          ? l->node->options.sessions_max - l->cq_shares
                          : 0;
    if (left <= 0)
        return 0;
    uint64_t part = (uint64_t)left * GENEROUS / (coming + GENEROUS);
    return part < wanted ? (uint32_t)part : wanted;
}

/* Receives of its own: credits, and receives for replies, of which a connection that makes requests must have some. */
static uint32_t divide_receives(const struct sluice_loop *l, struct connection *c, uint64_t used) {
    const struct link_config *link = &c->session->link_config;
    uint32_t most =
        least_of(link->credits + link->requests, (uint32_t)l->node->device_attr.max_qp_wr);
    uint32_t depth = least_of(CREDITS_INITIAL + REPLIES_LEAST, most);
    depth += take_more(l, used + depth, most - depth);
    uint32_t replies = depth > CREDITS_INITIAL ? depth - CREDITS_INITIAL : 0;
    replies = least_of(replies, least_of(link->requests, REPLIES_LEAST));
    c->credits.max = least_of(link->credits, depth - replies);
    c->recv.own.depth = depth;
    c->recv.own.spare_max = least_of(link->requests, depth - c->credits.max);
    return depth;
}

bool cq_share_take(struct sluice_loop *l, struct connection *c, bool own) {
    loop_assert_inside(l);
    const struct ibv_device_attr *attr = &l->node->device_attr;
    uint32_t depth = sends_least(attr), receives = 0, full = cq_share_sends(attr);
    l->cq_shares++; /* it is not among the coming ones from here on */
    if (left_over(l) < (int64_t)(own ? cq_share_least(attr) : sends_least(attr))) {
        l->cq_shares--;
        return false;
    }
    uint32_t more = take_more(l, own ? cq_share_least(attr) : depth, full - depth);
    while (depth < full && 2 * depth - sends_least(attr) <= more)
        depth *= 2;
    c->credits.max = c->session->link_config.credits;
    if (own)
        receives = divide_receives(l, c, depth);
    c->sq.depth = depth;
    c->cq_share = depth + receives;
    l->cq_used += c->cq_share;
    ASSERT(left_over(l) >= 0);
    return true;
}

void cq_share_give_back(struct sluice_loop *l, struct connection *c) {
    loop_assert_inside(l);
    l->cq_used -= c->cq_share;
    l->cq_shares -= c->cq_share > 0;
    c->cq_share = 0;
}
