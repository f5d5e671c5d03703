/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * history.h - what a process has given to a session, what it was told of that, and what came, in a file that is right at any
 * moment; and what two such histories, of the two ends of a session, must have in common.
 *
 * Whatever one end gives has a number: one more than what it gave before, of whatever kind. Owner: the thread that writes.
 */
#ifndef TESTS_SUPPORT_HISTORY_H
#define TESTS_SUPPORT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum history_what {
    HISTORY_NOTHING, /* the end of the file */
    HISTORY_GIVEN,   /* a call was accepted */
    HISTORY_TOLD,    /* its outcome: status */
    HISTORY_ARRIVED, /* what the other end gave; of a put: it is in place when all is over */
    HISTORY_DOWN,    /* the session's events; CLOSED: status */
    HISTORY_UP,
    HISTORY_CLOSED,
};

enum history_kind {
    HISTORY_MESSAGE,
    HISTORY_REQUEST, /* TOLD is its reply */
    HISTORY_PUT,     /* each into a place of its own */
};

struct history_record {
    uint8_t what, kind;
    int16_t status;
    uint32_t number;
};

struct history {
    struct history_record *at;
    uint32_t count, most;
};

/* A new file, with room for so many records. False: errno. */
bool history_create(struct history *h, const char *path, uint32_t most);
/* The file of another process, which may still write. False: errno. */
bool history_read(struct history *h, const char *path);
void history_close(struct history *h);
/* Does nothing when there is no room left: then the history is wrong. */
void history_add(struct history *h, enum history_what what, enum history_kind kind, uint32_t number,
                 int status);
/*
 * What one end gave, by its own history and by that of the other, which are whole. NULL, or what cannot be; *number: of what.
 */
const char *history_wrong(const struct history *given, const struct history *other,
                          uint32_t *number);

#endif
