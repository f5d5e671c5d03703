/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast.c - the table of multicast groups, and what processes tell each other of it (mcast.h).
 *
 * Every change has a number. A thread that attaches waits, for a short while, until all other processes have confirmed
 * it: what is sent after that reaches the new member.
 *
 * Owner: control lock for changes; the table's own spin lock, a leaf, for senders.
 */
#define _GNU_SOURCE
#include "soft/ud/mcast.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/spinlock.h"
#include "soft/soft.h"
#include "soft/ud/ud.h"
#include "soft/ud/ud_link.h"
#include "soft/verbs/device.h"
#include "soft/verbs/profile.h"
#include "soft/verbs/qp.h"

#define GROUPS_MAX 256
#define GROUPS_OWN 64 /* kept free for our own */
#define GROUPS_OF_PEER 16
#define GROUPS_OF_STRANGERS 64 /* of all that are of other users, so that ours find room */
#define MEMBERS_STRANGE (SOFT_UD_MEMBERS / 2)
#define JOINS_OF_PEER 1024
#define NAMES 128
#define KNOWN_NS 100000000u /* answers are waited for so long */

struct group_msg {
    union ibv_gid gid;
    uint32_t qpn, number;
};

struct group {
    union ibv_gid gid;
    unsigned used; /* places used so far: members do not move */
    unsigned count;
    struct soft_peer *maker; /* the one that told us of it; NULL: this process */
    struct {
        uint32_t qpn; /* 0: free */
        struct soft_peer *peer;
    } member[SOFT_UD_MEMBERS];
};

enum { STRANGER, ASKING, KNOWN };

static struct group groups[GROUPS_MAX]; /* count 0: free */
static soft_spin table_lock;
static struct soft_abstract_socket own_name = {.watch.fd = -1};
static _Atomic int known;
static _Atomic bool wanted;
static uint32_t number; /* of our last change */
static struct soft_timer patience;
static bool looking; /* for processes with groups: names are being read */

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waiters = PTHREAD_COND_INITIALIZER;
static uint64_t news; /* under wait_lock */

bool soft_gid_is_group(const union ibv_gid *gid) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return gid->raw[0] == 0xff ||
           (memcmp(gid->raw, mapped, sizeof mapped) == 0 && gid->raw[12] >> 4 == 14);
}

/* ---- the table ------------------------------------------------------------------------------------ */

static struct group *find(const union ibv_gid *gid) {
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        if (groups[i].count && memcmp(&groups[i].gid, gid, sizeof *gid) == 0)
            return &groups[i];
    return NULL;
}

unsigned soft_mcast_members(const union ibv_gid *gid, uint32_t *qpns) {
    spin_lock(&table_lock);
    const struct group *g = find(gid);
    unsigned n = g ? g->used : 0;
    for (unsigned i = 0; i < n; i++)
        qpns[i] = g->member[i].qpn;
    spin_unlock(&table_lock);
    return n;
}

static bool is_stranger(const struct soft_peer *peer) {
    return peer && !peer->own;
}

static unsigned groups_of_strangers(void) {
    unsigned n = 0;
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        n += groups[i].count && is_stranger(groups[i].maker);
    return n;
}

static unsigned strange_members(const struct group *g) {
    unsigned n = 0;
    for (unsigned i = 0; i < g->used; i++)
        n += g->member[i].qpn && is_stranger(g->member[i].peer);
    return n;
}

static struct group *make(const union ibv_gid *gid, struct soft_peer *peer) {
    if (peer && peer->group_count >= GROUPS_OF_PEER)
        return NULL;
    if (is_stranger(peer) && groups_of_strangers() >= GROUPS_OF_STRANGERS)
        return NULL;
    /* The last places are ours alone, so that others cannot fill them. */
    unsigned end = peer ? GROUPS_MAX - GROUPS_OWN : GROUPS_MAX;
    for (unsigned i = peer ? 0 : GROUPS_MAX - GROUPS_OWN; i < end; i++)
        if (groups[i].count == 0) {
            groups[i].gid = *gid;
            groups[i].used = 0;
            groups[i].maker = peer;
            if (peer)
                peer->group_count++;
            return &groups[i];
        }
    return NULL;
}

/*
 * Two peers report one QP: two connections of one process, or a stranger reports another process's QP. Our own report
 * counts most, and a stranger's least, for the stranger may take it back.
 */
static void hear_again(struct soft_peer **said, struct soft_peer *peer) {
    if (!*said || (peer && !(is_stranger(*said) && peer->own)))
        return;
    (*said)->group_joins--;
    *said = peer;
    if (peer)
        peer->group_joins++;
}

/* table_lock. False: no room. */
static bool add(const union ibv_gid *gid, uint32_t qpn, struct soft_peer *peer) {
    if (peer && peer->group_joins >= JOINS_OF_PEER)
        return false;
    struct group *g = find(gid);
    if (!g)
        g = make(gid, peer);
    unsigned at = SOFT_UD_MEMBERS;
    for (unsigned i = 0; g && i < g->used; i++) {
        if (g->member[i].qpn == qpn) {
            hear_again(&g->member[i].peer, peer);
            return true;
        }
        if (g->member[i].qpn == 0 && at == SOFT_UD_MEMBERS)
            at = i;
    }
    if (g && is_stranger(peer) && strange_members(g) >= MEMBERS_STRANGE)
        return false;
    if (g && at == SOFT_UD_MEMBERS && g->used < SOFT_UD_MEMBERS)
        at = g->used++;
    if (!g || at == SOFT_UD_MEMBERS)
        return false;
    g->member[at].qpn = qpn;
    g->member[at].peer = peer;
    g->count++;
    if (peer)
        peer->group_joins++;
    return true;
}

/* table_lock. */
static void take_out(struct group *g, unsigned at) {
    if (g->member[at].peer)
        g->member[at].peer->group_joins--;
    g->member[at].qpn = 0;
    g->member[at].peer = NULL;
    if (--g->count == 0 && g->maker)
        g->maker->group_count--;
    if (g->count == 0)
        g->maker = NULL;
}

static void take_out_qp(const union ibv_gid *gid, uint32_t qpn, const struct soft_peer *peer) {
    spin_lock(&table_lock);
    struct group *g = find(gid);
    for (unsigned i = 0; g && i < g->used; i++)
        if (g->member[i].qpn == qpn && g->member[i].peer == peer) {
            take_out(g, i);
            break;
        }
    spin_unlock(&table_lock);
}

/* ---- telling ---------------------------------------------------------------------------------------- */

static void tell(struct soft_peer *peer, uint32_t type, const union ibv_gid *gid, uint32_t qpn) {
    struct group_msg msg = {.qpn = qpn, .number = number};
    if (gid)
        msg.gid = *gid;
    peer->group_peer = true;
    if (type == SOFT_MSG_GROUP_JOIN || type == SOFT_MSG_GROUP_ASK)
        peer->group_sent = number;
    soft_peer_send(peer, type, &msg, sizeof msg, -1);
}

static void tell_all(uint32_t type, const union ibv_gid *gid, uint32_t qpn) {
    number++;
    struct soft_peer *peer, *next;
    cds_list_for_each_entry_safe(peer, next, &soft_peers, link) {
        if (peer->group_peer)
            tell(peer, type, gid, qpn);
    }
}

static bool all_confirmed(void) {
    const struct soft_peer *peer;
    if (looking)
        return false;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        if (peer->group_peer && peer->group_acked != peer->group_sent)
            return false;
    }
    return true;
}

static void there_is_news(void) {
    if (atomic_load(&known) == ASKING && all_confirmed()) {
        soft_timer_cancel(&patience);
        atomic_store(&known, KNOWN);
        soft_ud_progress_all();
    }
    pthread_mutex_lock(&wait_lock);
    news++;
    pthread_cond_broadcast(&waiters);
    pthread_mutex_unlock(&wait_lock);
}

static void on_patience(struct soft_timer *timer) {
    (void)timer;
    if (atomic_load(&known) == ASKING) {
        atomic_store(&known, KNOWN);
        soft_ud_progress_all();
    }
}

/* The names of processes that use groups. Those of our user have others beside them, for when strangers have these. */
static void name_of(char *text, size_t size, int i) {
    snprintf(text, size, "sluice-soft.%u/g/%d", SOFT_WIRE_VERSION, i);
}

static void names_besides(char *text, size_t size) {
    snprintf(text, size, "sluice-soft.%u/g", SOFT_WIRE_VERSION);
}

static void take_name(char mine[SOFT_NAME_BYTES]) {
    char besides[SOFT_NAME_BYTES];
    for (int i = 0; i < NAMES; i++) {
        name_of(mine, SOFT_NAME_BYTES, i);
        if (soft_abstract_socket_bind(&own_name, mine, soft_peer_accepted) == 0)
            return;
    }
    names_besides(besides, sizeof besides);
    (void)soft_name_bind_besides(&own_name, besides, mine, soft_peer_accepted);
}

static void ask(const char *text) {
    struct soft_peer *peer;
    if (soft_peer_by_name(text, &peer) != 0)
        return;
    if (peer->pid != getpid())
        tell(peer, SOFT_MSG_GROUP_ASK, NULL, 0);
    soft_peer_release(peer);
}

/* Processes of our user whose names strangers have. */
static void look_besides(void) {
    struct soft_name_search what = {.fits = NULL};
    struct soft_names names;
    char text[SOFT_NAME_BYTES];
    names_besides(text, sizeof text);
    soft_name_besides(text, what.begin);
    if (!looking || soft_name_search_ask(&what, &names) != 0)
        return;
    for (unsigned i = 0; i < names.count; i++)
        ask(names.text[i]);
    soft_names_free(&names);
    looking = false;
    soft_timer_arm(&patience, soft_now_ns() + KNOWN_NS, on_patience);
    there_is_news(); /* for the case that there is no process to ask */
}

/* Asks every process that uses groups, once. */
static void involve(void) {
    char text[SOFT_NAME_BYTES], mine[SOFT_NAME_BYTES];
    if (atomic_load(&known) != STRANGER)
        return;
    take_name(mine);
    atomic_store(&known, ASKING);
    number++;
    for (int i = 0; i < NAMES; i++) {
        name_of(text, sizeof text, i);
        if (strcmp(text, mine) != 0)
            ask(text);
    }
    looking = true;
    look_besides();
}

bool soft_mcast_known(void) {
    if (__builtin_expect(atomic_load(&known) == KNOWN, 1))
        return true;
    if (atomic_load(&known) == STRANGER && !atomic_exchange(&wanted, true))
        soft_engine_wake();
    return false;
}

void soft_mcast_if_wanted(void) {
    if (ld(wanted) && atomic_exchange(&wanted, false))
        involve();
    if (looking)
        look_besides();
}

/* ---- hearing ---------------------------------------------------------------------------------------- */

static void answer(struct soft_peer *peer) {
    for (unsigned i = 0; i < GROUPS_MAX; i++)
        for (unsigned k = 0; groups[i].count && k < groups[i].used; k++)
            if (groups[i].member[k].qpn && !groups[i].member[k].peer)
                tell(peer, SOFT_MSG_GROUP_JOIN, &groups[i].gid, groups[i].member[k].qpn);
}

void soft_mcast_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes) {
    struct group_msg msg;
    if (bytes != sizeof msg)
        return;
    memcpy(&msg, data, sizeof msg);
    bool valid = soft_gid_is_group(&msg.gid) && msg.qpn && msg.qpn < SOFT_UD_MULTICAST_QPN;
    peer->group_peer = true;
    if (type == SOFT_MSG_GROUP_OK) {
        if (msg.number == peer->group_sent) {
            peer->group_acked = msg.number;
            there_is_news();
        }
        return;
    }
    if (type == SOFT_MSG_GROUP_LEAVE) {
        take_out_qp(&msg.gid, msg.qpn, peer);
        return;
    }
    if (type == SOFT_MSG_GROUP_ASK) {
        answer(peer);
    } else if (valid) {
        spin_lock(&table_lock);
        (void)add(&msg.gid, msg.qpn, peer);
        spin_unlock(&table_lock);
    }
    struct group_msg ok = {.number = msg.number};
    if (peer->alive)
        soft_peer_send(peer, SOFT_MSG_GROUP_OK, &ok, sizeof ok, -1);
}

void soft_mcast_on_peer_gone(struct soft_peer *peer) {
    spin_lock(&table_lock);
    for (unsigned i = 0; i < GROUPS_MAX; i++) {
        for (unsigned k = 0; groups[i].count && k < groups[i].used; k++)
            if (groups[i].member[k].qpn && groups[i].member[k].peer == peer)
                take_out(&groups[i], k);
        if (groups[i].maker == peer)
            groups[i].maker = NULL;
    }
    spin_unlock(&table_lock);
    if (peer->group_peer) {
        peer->group_peer = false;
        there_is_news();
    }
}

/* ---- attaching -------------------------------------------------------------------------------------- */

/* Until the others know it; not for ever, for one of them may be stopped. */
static void wait_confirmed(void) {
    struct timespec until;
    uint64_t deadline = soft_now_ns() + KNOWN_NS;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += KNOWN_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    for (;;) {
        pthread_mutex_lock(&wait_lock);
        uint64_t seen = news;
        pthread_mutex_unlock(&wait_lock);
        soft_lock();
        bool done = all_confirmed();
        soft_unlock();
        if (done || soft_now_ns() >= deadline)
            return;
        int rc = 0;
        pthread_mutex_lock(&wait_lock);
        while (news == seen && rc == 0)
            rc = pthread_cond_timedwait(&waiters, &wait_lock, &until);
        pthread_mutex_unlock(&wait_lock);
        if (rc != 0)
            return;
    }
}

static int place_of(const struct soft_ud *ud, const union ibv_gid *gid) {
    for (unsigned i = 0; i < ud->group_count; i++)
        if (memcmp(&ud->group[i], gid, sizeof *gid) == 0)
            return (int)i;
    return -1;
}

static int refused(struct soft_qp *qp, const union ibv_gid *gid) {
    if (soft_stale(qp))
        return EPERM;
    if (soft_removed(qp->ibv.context))
        return EIO;
    return !qp->ud || !gid || !soft_gid_is_group(gid) ? EINVAL : 0;
}

int soft_attach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid) {
    (void)lid; /* RoCE has none */
    struct soft_qp *qp = soft_qp_of(ibqp);
    int rc = refused(qp, gid);
    if (rc != 0)
        return rc;
    soft_lock();
    if (place_of(qp->ud, gid) >= 0) {
        soft_unlock();
        return 0;
    }
    spin_lock(&table_lock);
    const struct group *g = find(gid);
    bool full =
        qp->ud->group_count >= SOFT_UD_GROUPS || (g && g->count >= soft_profile()->members_most);
    bool added = !full && add(gid, ibqp->qp_num, NULL);
    spin_unlock(&table_lock);
    if (added) {
        spin_lock(&qp->lock);
        qp->ud->group[qp->ud->group_count++] = *gid;
        spin_unlock(&qp->lock);
        involve();
        while (looking) { /* gives the lock up; the names come, or none */
            (void)soft_lock_wait(soft_now_ns() + KNOWN_NS);
            look_besides();
        }
        tell_all(SOFT_MSG_GROUP_JOIN, gid, ibqp->qp_num);
    }
    soft_unlock();
    if (added)
        wait_confirmed();
    return added ? 0 : ENOMEM;
}

int soft_detach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid) {
    (void)lid;
    struct soft_qp *qp = soft_qp_of(ibqp);
    int rc = soft_stale(qp) ? EPERM : !qp->ud || !gid ? EINVAL : 0;
    if (rc != 0)
        return rc;
    soft_lock();
    int at = place_of(qp->ud, gid);
    if (at >= 0) {
        spin_lock(&qp->lock);
        qp->ud->group[at] = qp->ud->group[--qp->ud->group_count];
        spin_unlock(&qp->lock);
        take_out_qp(gid, ibqp->qp_num, NULL);
        tell_all(SOFT_MSG_GROUP_LEAVE, gid, ibqp->qp_num);
    }
    soft_unlock();
    return at >= 0 ? 0 : EINVAL;
}

/* ---- life ------------------------------------------------------------------------------------------- */

void soft_mcast_stop(void) {
    soft_timer_cancel(&patience);
    looking = false;
    soft_abstract_socket_unbind(&own_name);
    spin_lock(&table_lock);
    memset(groups, 0, sizeof groups);
    spin_unlock(&table_lock);
    atomic_store(&known, STRANGER);
    atomic_store(&wanted, false);
}

void soft_mcast_forked(void) {
    memset(groups, 0, sizeof groups);
    table_lock = 0;
    own_name = (struct soft_abstract_socket){.watch.fd = -1};
    patience = (struct soft_timer){0};
    known = STRANGER;
    wanted = looking = false;
    pthread_mutex_init(&wait_lock, NULL);
    pthread_cond_init(&waiters, NULL);
}
