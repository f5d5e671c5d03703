/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_search.c - see name_search.h. One thread reads at a time, for all that was asked for when it began: what is
 * asked for meanwhile is read after it. An answer that its caller does not fetch is kept for a second.
 */
#define _GNU_SOURCE
#include "soft/ipc/name_search.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/thread.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/name_list.h"

#define SEARCHES 64
#define FOUND_MOST 1024  /* of one search */
#define LOOKS_MOST 65536 /* at names whose owner has to be asked for */
#define KEPT_NS 1000000000ull

enum state { FREE, WANTED, READING, FOUND };

static struct search {
    struct soft_name_search what;
    enum state state;
    uint64_t found_ns;
    struct soft_names names;
} searches[SEARCHES];

/* The searches that a thread reads the names for. It has copies, and touches nothing else. */
struct reading {
    unsigned count, looks;
    uid_t own; /* asked for once, not for each name */
    struct one {
        unsigned at; /* in `searches` */
        struct soft_name_search what;
        struct soft_names names;
    } of[SEARCHES];
    pthread_t thread;
    _Atomic bool done;
};
static struct reading *reading;

/* ---- reading: no lock ------------------------------------------------------------------------------- */

static void keep(struct soft_names *names, const char *text) {
    if (names->count == FOUND_MOST || strlen(text) >= SOFT_NAME_BYTES)
        return;
    if ((names->count & (names->count - 1)) == 0) { /* 1, 2, 4, ... */
        size_t room = names->count ? 2 * names->count : 1;
        void *more = realloc(names->text, room * sizeof *names->text);
        if (!more)
            return;
        names->text = more;
    }
    snprintf(names->text[names->count++], SOFT_NAME_BYTES, "%s", text);
}

/* Names of other users cost no more than this, where the kernel says whose they are: they are many, if they are. */
static bool see(const struct soft_listed_name *name, void *arg) {
    struct reading *r = arg;
    const char *text = name->text;
    bool asked = false;
    if (name->has_uid && name->uid != r->own)
        return true;
    for (unsigned i = 0; i < r->count; i++) {
        struct one *one = &r->of[i];
        if (strncmp(text, one->what.begin, strlen(one->what.begin)) != 0 ||
            (one->what.fits && !one->what.fits(text, one->what.number)))
            continue;
        if (!one->what.listed && !asked && (++r->looks > LOOKS_MOST || !soft_name_is_ours(text)))
            break;
        asked |= !one->what.listed;
        keep(&one->names, text);
    }
    return r->looks <= LOOKS_MOST;
}

static void *read_names(void *arg) {
    struct reading *r = arg;
    r->own = geteuid();
    (void)soft_name_scan("sluice-soft.", see, r);
    atomic_store(&r->done, true);
    soft_engine_wake();
    return NULL;
}

void soft_names_free(struct soft_names *names) {
    free(names->text);
    *names = (struct soft_names){0};
}

/* ---- for callers that may wait ---------------------------------------------------------------------- */

void soft_name_search_now(const struct soft_name_search *what, struct soft_names *found) {
    struct reading *r = calloc(1, sizeof *r);
    *found = (struct soft_names){0};
    if (!r)
        return;
    r->count = 1;
    r->of[0].what = *what;
    r->own = geteuid();
    int state; /* a cancelled thread would not hold the lock that its caller unlocks */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    soft_unlock();
    (void)soft_name_scan(what->begin, see, r);
    soft_lock();
    pthread_setcancelstate(state, NULL);
    *found = r->of[0].names;
    free(r);
}

/* ---- for the engine --------------------------------------------------------------------------------- */

static void found(struct search *search, struct soft_names names) {
    search->state = FOUND;
    search->found_ns = soft_now_ns();
    search->names = names;
}

static void begin(void) {
    if (reading)
        return;
    struct reading *r = calloc(1, sizeof *r);
    for (unsigned i = 0; i < SEARCHES; i++) {
        if (searches[i].state != WANTED)
            continue;
        if (!r) { /* as where there is no list */
            found(&searches[i], (struct soft_names){0});
            continue;
        }
        searches[i].state = READING;
        r->of[r->count++] = (struct one){.at = i, .what = searches[i].what};
    }
    if (r && r->count && thread_start(&r->thread, "sluice-names", read_names, r) == 0) {
        reading = r;
        return;
    }
    for (unsigned i = 0; r && i < r->count; i++)
        found(&searches[r->of[i].at], (struct soft_names){0});
    free(r);
}

static bool is_it(const struct search *search, const struct soft_name_search *what) {
    return search->state != FREE && search->what.fits == what->fits &&
           search->what.number == what->number && search->what.listed == what->listed &&
           strcmp(search->what.begin, what->begin) == 0;
}

static void forget_old(void) {
    uint64_t now = soft_now_ns();
    for (unsigned i = 0; i < SEARCHES; i++)
        if (searches[i].state == FOUND && now - searches[i].found_ns > KEPT_NS) {
            soft_names_free(&searches[i].names);
            searches[i].state = FREE;
        }
}

int soft_name_search_ask(const struct soft_name_search *what, struct soft_names *out) {
    struct search *search = NULL, *room = NULL;
    forget_old();
    for (unsigned i = 0; i < SEARCHES; i++) {
        if (is_it(&searches[i], what))
            search = &searches[i];
        else if (searches[i].state == FREE)
            room = &searches[i];
    }
    if (!search && room) { /* else once others are done */
        *room = (struct search){.what = *what, .state = WANTED};
        search = room;
        begin();
    }
    if (!search || search->state != FOUND)
        return -EINPROGRESS;
    *out = search->names;
    *search = (struct search){.state = FREE};
    return 0;
}

bool soft_name_search_if_done(void) {
    struct reading *r = reading;
    if (!r || !atomic_load(&r->done))
        return false;
    pthread_join(r->thread, NULL); /* it is at its end */
    for (unsigned i = 0; i < r->count; i++)
        found(&searches[r->of[i].at], r->of[i].names);
    free(r);
    reading = NULL;
    begin();
    soft_lock_wake();
    return true;
}

/* ---- the end ----------------------------------------------------------------------------------------- */

void soft_name_search_stop(void) {
    if (reading) {
        pthread_join(reading->thread, NULL);
        for (unsigned i = 0; i < reading->count; i++)
            soft_names_free(&reading->of[i].names);
        free(reading);
        reading = NULL;
    }
    for (unsigned i = 0; i < SEARCHES; i++) {
        soft_names_free(&searches[i].names);
        searches[i].state = FREE;
    }
}

/* The thread is the parent's, and so is what it was about to write: it stays as it is. */
void soft_name_search_forked(void) {
    reading = NULL;
    for (unsigned i = 0; i < SEARCHES; i++) {
        soft_names_free(&searches[i].names);
        searches[i].state = FREE;
    }
}
