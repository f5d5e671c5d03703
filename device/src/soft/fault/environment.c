/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* environment.c - see environment.h. Any thread. */
#define _GNU_SOURCE /* secure_getenv */
#include "soft/fault/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soft/fault/plan.h"

static bool is_first(void) {
    static atomic_bool told;
    return !atomic_exchange(&told, true);
}

void soft_fault_tell(const char *outcome, const struct soft_plan_error *error) {
    if (is_first())
        fprintf(stderr, "sluice: SLUICE_SOFT_FAULTS is %s: line %u, column %u: %s\n", outcome,
                error->line, error->column, error->reason);
}

/* The file's text, or NULL and errno. */
static char *read_file(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    char *text = malloc(SOFT_PLAN_BYTES + 1);
    size_t at = 0;
    ssize_t got = 1;
    while (text && got > 0 && at <= SOFT_PLAN_BYTES) {
        got = read(fd, text + at, SOFT_PLAN_BYTES + 1 - at);
        at += got > 0 ? (size_t)got : 0;
    }
    int error = !text ? ENOMEM : got < 0 ? errno : at > SOFT_PLAN_BYTES ? EFBIG : 0;
    if (!error && memchr(text, 0, at))
        error = EINVAL;
    close(fd);
    if (error) {
        free(text);
        errno = error;
        return NULL;
    }
    text[at] = '\0';
    return text;
}

/* The plan. NULL and errno: there is none (0), none that can be read, or one that is wrong (EINVAL, and *error). */
static struct soft_plan *read_plan(struct soft_plan_error *error, const char **path) {
    const char *text = secure_getenv("SLUICE_SOFT_FAULTS");
    char *file = NULL;
    *path = NULL;
    errno = 0;
    if (!text || !*text)
        return NULL;
    if (*text == '@') {
        file = read_file(text + 1);
        if (!file) {
            *path = text + 1;
            return NULL;
        }
    }
    struct soft_plan *plan = soft_plan_parse(file ? file : text, error);
    free(file);
    errno = plan ? 0 : EINVAL;
    return plan;
}

struct soft_plan *soft_fault_environment(void) {
    struct soft_plan_error error;
    const char *path;
    return read_plan(&error, &path);
}

bool soft_fault_refused(void) {
    struct soft_plan_error error;
    const char *path;
    struct soft_plan *plan = read_plan(&error, &path);
    bool wrong = !plan && errno != 0;
    if (wrong && path && is_first())
        fprintf(stderr, "sluice: SLUICE_SOFT_FAULTS is refused: %s: %s\n", path, strerror(errno));
    else if (wrong && !path)
        soft_fault_tell("refused", &error);
    free(plan);
    if (wrong)
        errno = EINVAL;
    return wrong;
}
