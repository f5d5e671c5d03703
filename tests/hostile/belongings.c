/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* belongings.c - see belongings.h. Buffers are exact while nobody gets or puts any. */
#include "support/pool_stats.h"
#include "support/side.h"

#include "common/sanitize.h"
#include "hostile/belongings.h"
#include "node/node.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/untrusted_fd.h"
#include "support/tasks.h"
#include "support/usage.h"

/* What pools and the C library may keep; a sanitizer keeps what is freed, to see whether it is used. */
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
#define RESIDENT_MORE ((size_t)512 << 20)
#else
#define RESIDENT_MORE ((size_t)48 << 20)
#endif
#define CLOSER "sluice-close"
#define GROWER "sluice-mem" /* comes with a pool's first growth, and stays */
#define GROWN "/memfd:sluice-region"

static unsigned count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    must(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL; n++) {
        char to[sizeof GROWN] = "";
        if (readlinkat(dirfd(dir), entry->d_name, to, sizeof to - 1) > 0 && !strcmp(to, GROWN))
            n--;
    }
    closedir(dir);
    return n;
}

struct belongings belongings_count(sluice_node *const *nodes, unsigned count) {
    struct belongings b = {.resident = usage_resident()};
    soft_lock(); /* the engine is not in the middle of something that has one */
    b.fds = count_fds();
    b.threads = tasks_not_named(CLOSER) - tasks_named(GROWER);
    soft_unlock();
    b.late = soft_untrusted_fd_pending() + tasks_named(CLOSER);
    for (unsigned i = 0; i < count; i++) {
        sluice_node_info info = {.size = sizeof info};
        must(sluice_node_get_info(nodes[i], &info) == 0);
        must(info.memory_bytes <= info.memory_bytes_max);
        b.sessions += info.sessions;
        b.registered += info.memory_bytes;
        b.buffers += pool_in_use(nodes[i]->pool);
    }
    return b;
}

bool belongings_returned(const struct belongings *now, const struct belongings *before) {
    return now->late == 0 && now->fds <= before->fds && now->threads == before->threads &&
           now->sessions == before->sessions && now->buffers <= before->buffers &&
           now->resident <= before->resident + RESIDENT_MORE;
}

static void tell(const struct belongings *b, const char *when) {
    fprintf(stderr,
            "%s: fds %u, threads %u, late %u, sessions %u, buffers %llu, registered %llu, resident "
            "%zu\n",
            when, b->fds, b->threads, b->late, b->sessions, (unsigned long long)b->buffers,
            (unsigned long long)b->registered, b->resident);
}

void belongings_tell(const struct belongings *now, const struct belongings *before) {
    tell(before, "before");
    tell(now, "now");
}
