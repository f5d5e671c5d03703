/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-stat - the counters of a live process's nodes, read from the shared memory in which each
 * node keeps them; the process is not disturbed. links: static (reads an internal layout)
 *
 * What is printed was copied before (snapshot.h), for it belongs to another process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/stats.h"
#include "common/json.h"
#include "common/options.h"
#include "common/session_rows.h"
#include "common/snapshot.h"
#include "common/tool.h"
#include "common/units.h"

#define NODES_MAX 64
#define LOOK_AGAIN_MS 50 /* whether the process has a node */
#define UNREAD_MAX 20u

/* In the order of the event numbers; the last counts what has no number here. */
static const char *const cm_event_names[STATS_CM_EVENTS] = {
    "ADDR_RESOLVED",  "ADDR_ERROR",        "ROUTE_RESOLVED",
    "ROUTE_ERROR",    "CONNECT_REQUEST",   "CONNECT_RESPONSE",
    "CONNECT_ERROR",  "UNREACHABLE",       "REJECTED",
    "ESTABLISHED",    "DISCONNECTED",      "DEVICE_REMOVAL",
    "MULTICAST_JOIN", "MULTICAST_ERROR",   "ADDR_CHANGE",
    "TIMEWAIT_EXIT",  "ADDRINFO_RESOLVED", "ADDRINFO_ERROR",
    "USER",           "INTERNAL",          "unknown"};

#define STATS_X(name) #name,
static const char *const async_names[STATS_ASYNC_EVENTS] = {STATS_ASYNC_LIST(STATS_X) "unknown"};
#undef STATS_X

struct counter {
    const char *name, *text;
};
#define STATS_X(name, text) {#name, text},
static const struct counter loop_counters[] = {STATS_LOOP_LIST(STATS_X)};
static const struct counter cm_counters[] = {STATS_CM_LIST(STATS_X)};
static const struct counter wakeup_counters[] = {STATS_WAKEUP_LIST(STATS_X)};
static const struct counter memory_counters[] = {STATS_MEMORY_LIST(STATS_X)};
#undef STATS_X

static const char *const pool_names[STATS_POOLS] = {
    [STATS_SEND] = "send", [STATS_RECEIVE] = "receive"};

/* ---- output ------------------------------------------------------------------------------------ */

static void json_counters(struct json *j, const struct counter *list, const uint64_t *values,
                          size_t count) {
    for (size_t i = 0; i < count; i++)
        json_number(j, list[i].name, values[i]);
}

/* The sizes of which there ever were any; bytes 0 is any larger size. */
static void json_buffers(struct json *j, const char *name, const struct snapshot *s,
                         const struct buffers *list) {
    json_list(j, name);
    for (int i = 0; i < STATS_CLASSES; i++) {
        if (list[i].gets == 0 && list[i].puts == 0)
            continue;
        json_object(j, NULL);
        json_number(j, "bytes", s->class_bytes[i]);
        json_number(j, "gets", list[i].gets);
        json_number(j, "puts", list[i].puts);
        json_close_object(j);
    }
    json_close_list(j);
}

static void json_memory(struct json *j, const struct snapshot *s) {
    json_object(j, "memory");
    for (int p = 0; p < STATS_POOLS; p++) {
        json_object(j, pool_names[p]);
        json_signed(j, "numa", s->memory[p].numa);
        json_counters(j, memory_counters, s->memory[p].counters, MEMORY_COUNTERS);
        json_buffers(j, "sizes", s, s->memory[p].all);
        json_buffers(j, "others", s, s->memory[p].others);
        json_close_object(j);
    }
    json_close_object(j);
}

static void print_json(const struct snapshot *s, uint64_t pid) {
    struct json j;
    json_begin(&j, stdout);
    json_number(&j, "pid", pid);
    json_text(&j, "name", s->name);
    json_text(&j, "device", s->device);
    json_number(&j, "age_ns", s->age_ns);
    json_number(&j, "memory_bytes", s->memory_bytes);
    json_object(&j, "total");
    json_counters(&j, loop_counters, s->total, LOOP_COUNTERS);
    json_counters(&j, wakeup_counters, s->total_wakeup, WAKEUP_COUNTERS);
    json_close_object(&j);
    json_list(&j, "loops");
    for (uint32_t i = 0; i < s->loops; i++) {
        json_object(&j, NULL);
        json_signed(&j, "loop", s->loop[i].slot);
        json_signed(&j, "cpu", s->loop[i].cpu);
        json_text(&j, "idle", s->loop[i].idle);
        json_bool(&j, "drained", s->loop[i].drained);
        json_signed(&j, "numa", s->loop[i].numa);
        json_counters(&j, loop_counters, s->loop[i].counters, LOOP_COUNTERS);
        json_counters(&j, wakeup_counters, s->loop[i].wakeup, WAKEUP_COUNTERS);
        for (int p = 0; p < STATS_POOLS; p++)
            json_buffers(&j, pool_names[p], s, s->loop[i].buffers[p]);
        json_close_object(&j);
    }
    json_close_list(&j);
    session_rows_json(&j, &s->sessions);
    json_memory(&j, s);
    json_object(&j, "cm");
    json_counters(&j, cm_counters, s->cm, CM_COUNTERS);
    json_counters(&j, wakeup_counters, s->cm_wakeup, WAKEUP_COUNTERS);
    json_object(&j, "events");
    for (size_t i = 0; i < STATS_CM_EVENTS; i++)
        json_number(&j, cm_event_names[i], s->events[i]);
    json_close_object(&j);
    json_object(&j, "device_events");
    for (size_t i = 0; i < STATS_ASYNC_EVENTS; i++)
        json_number(&j, async_names[i], s->async[i]);
    json_close_object(&j);
    json_close_object(&j);
    json_end(&j);
}

struct ratio {
    const char *name, *text;
    int of, per;
};

static void print_ratio(const struct ratio *ratio, const uint64_t *counters, int width) {
    uint64_t per = counters[ratio->per];
    if (per == 0)
        printf(" %*s", width, "-");
    else
        printf(" %*.2f", width, (double)counters[ratio->of] / (double)per);
}

static void print_ratios(const struct snapshot *s) {
    static const struct ratio ratios[] = {
        {"completions/poll", "completions in one look at the CQ", INDEX_completions, INDEX_polls},
        {"WRs/post", "send work requests rung for at once", INDEX_send_wrs, INDEX_posts},
        {"receives/post", "receives posted at once", INDEX_receive_wrs, INDEX_receive_posts},
        {"messages/post", "messages sent by one post", INDEX_messages_sent, INDEX_posts},
    };
    for (size_t r = 0; r < sizeof ratios / sizeof ratios[0]; r++) {
        printf("  %-21s", ratios[r].name);
        print_ratio(&ratios[r], s->total, 13);
        for (uint32_t i = 0; i < s->loops; i++)
            print_ratio(&ratios[r], s->loop[i].counters, 14);
        printf("   %s\n", ratios[r].text);
    }
}

static void print_policies(const struct snapshot *s) {
    printf("  %-21s %13s", "idle", "");
    for (uint32_t i = 0; i < s->loops; i++)
        printf(" %14s", s->loop[i].idle);
    printf("   what the loop does when there is nothing to do\n");
}

/* Handed out by whom, and not returned by anybody: one row a size. */
static void print_sizes(const struct snapshot *s, int p) {
    for (int i = 0; i < STATS_CLASSES; i++) {
        const struct buffers *all = &s->memory[p].all[i];
        char size[32] = "larger";
        if (all->gets == 0 && all->puts == 0)
            continue;
        if (s->class_bytes[i] != 0)
            units_print_size(size, sizeof size, s->class_bytes[i]);
        printf("  %-21s %13llu", size, (unsigned long long)all->gets);
        for (uint32_t l = 0; l < s->loops; l++)
            printf(" %14llu", (unsigned long long)s->loop[l].buffers[p][i].gets);
        /* Read one after the other while both move. */
        printf("   handed out; %lld not returned\n", (long long)(all->gets - all->puts));
    }
}

static void print_memory(const struct snapshot *s) {
    for (int p = 0; p < STATS_POOLS; p++) {
        printf("memory, %s", pool_names[p]);
        if (s->memory[p].numa >= 0)
            printf(", NUMA node %d", (int)s->memory[p].numa);
        printf("\n");
        for (size_t c = 0; c < MEMORY_COUNTERS; c++)
            printf("  %-21s %13llu   %s\n", memory_counters[c].name,
                   (unsigned long long)s->memory[p].counters[c], memory_counters[c].text);
        print_sizes(s, p);
    }
}

static void print_text(const struct snapshot *s, uint64_t pid) {
    char memory[32];
    units_print_size(memory, sizeof memory, s->memory_bytes);
    printf("node %s of process %llu, device %s, up for %.1f s, %s bytes registered\n", s->name,
           (unsigned long long)pid, s->device, (double)s->age_ns / 1e9, memory);
    printf("%-22s %14s", "loops", "all");
    for (uint32_t i = 0; i < s->loops; i++) {
        char head[32] = "";
        if (s->loop[i].cpu >= 0)
            snprintf(head, sizeof head, "%d (CPU %d)", s->loop[i].slot, (int)s->loop[i].cpu);
        else
            snprintf(head, sizeof head, "%d", s->loop[i].slot);
        printf(" %14s", head);
    }
    printf("\n");
    for (size_t c = 0; c < LOOP_COUNTERS; c++) {
        printf("  %-21s %13llu", loop_counters[c].name, (unsigned long long)s->total[c]);
        for (uint32_t i = 0; i < s->loops; i++)
            printf(" %14llu", (unsigned long long)s->loop[i].counters[c]);
        printf("   %s\n", loop_counters[c].text);
    }
    for (size_t c = 0; c < WAKEUP_COUNTERS; c++) {
        printf("  %-21s %13llu", wakeup_counters[c].name, (unsigned long long)s->total_wakeup[c]);
        for (uint32_t i = 0; i < s->loops; i++)
            printf(" %14llu", (unsigned long long)s->loop[i].wakeup[c]);
        printf("   %s\n", wakeup_counters[c].text);
    }
    printf("  %-21s %13u", "drained", s->drained);
    for (uint32_t i = 0; i < s->loops; i++)
        printf(" %14d", s->loop[i].drained);
    printf("   the loop gets no new sessions\n");
    print_policies(s);
    print_ratios(s);
    session_rows_print(&s->sessions, s->total[INDEX_sessions]);
    print_memory(s);
    printf("connections\n");
    for (size_t c = 0; c < CM_COUNTERS; c++)
        printf("  %-21s %13llu   %s\n", cm_counters[c].name, (unsigned long long)s->cm[c],
               cm_counters[c].text);
    for (size_t c = 0; c < WAKEUP_COUNTERS; c++)
        printf("  %-21s %13llu   %s\n", wakeup_counters[c].name,
               (unsigned long long)s->cm_wakeup[c], wakeup_counters[c].text);
    printf("CM events\n");
    for (size_t c = 0; c < STATS_CM_EVENTS; c++)
        printf("  %-21s %13llu\n", cm_event_names[c], (unsigned long long)s->events[c]);
    printf("device events\n");
    for (size_t c = 0; c < STATS_ASYNC_EVENTS; c++)
        printf("  %-21s %13llu\n", async_names[c], (unsigned long long)s->async[c]);
}

enum { SUM_SESSIONS, SUM_SENT, SUM_RECEIVED, SUM_BYTES_SENT, SUM_BYTES_RECEIVED, SUM_STALLS, SUMS };

/* The watched sums of all nodes of the process, found by name in the counters' own list. */
static void add_sums(uint64_t sums[SUMS], const struct snapshot *s) {
    static const char *const names[SUMS] = {"sessions",   "messages_sent",  "messages_received",
                                            "bytes_sent", "bytes_received", "credit_stalls"};
    for (size_t c = 0; c < LOOP_COUNTERS; c++)
        for (int i = 0; i < SUMS; i++)
            if (strcmp(loop_counters[c].name, names[i]) == 0)
                sums[i] += s->total[c];
}

static double rate(const uint64_t *now, const uint64_t *before, int which, double seconds) {
    /* A node that closed takes its counts with it. */
    return now[which] >= before[which] ? (double)(now[which] - before[which]) / seconds : 0;
}

static void print_watch_row(const uint64_t *now, const uint64_t *before, double seconds,
                            uint64_t row) {
    if (row % 20 == 0)
        printf("%10s %14s %14s %12s %12s %12s\n", "sessions", "sent/s", "received/s", "out MB/s",
               "in MB/s", "stalls/s");
    printf("%10llu %14.0f %14.0f %12.1f %12.1f %12.0f\n", (unsigned long long)now[SUM_SESSIONS],
           rate(now, before, SUM_SENT, seconds), rate(now, before, SUM_RECEIVED, seconds),
           rate(now, before, SUM_BYTES_SENT, seconds) / 1e6,
           rate(now, before, SUM_BYTES_RECEIVED, seconds) / 1e6,
           rate(now, before, SUM_STALLS, seconds));
}

/* ---- reading ----------------------------------------------------------------------------------- */

static int fail_attach(uint64_t pid, int status) {
    unsigned long long id = pid;
    switch (-status) {
    case ESRCH:
        return tool_fail("there is no process %llu", id);
    case EACCES:
    case EPERM:
        return tool_fail("process %llu belongs to another user: run this as its user or as root",
                         id);
    case ENOENT:
        return tool_fail("process %llu has no sluice node open", id);
    case EPROTO:
        return tool_fail("the node of process %llu is of another release than this tool: use the "
                         "sluice-stat of that release",
                         id);
    default:
        return tool_fail("cannot read the counters of process %llu: %s", id, strerror(-status));
    }
}

struct stat_options {
    uint64_t pid, watch_ns;
    bool json, watch, wait;
};

/* Until the process has a node, or ends. */
static int await_node(const struct stat_options *o) {
    const struct stats_page *pages[NODES_MAX];
    int pid_fd = (int)syscall(SYS_pidfd_open, (int)o->pid, 0);
    if (pid_fd < 0)
        return fail_attach(o->pid, -errno);
    struct pollfd end = {.fd = pid_fd, .events = POLLIN};
    int n = 0, ended = 0;
    unsigned unread = 0; /* looks at a page that is not filled in yet, or never will be */
    while (ended <= 0 && !tool_stopped()) {
        n = stats_attach((int)o->pid, pages, NODES_MAX);
        if (n > 0 || (n != 0 && n != -ENOENT && (n != -EPROTO || ++unread > UNREAD_MAX)))
            break;
        ended = poll(&end, 1, LOOK_AGAIN_MS);
    }
    close(pid_fd);
    for (int i = 0; i < n; i++)
        stats_detach(pages[i]);
    if (n > 0)
        return 0;
    if (ended > 0)
        return tool_fail("process %llu has ended, and had no sluice node open",
                         (unsigned long long)o->pid);
    return tool_stopped() ? TOOL_FAILED : fail_attach(o->pid, n);
}

/* Reads all nodes once. sums may be NULL: then every node is printed. */
static int read_nodes(const struct stat_options *o, uint64_t *sums) {
    static struct snapshot snapshot;
    const struct stats_page *pages[NODES_MAX];
    int n = stats_attach((int)o->pid, pages, NODES_MAX);
    if (n == 0)
        n = -ENOENT;
    if (n < 0)
        return fail_attach(o->pid, n);
    for (int i = 0; i < n; i++) {
        snapshot_take(&snapshot, pages[i]);
        stats_detach(pages[i]);
        if (sums != NULL)
            add_sums(sums, &snapshot);
        if (sums == NULL || o->json) {
            if (o->json)
                print_json(&snapshot, o->pid);
            else
                print_text(&snapshot, o->pid);
        }
    }
    return 0;
}

/* One row (or, as JSON, one object a node) per interval, until the process ends. */
static int watch(const struct stat_options *o) {
    int pid_fd = (int)syscall(SYS_pidfd_open, (int)o->pid, 0);
    if (pid_fd < 0)
        return fail_attach(o->pid, -errno);
    uint64_t before[SUMS] = {0};
    uint64_t read_ns = sluice_now();
    int rc = read_nodes(o, before);
    for (uint64_t row = 0; rc == 0 && (rc = tool_flush()) == 0; row++) {
        struct pollfd end = {.fd = pid_fd, .events = POLLIN};
        uint64_t due = read_ns + o->watch_ns, now = sluice_now();
        struct timespec left = {0};
        if (due > now)
            left = (struct timespec){.tv_sec = (time_t)((due - now) / 1000000000),
                                     .tv_nsec = (long)((due - now) % 1000000000)};
        int ended = ppoll(&end, 1, &left, NULL);
        if (tool_stopped())
            break;
        if (ended > 0) {
            tool_note("process %llu has ended", (unsigned long long)o->pid);
            break;
        }
        uint64_t sums[SUMS] = {0};
        now = sluice_now();
        rc = read_nodes(o, sums);
        if (rc == 0 && !o->json)
            print_watch_row(sums, before, (double)(now - read_ns) / 1e9, row);
        memcpy(before, sums, sizeof before);
        read_ns = now;
    }
    close(pid_fd);
    return rc;
}

int main(int argc, char **argv) {
    struct stat_options o = {0};
    const char *operand = NULL;
    const struct option list[] = {
        {0, "json", NULL, OPTION_FLAG, &o.json, NULL, 0, 0, NULL, "one JSON object per node"},
        {0, "wait", NULL, OPTION_FLAG, &o.wait, NULL, 0, 0, NULL,
         "wait until the process has a node"},
        {0, "watch", "SECONDS", OPTION_SECONDS, &o.watch_ns, &o.watch, 10000000,
         UINT64_C(86400) * 1000000000, NULL,
         "again and again: what changed per second, until the process ends"},
    };
    struct options options = {.about = "counters of the nodes of a live process",
                              .usage = "[options] PID",
                              .list = list,
                              .count = sizeof list / sizeof list[0],
                              .operands = &operand,
                              .operands_max = 1};
    tool_start("sluice-stat");
    int rc = options_main(&options, argc, argv);
    if (rc >= 0)
        return rc;
    if (operand == NULL)
        return tool_end(tool_usage("say which process: its PID is missing"));
    if (!units_number(operand, &o.pid) || o.pid == 0 || o.pid > INT32_MAX)
        return tool_end(tool_usage("'%.60s' is not a process id", operand));
    rc = o.wait ? await_node(&o) : 0;
    if (rc == 0)
        rc = o.watch ? watch(&o) : read_nodes(&o, NULL);
    return tool_end(rc);
}
