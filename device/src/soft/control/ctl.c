/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ctl.c - the control socket: which processes may ask, requests, answers. Engine thread, control lock held.
 *
 * Bounded in everything: clients (one too many ends the one that came first), a request's length, an
 * answer's length. A client that does not read its answer keeps nothing but its own memory waiting.
 */
#define _GNU_SOURCE
#include "soft/control/ctl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/cm/id.h"
#include "soft/control/device_state.h"
#include "soft/fault/inject.h"
#include "soft/fault/plan.h"
#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/own_user.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/spinlock.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/object/device.h"
#include "soft/object/qp.h"
#include "soft/object/qp_numbers.h"
#include "soft/rc/region_pages.h"
#include "soft/soft.h"

#define CLIENTS 8
#define ANSWER_MAX (1u << 20)

struct client {
    struct soft_watch watch;
    uint64_t since;
    uint64_t who;
    bool used, failed;
    char *answer;
    size_t length, sent;
};

static struct soft_abstract_socket listener = {.watch.fd = -1};
static struct client clients[CLIENTS];
static uint64_t turns;

/* ---- answers ------------------------------------------------------------------------------------------ */

static void say(struct client *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct client *c, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(c->answer + c->length, ANSWER_MAX - c->length, format, args);
    va_end(args);
    if (n > 0 && c->length + (size_t)n < ANSWER_MAX)
        c->length += (size_t)n;
}

static const char *qp_state(enum ibv_qp_state state) {
    static const char *const names[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}

static const char *id_state(enum soft_cm_state state) {
    static const char *const names[] = {"IDLE",    "BOUND",      "ADDR_RESOLVED", "ROUTE_RESOLVED",
                                        "CONNECT", "DISCONNECT", "LISTEN",        "DEAD"};
    return (unsigned)state < sizeof names / sizeof *names ? names[state] : "?";
}

static void say_qp(struct client *c, struct soft_qp *qp) {
    spin_lock(&qp->lock);
    enum ibv_qp_state state = qp->state;
    uint32_t dest = qp->attr.dest_qp_num, posted = qp->sq_tail, done = qp->sq_head;
    uint32_t tx = qp->tx_pos, acked = ld(qp->tx_acked), rx = ld(qp->rx_pos);
    uint32_t receives = qp->srq ? 0 : qp->rq.tail - qp->rq.head;
    int pid = qp->link_peer ? (int)soft_peer_pid(qp->link_peer) : 0;
    bool stalled = ld(qp->rx_stalled);
    uint32_t dropped = 0;
    for (unsigned i = 0; i < SOFT_DROPS; i++)
        dropped += qp->drops[i];
    spin_unlock(&qp->lock);
    char lost[32] = "";
    if (qp->unreliable)
        snprintf(lost, sizeof lost, " dropped %u", dropped);
    say(c,
        "qp#%u number 0x%06x state %s peer 0x%06x pid %d sends %u done %u receives %u "
        "tx %u acked %u rx %u%s%s\n",
        qp->fault.serial, qp->ibv.qp_num, qp_state(state), dest, pid, posted, done, receives, tx,
        acked, rx, stalled ? " stalled" : "", lost);
}

static void say_id(struct soft_cm_id *id, void *arg) {
    say(arg, "id#%u state %s pid %d\n", id->fault.serial, id_state(id->state),
        id->conn.peer ? (int)soft_peer_pid(id->conn.peer) : 0);
}

static void do_status(struct client *c) {
    say(c, "device %s%s, port %s, contexts %u, rules %u\n", SOFT_DEVICE_NAME,
        atomic_load(&soft_device_gone) ? " removed" : "",
        atomic_load(&soft_port_down) ? "down" : "up", soft_context_count(), soft_fault_rules());
    say(c, "rnr %llu\n", (unsigned long long)atomic_load(&soft_rnr));
    say(c, "holes %llu\n", (unsigned long long)atomic_load(&soft_pages_missed));
    say(c, "closing %u threads %u\n", soft_untrusted_fd_pending(), soft_untrusted_fd_closers());
    for (unsigned b = 0; b < soft_qp_block_count; b++)
        for (unsigned i = 0; i < SOFT_QP_BLOCK; i++) {
            struct soft_qp *qp = ld(soft_qp_blocks[b]->qps[i]);
            if (qp)
                say_qp(c, qp);
        }
    soft_cm_id_each(say_id, c);
    const struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link)
        say(c, "peer pid %d uid %d\n", (int)soft_peer_pid(peer), (int)soft_peer_uid(peer));
}

static void refuse(struct client *c, const char *text) {
    c->failed = true;
    c->length = 0;
    say(c, "%s", text);
}

static void do_plan(struct client *c, const char *text) {
    struct soft_plan_error error;
    struct soft_plan *plan = soft_plan_parse(text, &error);
    if (plan && soft_fault_fits(plan, &error)) {
        soft_fault_install(plan);
        say(c, "%u rules\n", soft_fault_rules());
        return;
    }
    free(plan);
    c->failed = true;
    say(c, "line %u, column %u: %s", error.line, error.column, error.reason);
}

/* "remove order=fatal-only": what follows device= in a plan. */
static void do_device(struct client *c, const char *text) {
    char rule[512];
    struct soft_plan_error error;
    if (strpbrk(text, ";\n#") ||
        snprintf(rule, sizeof rule, "device=%s", text) >= (int)sizeof rule) {
        refuse(c, "device: one action, as in a plan");
        return;
    }
    struct soft_plan *plan = soft_plan_parse(rule, &error);
    if (!plan) {
        refuse(c, error.reason);
        return;
    }
    int rc = soft_device_act(&plan->rule[0].action);
    free(plan);
    if (rc == -EALREADY)
        refuse(c, "the device is in that state already");
    else
        say(c, "done\n");
}

static void do_log(struct client *c) {
    c->length = soft_fault_log(c->answer, ANSWER_MAX);
}

/* text ends with a zero byte, behind bytes of it. */
static void obey(struct client *c, char *text, size_t bytes) {
    if (memchr(text, 0, bytes)) {
        refuse(c, "a request is text");
        return;
    }
    size_t word = strcspn(text, " \n");
    char *rest = text + word + (text[word] != '\0');
    text[word] = '\0';
    if (!strcmp(text, "status") && !*rest)
        do_status(c);
    else if (!strcmp(text, "log") && !*rest)
        do_log(c);
    else if (!strcmp(text, "plan"))
        do_plan(c, rest);
    else if (!strcmp(text, "device"))
        do_device(c, rest);
    else if (!strcmp(text, "clear") && !*rest) {
        soft_fault_clear();
        say(c, "done\n");
    } else
        refuse(c, "commands are status, log, clear, plan TEXT, device ACTION");
}

/* ---- clients ------------------------------------------------------------------------------------------ */

static void drop(struct client *c) {
    if (!c->used)
        return;
    soft_watch_remove(&c->watch);
    soft_untrusted_fd_close_socket(c->watch.fd);
    free(c->answer);
    memset(c, 0, sizeof *c);
}

/* False: the client is gone. */
static bool send_answer(struct client *c) {
    while (c->answer) {
        char packet[SOFT_CTL_PACKET];
        size_t left = c->length - c->sent;
        size_t n = left < sizeof packet - 1 ? left : sizeof packet - 1;
        packet[0] = n < left ? '+' : c->failed ? '!' : '=';
        memcpy(packet + 1, c->answer + c->sent, n);
        if (send(c->watch.fd, packet, n + 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            if (errno == EAGAIN) {
                soft_watch_modify(&c->watch, EPOLLOUT);
                return true;
            }
            drop(c);
            return false;
        }
        c->sent += n;
        if (packet[0] == '+')
            continue;
        free(c->answer);
        c->answer = NULL;
        soft_watch_modify(&c->watch, EPOLLIN);
    }
    return true;
}

static void on_client(struct soft_watch *watch, uint32_t events) {
    struct client *c = (struct client *)((char *)watch - offsetof(struct client, watch));
    static char text[SOFT_CTL_REQUEST + 1]; /* one at a time: the control lock */
    if (events & (EPOLLERR | EPOLLHUP)) {
        drop(c);
        return;
    }
    if (c->answer) {
        send_answer(c);
        return;
    }
    struct soft_untrusted_fd_fds fds; /* no request brings descriptors */
    bool cut;
    ssize_t got = soft_untrusted_fd_recv(c->watch.fd, text, sizeof text - 1, &fds, &cut);
    if (got == -EAGAIN || got == -EINTR)
        return;
    soft_untrusted_fd_close_all(&fds, c->who);
    if (got <= 0) {
        drop(c);
        return;
    }
    c->answer = malloc(ANSWER_MAX);
    if (!c->answer) {
        drop(c);
        return;
    }
    c->length = c->sent = 0;
    c->failed = false;
    text[got] = '\0';
    if (cut)
        refuse(c, "the request is too long");
    else
        obey(c, text, (size_t)got);
    send_answer(c);
}

static struct client *place(void) {
    struct client *oldest = &clients[0];
    for (int i = 0; i < CLIENTS; i++) {
        if (!clients[i].used)
            return &clients[i];
        if (clients[i].since < oldest->since)
            oldest = &clients[i];
    }
    drop(oldest);
    return oldest;
}

static void on_accepted(int fd) {
    struct ucred who;
    socklen_t len = sizeof who;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) != 0 ||
        (!soft_own_user(who.uid, who.pid) && who.uid != 0)) {
        soft_untrusted_fd_close_socket(fd);
        return;
    }
    struct client *c = place();
    *c = (struct client){.watch = {.fd = fd, .fn = on_client},
                         .since = ++turns,
                         .who = soft_untrusted_fd_who(who.uid, who.pid),
                         .used = true};
    if (soft_watch_add(&c->watch, EPOLLIN) != 0) {
        soft_untrusted_fd_close_socket(fd);
        c->used = false;
    }
}

/* ---- life ---------------------------------------------------------------------------------------------- */

void soft_ctl_start(void) {
    soft_assert_locked();
    char name[64];
    snprintf(name, sizeof name, SOFT_CTL_PREFIX "%d-%016llx", (int)getpid(),
             (unsigned long long)soft_peer_own_number());
    (void)soft_abstract_socket_bind(&listener, name,
                                    on_accepted); /* if it fails, no request can come */
}

void soft_ctl_stop(void) {
    soft_assert_locked();
    for (int i = 0; i < CLIENTS; i++)
        drop(&clients[i]);
    soft_abstract_socket_unbind(&listener);
}

/* The descriptors are closed with all the others of the engine. */
void soft_ctl_forked(void) {
    for (int i = 0; i < CLIENTS; i++)
        free(clients[i].answer);
    memset(clients, 0, sizeof clients);
    listener.watch.fd = -1;
}
