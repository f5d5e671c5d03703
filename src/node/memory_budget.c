/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* memory_budget.c - the budget of a node's sessions, and the words for what does not fit. Pure functions. */
#include "node/memory_budget.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t kib(uint64_t bytes) {
    return bytes / 1024 + (bytes % 1024 != 0);
}

#define DEFAULT_EIGHTHS                                                                            \
    5 /* of the reserve, for the first receives of sessions whose number is not chosen */

struct bound {
    uint64_t bytes;
    const char *name;   /* "RLIMIT_MEMLOCK is" */
    const char *remedy; /* with one %llu, in KiB: what to do, beside lowering sessions_max */
    int error;
    bool shared; /* with what sessions have beyond their least: by default they leave some of it */
};

/* Too small a bound: an error if the caller chose so many sessions, else there are fewer. */
static int fit(struct memory_budget *need, const struct memory_budget_input *in,
               const struct bound *bound, char *text, size_t size) {
    uint64_t bytes = need->session_bytes * need->sessions;
    uint64_t most =
        bound->shared && !in->chosen ? bound->bytes / 8 * DEFAULT_EIGHTHS : bound->bytes;
    if (bytes <= most)
        return 0;
    if (!in->chosen && need->session_bytes <= bound->bytes) {
        need->sessions = (uint32_t)(most / need->session_bytes);
        need->sessions += need->sessions == 0;
        return 0;
    }
    int used =
        snprintf(text, size,
                 "%u sessions x %u x %" PRIu64 " bytes need %" PRIu64 " KiB, %s %" PRIu64 " KiB: ",
                 need->sessions, in->depth, in->frame, kib(bytes), bound->name, kib(bound->bytes));
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "%s, or lower sessions_max", bound->remedy);
    return bound->error;
}

/*
 * Fewer than a queue could hold, where the caller does not say how many: so half of it is left over for sessions that want more of
 * it than they are promised. One queue pair is for finding out what the device grants.
 */
static int fit_device(struct memory_budget *need, const struct memory_budget_input *in, char *text,
                      size_t size) {
    uint32_t pairs = in->queue_pairs ? in->queue_pairs - 1 : UINT32_MAX;
    uint32_t hold = in->queue_entries ? in->queue_entries / in->session_entries : UINT32_MAX;
    if (!in->chosen) {
        uint32_t most = pairs < hold / 2 ? pairs : hold / 2;
        if (need->sessions > most && most > 0)
            need->sessions = most;
        if (most > 0)
            return 0; /* else even one is too many */
        need->sessions = 1;
    }
    if (need->sessions > pairs)
        snprintf(text, size,
                 "%u sessions need as many queue pairs and one more, the device has %u: lower "
                 "sessions_max to %u",
                 need->sessions, in->queue_pairs, pairs);
    else if (need->sessions > hold)
        snprintf(text, size,
                 "%u sessions x %u completions need a queue of %" PRIu64
                 ", the device's have %u: lower sessions_max to %u",
                 need->sessions, in->session_entries,
                 (uint64_t)need->sessions * in->session_entries, in->queue_entries, hold);
    else
        return 0;
    return -EINVAL;
}

uint64_t memory_budget_huge_free(const struct limits *limits, unsigned log2, int numa) {
    uint64_t pages = 0;
    for (uint32_t i = 0; i < limits->huge_count; i++)
        if (limits->huge[i].page_log2 == log2 && (numa < 0 || limits->huge[i].numa == numa))
            pages += limits->huge[i].free;
    return pages;
}

/*
 * Warns where huge pages do not last for all of it. That is no error while there are any. Each
 * of the two parts has pages of its own.
 */
static void warn_huge(struct memory_budget *need, const struct memory_budget_input *in) {
    uint64_t page = (uint64_t)1 << in->huge_log2, receive = in->receive_bytes_max;
    uint64_t send = in->memory_bytes_max - receive, wanted = send / page + receive / page;
    uint64_t have = memory_budget_huge_free(in->limits, in->huge_log2, in->numa);
    if (in->huge_log2 == 0)
        return;
    if (wanted == 0)
        snprintf(need->warning, sizeof need->warning,
                 "pages of %" PRIu64
                 " KiB are larger than either part of memory_bytes_max, %" PRIu64 " and %" PRIu64
                 " KiB: raise it; smaller pages serve",
                 page >> 10, kib(send), kib(receive));
    else if (have < wanted)
        snprintf(need->warning, sizeof need->warning,
                 "memory_bytes_max is %" PRIu64 " pages of %" PRIu64 " KiB, and %" PRIu64
                 " are free: raise hugepages-%" PRIu64 "kB/nr_hugepages by %" PRIu64
                 "; other pages serve",
                 wanted, page >> 10, have, page >> 10, wanted - have);
}

static void warn(struct memory_budget *need, const struct memory_budget_input *in,
                 uint64_t memlock) {
    if (in->memory_bytes_max > memlock) {
        need->serious = true;
        snprintf(need->warning, sizeof need->warning,
                 "memory_bytes_max is %" PRIu64 " KiB, but only %" PRIu64
                 " KiB may be locked (RLIMIT_MEMLOCK): `ulimit -l %" PRIu64
                 "` or LimitMEMLOCK= raises it",
                 kib(in->memory_bytes_max), kib(memlock), kib(in->memory_bytes_max));
    } else if (in->memory_bytes_max > in->limits->cgroup) {
        snprintf(need->warning, sizeof need->warning,
                 "memory_bytes_max is %" PRIu64 " KiB, but the cgroup may have %" PRIu64
                 " KiB: lower it, or raise memory.max",
                 kib(in->memory_bytes_max), kib(in->limits->cgroup));
    } else {
        warn_huge(need, in);
    }
}

/* Descriptors that the node itself opens must be possible; too few for sessions to as many processes is a warning. */
static int fit_files(struct memory_budget *need, const struct memory_budget_input *in, char *text,
                     size_t size) {
    uint64_t max = in->limits->files_max, open = in->limits->files;
    uint64_t most = open + in->files + (uint64_t)in->files_peer * need->sessions;
    if (max == LIMITS_NONE)
        return 0;
    if (open + in->files > max) {
        snprintf(text, size,
                 "a node opens %u files, %" PRIu64 " are open and RLIMIT_NOFILE is %" PRIu64
                 ": `ulimit -n %" PRIu64 "` or LimitNOFILE= raises it",
                 in->files, open, max, most);
        return -EMFILE;
    }
    if (most > max)
        snprintf(need->files, sizeof need->files,
                 "%u sessions with as many processes need %" PRIu64
                 " files, RLIMIT_NOFILE is %" PRIu64 ": `ulimit -n %" PRIu64
                 "` or LimitNOFILE= raises it",
                 need->sessions, most, max, most);
    return 0;
}

int memory_budget_make(struct memory_budget *need, const struct memory_budget_input *in, char *text,
                       size_t size) {
    memset(need, 0, sizeof *need);
    need->sessions = in->sessions;
    need->session_bytes = in->depth * in->frame;
    uint64_t memlock = in->locks && !in->limits->memlock_exempt ? in->limits->memlock : LIMITS_NONE;
    char ulimit[64];
    snprintf(ulimit, sizeof ulimit, "`ulimit -l %" PRIu64 "`", kib(in->memory_bytes_max));
    uint64_t receive = in->receive_bytes_max; /* less what cutting loses */
    if (in->frames_max > 0 && in->frames_max * in->frame < receive)
        receive = in->frames_max * in->frame;
    const struct bound bounds[] = {
        {receive, "receive_bytes_max has room for", "raise it", -EINVAL, true},
        {memlock, "RLIMIT_MEMLOCK is", ulimit, -ENOMEM, false},
        {in->limits->cgroup, "the cgroup's memory.max is", "raise it", -ENOMEM, false},
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        int error = fit(need, in, &bounds[i], text, size);
        if (error != 0)
            return error;
    }
    int error = fit_device(need, in, text, size);
    if (error == 0)
        error = fit_files(need, in, text, size);
    if (error != 0)
        return error;
    need->receive_bytes = need->session_bytes * need->sessions;
    need->receive_bytes_full = in->frame * in->full * need->sessions;
    warn(need, in, memlock);
    return 0;
}
