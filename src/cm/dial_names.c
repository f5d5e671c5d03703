/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_names.c - the addresses of the name that a dial is to.
 *
 *   RESOLVING_NAME -> addresses -> first round of tries -> ... -> all failed -> pause -> the next round
 *                                                                                 with SLUICE_WAIT: RESOLVING_NAME again
 *
 * A dial with SLUICE_WAIT looks its name up before each round, so it finds a listener that comes up, or comes back, at another
 * address. Tries that are under way meanwhile go on, unless the name has other addresses now. A lookup that fails or takes long
 * delays such a dial by LATER_LOOKUP_NS at most: then the addresses that are known are tried again.
 *
 * Owner: the CM thread.
 */
#include <errno.h>
#include <netdb.h>
#include <string.h>

#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/context.h"
#include "core/failure_text.h"

#define LATER_LOOKUP_NS 2000000000ull

/* At the first name. */
static int open_resolver(struct cm *cm) {
    int error = resolver_open(&cm->resolver, cm->mailbox, cm->node->fabric, &cm->node->env);
    struct rdma_event_channel *channel = error == 0 ? resolver_channel(cm->resolver) : NULL;
    /* If it cannot be watched, its events wait until their lookups are answered. */
    if (channel)
        (void)event_source_open(&cm->names_source, cm->epoll_fd, channel->fd, cm->resolver);
    return error;
}

void cm_names_ask(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    int error = 0;
    bool known = conn->candidate_count > 0;
    conn->pausing = false;
    cm_enter(cm, conn, CM_RESOLVING_NAME);
    cm_watch_step(cm, conn, known ? cm->now_ns + LATER_LOOKUP_NS : 0);
    if (!cm->resolver)
        error = open_resolver(cm);
    if (error == 0)
        error = resolver_ask(cm->resolver, conn);
    if (error != 0 && known)
        cm_round_begin(cm, conn);
    else if (error != 0)
        cm_try_failed(cm, conn, cm_waits(conn) ? CM_HOPE_LATER : CM_HOPE_NONE,
                      failure_text_reason_of_call(-error), (uint32_t)-error,
                      "%.80s cannot be looked up: %s", conn->host, strerror(-error));
}

static void not_found(struct cm *cm, struct cm_conn *conn, const struct cm_names *names) {
    int own = names->error == EAI_MEMORY ? ENOMEM : names->os_errno;
    if (conn->candidate_count >
        0) { /* it had addresses before, and the listener may still be there */
        cm_round_begin(cm, conn);
        return;
    }
    cm_try_failed(cm, conn, cm_waits(conn) ? CM_HOPE_LATER : CM_HOPE_NONE,
                  own ? failure_text_reason_of_call(own) : SLUICE_REASON_ADDRESS, (uint32_t)own,
                  "%.80s: %s", conn->host,
                  names->os_errno ? strerror(own) : resolver_text(names->error));
}

/* In whatever order: name servers turn the list round. */
static bool has_the_same(const struct cm_conn *conn, const struct cm_names *names) {
    unsigned known = 0;
    for (unsigned i = 0; i < names->count; i++)
        for (unsigned k = 0; k < conn->candidate_count; k++)
            known += address_equal(&names->addresses[i], &conn->candidates[k]);
    return known == names->count && names->count == conn->candidate_count;
}

static void found(struct cm *cm, struct cm_conn *conn, struct cm_names *names) {
    for (unsigned i = 0; i < names->count; i++)
        names->addresses[i].v4.sin_port = htons(conn->port); /* the same place in both families */
    if (!has_the_same(conn, names)) {
        cm_race_end(cm, conn);
        memcpy(conn->candidates, names->addresses, names->count * sizeof *names->addresses);
        conn->candidate_count = (uint8_t)names->count;
    }
    cm_round_begin(cm, conn);
}

unsigned cm_take_names(struct cm *cm) {
    cm_assert_thread(cm);
    unsigned count = 0;
    struct cm_names names;
    struct cm_lookup *lookup;
    struct cm_conn *conn;
    while (cm->resolver && (lookup = resolver_take(cm->resolver))) {
        struct rdma_event_channel *channel = resolver_channel(cm->resolver);
        int error;
        count++;
        /* rdma_cm's event for the lookup may not have been reported as readable yet. */
        while (channel && cm_take_events(cm, channel, &error) > 0)
            ;
        resolver_answer(cm->resolver, lookup, &names);
        while ((conn = resolver_next(lookup))) {
            if (names.error != 0)
                not_found(cm, conn, &names);
            else
                found(cm, conn, &names);
        }
    }
    return count;
}
