/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* port_owner.c - see port_owner.h. */
#define _GNU_SOURCE
#include "soft/cm/port_owner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "soft/cm/addr.h"
#include "soft/cm/port_cache.h"
#include "soft/cm/port_name.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"

#define HOLDERS 4 /* names that include an address */
/* An honest process answers the second at the latest, unless its backlog is full: it says that it has the first. */
#define SILENT_MOST 2

/* Processes behind names that include an address, but for those of our own user. */
struct holders {
    struct holder {
        char name[SOFT_CM_NAME_BYTES];
        pid_t pid; /* 0: of another PID namespace, and like no other */
        bool full; /* takes no connection at present, so that it may be our own user's */
    } of[HOLDERS];
    unsigned count;
};

static void add(struct holders *holders, const char *text, pid_t pid, bool full) {
    for (unsigned i = 0; i < holders->count && pid > 0; i++)
        if (holders->of[i].pid == pid)
            return;
    struct holder *holder = &holders->of[holders->count++];
    *holder = (struct holder){.pid = pid, .full = full};
    snprintf(holder->name, sizeof holder->name, "%s", text);
}

/* The name's owner: 0 and a peer if it is our own user's, else -ECONNREFUSED, or what is wrong with this process. */
static int look_at(const char *text, struct holders *holders, struct soft_peer **peer) {
    struct ucred who = {0};
    int error = soft_peer_own_by_name(text, &who, peer);
    if (error == 0)
        return 0;
    *peer = NULL;
    if (error == -EPERM || error == -EAGAIN)
        add(holders, text, error == -EPERM ? who.pid : 0, error == -EAGAIN);
    return error == -EPERM || error == -EAGAIN ? -ECONNREFUSED : error;
}

/* The wildcards that include it, of both families for IPv4, then the exact address. The i-th; false: there is none. */
static bool name_of(const struct sockaddr *dst, int ps, unsigned i, char text[SOFT_CM_NAME_BYTES]) {
    bool four = dst->sa_family == AF_INET, wildcard = i < 2;
    struct soft_cm_port_name name = {
        .ps = ps, .port = soft_cm_addr_port(dst), .afonly = i & 1 || (four && !wildcard)};
    if (four && i == 3)
        return false; /* the same name as before */
    if (wildcard)
        soft_cm_addr_any(&name.addr, four && i == 1 ? AF_INET : AF_INET6);
    else
        soft_cm_addr_copy(&name.addr, dst);
    soft_cm_port_name_format(&name, 0, text);
    return true;
}

/* Finds a process of our user that has the port at another address. -EINPROGRESS: the names are being read. */
static int look_elsewhere(int ps, uint16_t port, struct soft_peer **peer) {
    struct soft_name_search what;
    struct soft_names names;
    struct ucred who;
    soft_cm_port_name_search(ps, port, &what);
    int error = soft_name_search_ask(&what, &names);
    if (error)
        return error;
    error = -ECONNREFUSED;
    for (unsigned i = 0; i < names.count && error != 0; i++)
        if (soft_peer_own_by_name(names.text[i], &who, peer) == 0)
            error = 0;
    soft_names_free(&names);
    return error;
}

/*
 * A holder whose queue is full may be of our own user, and is waited for; another user fills a queue of his own for as
 * long as he likes, and is passed over. The kernel's list says which. 0, -EAGAIN: one of ours, -EINPROGRESS.
 */
static int pass_over_full(struct holders *holders) {
    for (unsigned i = 0; i < holders->count; i++) {
        struct soft_name_search what = {.listed = true};
        struct soft_names names;
        if (!holders->of[i].full)
            continue;
        if (holders->count == 1)
            return -EAGAIN;
        snprintf(what.begin, sizeof what.begin, "%s", holders->of[i].name);
        int error = soft_name_search_ask(&what, &names);
        if (error)
            return error;
        bool ours = false;
        for (unsigned k = 0; k < names.count; k++)
            ours |= strcmp(names.text[k], what.begin) == 0;
        soft_names_free(&names);
        if (ours)
            return -EAGAIN;
        memmove(&holders->of[i], &holders->of[i + 1],
                (--holders->count - i) * sizeof holders->of[0]);
        i--;
    }
    return 0;
}

static int next_of(struct holders *holders, struct soft_cm_port_turn *turn,
                   struct soft_peer **peer) {
    int error = pass_over_full(holders);
    if (error)
        return error;
    turn->holders = (uint8_t)holders->count;
    turn->at %= turn->holders;
    return soft_peer_by_name(holders->of[turn->at].name, peer);
}

int soft_cm_port_owner(int ps, const struct sockaddr *dst, struct soft_cm_port_turn *turn,
                       struct soft_peer **peer) {
    struct holders holders = {.count = 0};
    char text[SOFT_CM_NAME_BYTES];
    int error = 0;
    *peer = NULL;
    for (unsigned i = 0; i < HOLDERS && !*peer; i++) {
        int rc = name_of(dst, ps, i, text) ? look_at(text, &holders, peer) : -ECONNREFUSED;
        if (rc != 0 && rc != -ECONNREFUSED)
            error = rc;
    }
    if (!*peer && error)
        return error;
    if (!*peer && holders.count)
        return next_of(&holders, turn, peer);
    error = *peer ? 0 : look_elsewhere(ps, soft_cm_addr_port(dst), peer);
    if (error) {
        *peer = NULL;
        return error;
    }
    soft_cm_port_cache_note(ps, dst, *peer); /* another user's name may lead elsewhere next time */
    return 0;
}

static bool next(struct soft_cm_port_turn *turn) {
    turn->silent = 0;
    turn->at++;
    return true;
}

bool soft_cm_port_turn_silent(struct soft_cm_port_turn *turn) {
    return turn->holders > 1 && ++turn->silent >= SILENT_MOST && next(turn);
}

bool soft_cm_port_turn_refused(struct soft_cm_port_turn *turn) {
    return turn->holders > 1 && ++turn->refused < turn->holders && next(turn);
}
