/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial.h - a pair (pair.h) whose dialing side has a clock, random numbers and a name server of the
 * test's, and a device on which each try ends as scripted.
 *
 * A script is a list of faults (device/docs/faults.md), one for each try in turn. It is put in force when
 * the try asks for its address and takes the place of the one before, so it may name any id.
 */
#ifndef TESTS_SUPPORT_DIAL_H
#define TESTS_SUPPORT_DIAL_H

#include "support/pair.h"
#include "support/fault.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>

#include "soft/fault/inject.h"
#include "soft/ipc/engine.h"
#include "soft/soft.h"
#include "fabric/fast.h"

#define DIALER_TRIES 16
#define REJECT(status) "id=* connect=1 event=REJECTED status=" #status
#define HANG "cm=REQ loss"

extern struct dialer {
    uint64_t now_ns;
    unsigned over;      /* so many tries find their connection over when they read the answer */
    uint32_t spread;    /* what a random number of four bytes is */
    const char *always; /* the fault of every try beyond the script */
    const char *script[DIALER_TRIES];
    unsigned scripted;
    bool slow;    /* looking for an address takes all the time it is given, but for early_ms */
    int early_ms; /* and a millisecond at least */
    unsigned other_port; /* this try is behind another port of the device */
    struct sockaddr_storage names[32];
    unsigned name_count;
    /* what happened */
    unsigned tries, connects, qps;
    _Atomic unsigned lookups;
    _Atomic bool names_hang; /* they stay in name_server.h */
    char tried[DIALER_TRIES][64];
    int times[DIALER_TRIES]; /* ms, to look for an address */
    struct private_data_req reqs[DIALER_TRIES];
} dialer;

/* ---- its device ------------------------------------------------------------------------------ */

extern struct fabric_ops dialer_ops;
extern struct fabric_fast dialer_fast;

/* Puts a fault in force; NULL: none. */
void dialer_plan(const char *fault);

/* ---- the pair -------------------------------------------------------------------------------- */

/* Opens the pair, with the dialer's environment and device. */
void dialer_open(struct pair *p, const sluice_node_options *node, const sluice_link_options *link);
/* The set-up of PAIR_WITH that does so. */
int dialer_opened(void **state);
/* Ends with NULL; dialer.always is for what comes behind. */
void dialer_script(const char *const *script);
/* What every name stands for from now on; ends with NULL. */
void dialer_names(const char *const *names);

#endif
