/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* limit_text.c - limits and remedies in words. */
#include "pool/limit_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/limits.h"

static uint64_t kib(uint64_t bytes) {
    return bytes / 1024 + (bytes % 1024 != 0);
}

static bool is_refusal(int error) {
    return error == ENOMEM || error == EPERM || error == EAGAIN;
}

static void explain_huge(char *text, size_t size, const struct limit_text *s) {
    uint64_t page = (uint64_t)1 << s->huge_log2;
    /* By so many for this pool: there are others, and what others have is not known here. */
    uint64_t all = s->bytes_max / page + (s->bytes_max % page != 0);
    snprintf(text, size,
             "%" PRIu64 " KiB are not to be had on pages of %" PRIu64 " KiB, others serve;"
             " raise hugepages-%" PRIu64 "kB/nr_hugepages by %" PRIu64 " (SLUICE_HUGE_PAGES)",
             kib(s->need), page >> 10, page >> 10, all);
}

static void explain_memlock(char *text, size_t size, const struct limit_text *s, uint64_t memlock) {
    uint64_t wanted = s->bytes_max != UINT64_MAX ? s->bytes_max : memlock + s->need;
    snprintf(text, size,
             "%" PRIu64 " KiB cannot be registered: the limit on locked memory is %" PRIu64
             " KiB (RLIMIT_MEMLOCK); `ulimit -l %" PRIu64 "` or LimitMEMLOCK= raises it",
             kib(s->need), kib(memlock), kib(wanted));
}

void limit_text_explain(char *text, size_t size, const struct limit_text *s) {
    uint64_t memlock = s->locks ? limits_memlock() : LIMITS_NONE;
    if (s->huge_log2 > 0)
        explain_huge(text, size, s);
    else if (s->need > s->bytes_max)
        snprintf(text, size,
                 "%" PRIu64 " KiB are needed and memory_bytes_max allows %" PRIu64 " KiB: raise it",
                 kib(s->need), kib(s->bytes_max));
    else if (is_refusal(s->error) && memlock < s->bytes_max)
        explain_memlock(text, size, s, memlock);
    else if (s->error == EMFILE || s->error == ENFILE)
        snprintf(text, size, "%" PRIu64 " KiB cannot be had: %s; %s", kib(s->need),
                 strerror(s->error),
                 s->error == EMFILE ? "`ulimit -n` or LimitNOFILE= raises the limit of this process"
                                    : "sysctl fs.file-max raises the limit of the system");
    else if (s->error == EFBIG)
        snprintf(text, size,
                 "%" PRIu64
                 " KiB cannot be had: shared memory is a file, and files are limited to %" PRIu64
                 " KiB (RLIMIT_FSIZE); `ulimit -f unlimited` or LimitFSIZE= raises it",
                 kib(s->need), kib(limits_file_bytes()));
    else if (is_refusal(s->error) && limits_memory() < s->need)
        snprintf(text, size,
                 "%" PRIu64 " KiB cannot be had: this machine, or its cgroup, has %" PRIu64
                 " KiB of memory",
                 kib(s->need), kib(limits_memory()));
    else
        snprintf(text, size,
                 "%" PRIu64 " KiB cannot be registered: %s; no limit of this process is in the way",
                 kib(s->need), strerror(s->error));
}
