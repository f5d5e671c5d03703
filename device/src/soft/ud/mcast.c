/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mcast.c - what processes tell each other of multicast groups (mcast.h); the table itself is mcast_table.c's.
 *
 * Every change has a number. A thread that attaches waits, for a short while, until all other processes have confirmed
 * it: what is sent after that reaches the new member.
 *
 * Owner: control lock; wait_lock, a leaf, for those that wait to be heard.
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

#include "common/condition.h"
#include "common/uncancelled.h"
#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/device.h"
#include "soft/object/profile.h"
#include "soft/object/qp.h"
#include "soft/soft.h"
#include "soft/ud/mcast_table.h"
#include "soft/ud/ud.h"
#include "soft/ud/ud_link.h"

#define NAMES 128
#define NAMES_AT_ONCE 8     /* each is some system calls, with the control lock held */
#define KNOWN_NS 100000000u /* answers are waited for so long */

struct group_msg {
    union ibv_gid gid;
    uint32_t qpn, number;
};

enum { STRANGER, ASKING, KNOWN };

static struct soft_abstract_socket own_name = {.watch.fd = -1};
static _Atomic int known;
static _Atomic bool wanted;
static uint32_t number; /* of our last change */
static struct soft_timer patience;

/* Looking for processes with groups, in steps, between which others get the control lock. */
static enum { AT_REST, TAKING_A_NAME, ASKING_NAMES, READING_NAMES, ASKING_BESIDES } step;
static int next_name; /* to be tried, or asked */
static char own_text[SOFT_NAME_BYTES];
static struct soft_names besides; /* of processes of our user whose names strangers have */

static pthread_mutex_t wait_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t waiters; /* on CLOCK_MONOTONIC: the wall clock may be set meanwhile */
static uint64_t news;          /* under wait_lock */

bool soft_gid_is_group(const union ibv_gid *gid) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    return gid->raw[0] == 0xff ||
           (memcmp(gid->raw, mapped, sizeof mapped) == 0 && gid->raw[12] >> 4 == 14);
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
    if (step != AT_REST)
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

/* True: this process has one, or can have none. */
static bool take_name(void) {
    char begin[SOFT_NAME_BYTES];
    for (int last = next_name + NAMES_AT_ONCE; next_name < last && next_name < NAMES; next_name++) {
        name_of(own_text, sizeof own_text, next_name);
        if (soft_abstract_socket_bind(&own_name, own_text, soft_peer_accepted) == 0)
            return true;
    }
    if (next_name < NAMES)
        return false;
    names_besides(begin, sizeof begin);
    (void)soft_name_bind_besides(&own_name, begin, own_text, soft_peer_accepted);
    return true;
}

static void ask(const char *text) {
    struct soft_peer *peer;
    if (soft_peer_by_name(text, &peer) != 0)
        return;
    if (peer->pid != getpid())
        tell(peer, SOFT_MSG_GROUP_ASK, NULL, 0);
    soft_peer_release(peer);
}

/* True: all were asked. */
static bool ask_names(void) {
    char text[SOFT_NAME_BYTES];
    for (int last = next_name + NAMES_AT_ONCE; next_name < last && next_name < NAMES; next_name++) {
        name_of(text, sizeof text, next_name);
        if (strcmp(text, own_text) != 0)
            ask(text);
    }
    return next_name >= NAMES;
}

/* True: they are known. */
static bool read_besides(void) {
    struct soft_name_search what = {.fits = NULL};
    char text[SOFT_NAME_BYTES];
    names_besides(text, sizeof text);
    soft_name_besides(text, what.begin);
    return soft_name_search_ask(&what, &besides) == 0;
}

static void rest(void) {
    soft_names_free(&besides);
    step = AT_REST;
}

static void ask_besides(void) {
    for (int last = next_name + NAMES_AT_ONCE; next_name < last; next_name++) {
        if ((unsigned)next_name >= besides.count) {
            rest();
            soft_timer_arm(&patience, soft_now_ns() + KNOWN_NS, on_patience);
            there_is_news(); /* for the case that there is no process to ask */
            return;
        }
        ask(besides.text[next_name]);
    }
}

/* A step. True: the next may follow at once, when others had the lock. */
static bool go_on(void) {
    switch (step) {
    case AT_REST:
        return false;
    case TAKING_A_NAME:
        if (take_name()) {
            step = ASKING_NAMES;
            next_name = 0;
        }
        return true;
    case ASKING_NAMES:
        if (ask_names())
            step = READING_NAMES;
        return true;
    case READING_NAMES:
        if (!read_besides())
            return false;
        step = ASKING_BESIDES;
        next_name = 0;
        return true;
    case ASKING_BESIDES:
        ask_besides();
        return step != AT_REST;
    }
    return false;
}

/* Asks every process that uses groups, once. It has a name before it asks: of two that begin, one asks the other. */
static void involve(void) {
    if (atomic_load(&known) != STRANGER)
        return;
    atomic_store(&known, ASKING);
    number++;
    next_name = 0;
    step = TAKING_A_NAME;
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
    if (go_on())
        soft_engine_wake();
}

/* ---- hearing ---------------------------------------------------------------------------------------- */

static void tell_join(struct soft_peer *peer, const union ibv_gid *gid, uint32_t qpn) {
    tell(peer, SOFT_MSG_GROUP_JOIN, gid, qpn);
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
        soft_mcast_table_remove(&msg.gid, msg.qpn, peer);
        return;
    }
    if (type == SOFT_MSG_GROUP_ASK) {
        soft_mcast_table_tell_own(peer, tell_join);
    } else if (valid) {
        (void)soft_mcast_table_add(&msg.gid, msg.qpn, peer);
    }
    struct group_msg ok = {.number = msg.number};
    if (peer->alive)
        soft_peer_send(peer, SOFT_MSG_GROUP_OK, &ok, sizeof ok, -1);
}

void soft_mcast_on_peer_gone(struct soft_peer *peer) {
    soft_mcast_table_forget(peer);
    if (peer->group_peer) {
        peer->group_peer = false;
        there_is_news();
    }
}

/* ---- attaching -------------------------------------------------------------------------------------- */

/* Until the others know it; not for ever, for one of them may be stopped. */
static void wait_confirmed(void) {
    uint64_t deadline = soft_now_ns() + KNOWN_NS;
    const struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000u),
                                   .tv_nsec = (long)(deadline % 1000000000u)};
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
    UNCANCELLED;
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
    bool full = qp->ud->group_count >= SOFT_UD_GROUPS ||
                soft_mcast_table_count(gid) >= soft_profile()->members_most;
    bool added = !full && soft_mcast_table_add(gid, ibqp->qp_num, NULL);
    if (added) {
        spin_lock(&qp->lock);
        qp->ud->group[qp->ud->group_count++] = *gid;
        spin_unlock(&qp->lock);
        involve();
        while (step != AT_REST) { /* the lock is given up each time */
            if (go_on()) {
                soft_unlock();
                soft_lock();
            } else if (step != AT_REST) {
                (void)soft_lock_wait(soft_now_ns() + KNOWN_NS); /* the names come, or none */
            }
        }
        tell_all(SOFT_MSG_GROUP_JOIN, gid, ibqp->qp_num);
    }
    soft_unlock();
    if (added)
        wait_confirmed();
    return added ? 0 : ENOMEM;
}

int soft_detach_mcast(struct ibv_qp *ibqp, const union ibv_gid *gid, uint16_t lid) {
    UNCANCELLED;
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
        soft_mcast_table_remove(gid, ibqp->qp_num, NULL);
        tell_all(SOFT_MSG_GROUP_LEAVE, gid, ibqp->qp_num);
    }
    soft_unlock();
    return at >= 0 ? 0 : EINVAL;
}

/* ---- life ------------------------------------------------------------------------------------------- */

void soft_mcast_once(void) {
    condition_init(&waiters);
}

void soft_mcast_stop(void) {
    soft_timer_cancel(&patience);
    rest();
    soft_abstract_socket_unbind(&own_name);
    soft_mcast_table_clear();
    atomic_store(&known, STRANGER);
    atomic_store(&wanted, false);
}

void soft_mcast_forked(void) {
    soft_mcast_table_forked();
    own_name = (struct soft_abstract_socket){.watch.fd = -1};
    patience = (struct soft_timer){0};
    known = STRANGER;
    wanted = false;
    rest();
    pthread_mutex_init(&wait_lock, NULL);
    soft_mcast_once();
}
