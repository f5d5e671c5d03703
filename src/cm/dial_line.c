/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* dial_line.c - the dials to one address: those that ask, and those that wait. Owner: the CM thread, see dial_line.h. */
#include "cm/dial_line.h"

#include <stdlib.h>
#include <string.h>

#include "cm/internal.h"

/* Of one address; it is there while a dial asks or waits. */
struct dial_line {
    struct cds_list_head chain, due; /* due: alone, or in that list */
    struct cds_list_head waiting;    /* the longest first */
    union address address;
    uint32_t asking, waits;
};

static uint32_t chain_of(const union address *a) {
    const uint8_t *bytes = (const uint8_t *)&a->v4.sin_addr;
    size_t count = sizeof a->v4.sin_addr;
    uint32_t hash = a->v4.sin_port; /* the same place in both families */
    if (a->any.sa_family == AF_INET6) {
        bytes = (const uint8_t *)&a->v6.sin6_addr;
        count = sizeof a->v6.sin6_addr;
    }
    for (size_t i = 0; i < count; i++)
        hash = hash * 31 + bytes[i];
    return hash % DIAL_LINE_CHAINS;
}

static struct dial_line *find_line(struct cm *cm, const union address *address) {
    struct dial_line *line;
    cds_list_for_each_entry(line, &cm->dials.chains[chain_of(address)], chain) {
        if (address_equal(&line->address, address))
            return line;
    }
    return NULL;
}

/* NULL: out of memory. */
static struct dial_line *line_of(struct cm *cm, const union address *address) {
    struct dial_line *line = find_line(cm, address);
    if (line)
        return line;
    line = calloc(1, sizeof *line);
    if (!line)
        return NULL;
    line->address = *address;
    CDS_INIT_LIST_HEAD(&line->waiting);
    CDS_INIT_LIST_HEAD(&line->due);
    cds_list_add(&line->chain, &cm->dials.chains[chain_of(address)]);
    return line;
}

static void forget_if_unused(struct dial_line *line) {
    if (line->asking > 0 || line->waits > 0)
        return;
    cds_list_del(&line->chain);
    cds_list_del(&line->due);
    free(line);
}

void dial_lines_init(struct cm *cm) {
    cm_assert_thread(cm);
    for (unsigned i = 0; i < DIAL_LINE_CHAINS; i++)
        CDS_INIT_LIST_HEAD(&cm->dials.chains[i]);
    CDS_INIT_LIST_HEAD(&cm->dials.due);
    cm->dials.most = DIAL_LINE_ASKING;
}

void dial_lines_close(struct cm *cm) {
    struct dial_line *line, *next;
    for (unsigned i = 0; i < DIAL_LINE_CHAINS; i++)
        cds_list_for_each_entry_safe(line, next, &cm->dials.chains[i], chain) {
            ASSERT(!cds_list_empty(&cm->conns));
            free(line);
        }
}

/* ---- asking and waiting ----------------------------------------------------------------------- */

static bool has_room(const struct cm *cm, const struct dial_line *line) {
    return line->asking < cm->dials.most && line->waits == 0;
}

bool dial_line_is_full(struct cm *cm, const union address *address) {
    cm_assert_thread(cm);
    const struct dial_line *line = find_line(cm, address);
    return line && !has_room(cm, line);
}

bool dial_line_join(struct cm *cm, struct cm_conn *conn) {
    cm_assert_thread(cm);
    struct dial_line *line = line_of(cm, &conn->candidates[conn->search.candidate]);
    ASSERT(!conn->dial_line);
    if (!line)
        return true; /* it is counted nowhere */
    conn->dial_line = line;
    if (has_room(cm, line)) {
        line->asking++;
        conn->has_turn = true;
        return true;
    }
    line->waits++;
    cds_list_add_tail(&conn->line, &line->waiting);
    cm_enter(cm, conn, CM_IN_LINE);
    return false;
}

/* From the request to the end of the handshake. */
static bool is_asking(enum cm_state state) {
    switch (state) {
    case CM_CONNECTING:
    case CM_MODIFYING_QP:
    case CM_HANDSHAKE:
        return true;
    case CM_IDLE:
    case CM_REMOVAL_WATCH:
    case CM_RESOLVING_ADDRINFO:
    case CM_LISTENING:
    case CM_RESOLVING_NAME:
    case CM_BACKOFF:
    case CM_RESOLVING_ADDR:
    case CM_RESOLVING_ROUTE:
    case CM_CREATING_QP:
    case CM_IN_LINE:
    case CM_AWAITING_APP:
    case CM_QUEUED:
    case CM_CREATING_QP_PASSIVE:
    case CM_ACCEPTING:
    case CM_UP:
    case CM_FAILED:
    case CM_RELEASED:
    case CM_STATE_COUNT:
        break;
    }
    return false;
}

void dial_line_move(struct cm *cm, struct cm_conn *conn, enum cm_state state) {
    cm_assert_thread(cm);
    struct dial_line *line = conn->dial_line;
    if (!line || is_asking(state) || state == CM_IN_LINE)
        return;
    conn->dial_line = NULL;
    if (!conn->has_turn) {
        cds_list_del(&conn->line);
        line->waits--;
    } else {
        conn->has_turn = false;
        line->asking--;
        if (cds_list_empty(&line->due) && line->waits > 0)
            cds_list_add_tail(&line->due, &cm->dials.due);
    }
    forget_if_unused(line);
}

unsigned dial_lines_progress(struct cm *cm) {
    cm_assert_thread(cm);
    unsigned count = 0;
    while (!cds_list_empty(&cm->dials.due)) {
        struct dial_line *line = cds_list_first_entry(&cm->dials.due, struct dial_line, due);
        cds_list_del_init(&line->due);
        line->waits++; /* it stays while its dials may fail */
        while (line->waits > 1 && line->asking < cm->dials.most) {
            struct cm_conn *conn = cds_list_first_entry(&line->waiting, struct cm_conn, line);
            cds_list_del(&conn->line);
            line->waits--;
            line->asking++;
            conn->has_turn = true;
            cm_dial_turn(cm, conn);
            count++;
        }
        line->waits--;
        forget_if_unused(line);
    }
    return count;
}
