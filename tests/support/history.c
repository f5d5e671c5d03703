/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* history.c - see history.h. */
#include "support/history.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sluice/sluice.h>

/* ---- files --------------------------------------------------------------------------------------- */

static bool map(struct history *h, int fd, uint32_t most) {
    void *at = mmap(NULL, most * sizeof *h->at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    *h = (struct history){.at = at == MAP_FAILED ? NULL : at, .most = most};
    return h->at != NULL;
}

bool history_create(struct history *h, const char *path, uint32_t most) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)(most * sizeof *h->at)) != 0)
        return false;
    return map(h, fd, most);
}

bool history_read(struct history *h, const char *path) {
    struct stat is;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &is) != 0 ||
        !map(h, fd, (uint32_t)((size_t)is.st_size / sizeof *h->at)))
        return false;
    while (h->count < h->most && h->at[h->count].what != HISTORY_NOTHING)
        h->count++;
    return true;
}

void history_close(struct history *h) {
    munmap(h->at, h->most * sizeof *h->at);
}

void history_add(struct history *h, enum history_what what, enum history_kind kind, uint32_t number,
                 int status) {
    if (h->count == h->most)
        return;
    h->at[h->count++] =
        (struct history_record){(uint8_t)what, (uint8_t)kind, (int16_t)status, number};
}

/* ---- what must be so ------------------------------------------------------------------------------ */

/* All that is known of one thing that was given. */
struct fate {
    uint32_t given_at, told_at; /* its records */
    uint32_t events;            /* DOWN and UP before it was given */
    int16_t status;
    uint8_t kind;
    bool told, arrived;
};

struct checking {
    struct fate *fates;
    uint32_t count;  /* of these */
    uint32_t number; /* of what is wrong */
    bool closed;
};

static const char *read_given(struct checking *c, const struct history *h) {
    uint32_t events = 0;
    for (uint32_t i = 0; i < h->count; i++) {
        const struct history_record *is = &h->at[i];
        struct fate *fate = &c->fates[is->number];
        c->number = is->number;
        if (is->what == HISTORY_DOWN || is->what == HISTORY_UP)
            events++;
        else if (is->what == HISTORY_CLOSED)
            c->closed = true;
        if (is->what == HISTORY_GIVEN) {
            if (is->number != c->count)
                return "given without its number";
            *fate = (struct fate){.given_at = i, .events = events, .kind = is->kind};
            c->count++;
        }
        if (is->what != HISTORY_TOLD)
            continue;
        if (is->number >= c->count || is->kind != fate->kind)
            return "told of what was not given";
        if (fate->told)
            return "told twice";
        fate->told = true;
        fate->told_at = i;
        fate->status = is->status;
    }
    return NULL;
}

static const char *read_arrived(struct checking *c, const struct history *h) {
    int64_t last = -1;
    for (uint32_t i = 0; i < h->count; i++) {
        const struct history_record *is = &h->at[i];
        if (is->what != HISTORY_ARRIVED)
            continue;
        c->number = is->number;
        if (is->number >= c->count || c->fates[is->number].kind != is->kind)
            return "arrived without having been given";
        struct fate *fate = &c->fates[is->number];
        if (fate->arrived)
            return "arrived twice";
        fate->arrived = true;
        if (is->kind == HISTORY_PUT)
            continue;
        if (is->number < last)
            return "arrived behind what was given later";
        last = is->number;
    }
    return NULL;
}

/* What was told of it, and whether it arrived. */
static const char *judge(const struct checking *c, const struct fate *fate) {
    if (!fate->told)
        return "without an outcome";
    switch ((sluice_status)fate->status) {
    case SLUICE_OK:
        return fate->arrived ? NULL : "done, and did not arrive";
    case SLUICE_EUNKNOWN:
        if (c->closed || fate->kind == HISTORY_PUT)
            return NULL;
        if (fate->kind == HISTORY_MESSAGE)
            return "unknown in a session that lives";
        return fate->arrived ? NULL : "unknown to who asked, and did not arrive";
    case SLUICE_ECLOSED:
        if (!c->closed)
            return "closed in a session that lives";
        return fate->arrived ? "never left, and arrived" : NULL;
    case SLUICE_EFENCED:
        return fate->arrived ? "fenced off, and arrived" : NULL;
    case SLUICE_ETIMEDOUT:
    case SLUICE_ECANCELLED:
        if (fate->kind == HISTORY_REQUEST)
            return NULL;
        return fate->arrived ? "given up, and arrived" : NULL;
    case SLUICE_EAGAIN:
    case SLUICE_EREJECTED:
    case SLUICE_EINVAL:
    case SLUICE_ENOMEM:
    case SLUICE_EMSGSIZE:
    case SLUICE_EDEVICE:
    case SLUICE_EFORKED:
    case SLUICE_EADDRESS:
    case SLUICE_ELIMIT:
    case SLUICE_EACCESS:
        break;
    }
    return "with an outcome that it cannot have";
}

/* It arrived, so each put before it was done; but for those that were known to have failed, or to be lost, when it was given. */
static bool is_before_its_puts(const struct checking *c, uint32_t number) {
    const struct fate *fate = &c->fates[number];
    for (uint32_t k = 0; k < number; k++) {
        const struct fate *put = &c->fates[k];
        if (put->kind == HISTORY_PUT && !put->arrived && put->events == fate->events &&
            !(put->told && put->told_at < fate->given_at))
            return true;
    }
    return false;
}

const char *history_wrong(const struct history *given, const struct history *other,
                          uint32_t *number) {
    struct checking c = {.fates = calloc((size_t)given->most + 1, sizeof *c.fates)};
    const char *wrong = c.fates ? NULL : "no memory to look at it";
    if (!wrong && (given->count == given->most || other->count == other->most))
        wrong = "a history that is full";
    for (uint32_t i = 0; !wrong && i < given->count; i++)
        if (given->at[i].number >= given->most)
            wrong = "a number that is too large";
    if (!wrong && !(wrong = read_given(&c, given)))
        wrong = read_arrived(&c, other);
    for (uint32_t i = 0; !wrong && i < c.count; i++) {
        c.number = i;
        if (!(wrong = judge(&c, &c.fates[i])) && c.fates[i].arrived &&
            c.fates[i].kind != HISTORY_PUT && is_before_its_puts(&c, i))
            wrong = "arrived before a put that it was behind was done";
    }
    *number = c.number;
    free(c.fates);
    return wrong;
}
