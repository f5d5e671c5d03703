/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_search.h - names of our own user, looked for among all that there are.
 *
 * Any process can make any number of names, and reading them takes as long. So the control lock is free meanwhile: a
 * call that may wait gives it up; for the engine, which may not wait, a thread reads, and the engine asks again.
 *
 * Owner: the control lock, but for soft_name_search_stop().
 */
#ifndef SOFT_IPC_NAME_SEARCH_H
#define SOFT_IPC_NAME_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/ipc/abstract_socket.h"

struct soft_name_search {
    char begin[SOFT_NAME_BYTES];
    bool (*fits)(const char *text, uint32_t number); /* NULL: all do; called without any lock */
    uint32_t number;
    bool listed; /* ours as the kernel lists it, or unknown; no process is asked */
};
struct soft_names {
    unsigned count;
    char (*text)[SOFT_NAME_BYTES];
};

/* Finds names of our user's processes that fit, as they were at some moment of the call. Gives the control lock up. */
void soft_name_search_now(const struct soft_name_search *what, struct soft_names *found);
/*
 * soft_name_search_now() for callers that may not wait: -EINPROGRESS until it is known, then 0, once. The caller asks again;
 * soft_name_search_if_done() says when it is worth while.
 */
int soft_name_search_ask(const struct soft_name_search *what, struct soft_names *found);
void soft_names_free(struct soft_names *names);

bool soft_name_search_if_done(void); /* engine thread, every turn */
void soft_name_search_stop(void);    /* without the lock; no caller asks any more */
void soft_name_search_forked(void);

#endif
