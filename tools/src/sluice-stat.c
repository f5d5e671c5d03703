/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-stat - the counters of a live process's nodes, read from the shared memory in which each
 * node keeps them; the process is not disturbed. links: static (reads an internal layout)
 *
 * What is read belongs to another process: each counter is loaded once, text is cut and cleaned.
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
#include "common/tool.h"
#include "common/units.h"

#define NODES_MAX 64

/* In the order of the event numbers; the last counts what has no number here. */
static const char *const cm_event_names[STATS_CM_EVENTS] = {
    "ADDR_RESOLVED",  "ADDR_ERROR",        "ROUTE_RESOLVED",
    "ROUTE_ERROR",    "CONNECT_REQUEST",   "CONNECT_RESPONSE",
    "CONNECT_ERROR",  "UNREACHABLE",       "REJECTED",
    "ESTABLISHED",    "DISCONNECTED",      "DEVICE_REMOVAL",
    "MULTICAST_JOIN", "MULTICAST_ERROR",   "ADDR_CHANGE",
    "TIMEWAIT_EXIT",  "ADDRINFO_RESOLVED", "ADDRINFO_ERROR",
    "USER",           "INTERNAL",          "unknown"};

struct counter {
    const char *name, *text;
};
#define STATS_X(name, text) {#name, text},
static const struct counter loop_counters[] = {STATS_LOOP_LIST(STATS_X)};
static const struct counter cm_counters[] = {STATS_CM_LIST(STATS_X)};
#undef STATS_X
#define LOOP_COUNTERS (sizeof loop_counters / sizeof loop_counters[0])
#define CM_COUNTERS (sizeof cm_counters / sizeof cm_counters[0])

/* A private copy of one node's page. */
struct snapshot {
    char name[64], device[64];
    uint64_t age_ns, memory_bytes;
    uint64_t cm[CM_COUNTERS], events[STATS_CM_EVENTS];
    uint32_t loops, drained;
    struct {
        int slot;
        int64_t cpu;
        bool drained;
        uint64_t counters[LOOP_COUNTERS];
    } loop[STATS_LOOPS_MAX];
    uint64_t total[LOOP_COUNTERS];
};

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)

static void copy_text(char out[64], const char *in) {
    memcpy(out, in, 64);
    out[63] = '\0';
    for (char *at = out; *at != '\0'; at++)
        if (*at < ' ' || *at == 0x7f)
            *at = '?';
}

static void take_loop(struct snapshot *s, const struct stats_loop *loop, int slot) {
    uint64_t *out = s->loop[s->loops].counters;
    s->loop[s->loops].slot = slot;
    s->loop[s->loops].cpu = LOAD(loop->cpu);
    s->loop[s->loops].drained = LOAD(loop->drained) != 0;
    s->drained += s->loop[s->loops].drained;
    size_t i = 0;
#define STATS_X(name, text) out[i++] = LOAD(loop->name);
    STATS_LOOP_LIST(STATS_X)
#undef STATS_X
    for (i = 0; i < LOOP_COUNTERS; i++)
        s->total[i] += out[i];
    s->loops++;
}

static void take_snapshot(struct snapshot *s, const struct stats_page *page) {
    memset(s, 0, sizeof *s);
    copy_text(s->name, page->name);
    copy_text(s->device, page->device);
    uint64_t now = sluice_now(), start = page->start_ns;
    s->age_ns = now > start ? now - start : 0;
    s->memory_bytes = LOAD(page->memory_bytes);
    size_t i = 0;
#define STATS_X(name, text) s->cm[i++] = LOAD(page->cm.name);
    STATS_CM_LIST(STATS_X)
#undef STATS_X
    for (i = 0; i < STATS_CM_EVENTS; i++)
        s->events[i] = LOAD(page->cm.events[i]);
    for (int slot = 0; slot < STATS_LOOPS_MAX; slot++)
        if (LOAD(page->loops[slot].in_use) != 0)
            take_loop(s, &page->loops[slot], slot);
}

/* ---- output ------------------------------------------------------------------------------------ */

static void json_counters(struct json *j, const struct counter *list, const uint64_t *values,
                          size_t count) {
    for (size_t i = 0; i < count; i++)
        json_number(j, list[i].name, values[i]);
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
    json_close_object(&j);
    json_list(&j, "loops");
    for (uint32_t i = 0; i < s->loops; i++) {
        json_object(&j, NULL);
        json_signed(&j, "loop", s->loop[i].slot);
        json_signed(&j, "cpu", s->loop[i].cpu);
        json_bool(&j, "drained", s->loop[i].drained);
        json_counters(&j, loop_counters, s->loop[i].counters, LOOP_COUNTERS);
        json_close_object(&j);
    }
    json_close_list(&j);
    json_object(&j, "cm");
    json_counters(&j, cm_counters, s->cm, CM_COUNTERS);
    json_object(&j, "events");
    for (size_t i = 0; i < STATS_CM_EVENTS; i++)
        json_number(&j, cm_event_names[i], s->events[i]);
    json_close_object(&j);
    json_close_object(&j);
    json_end(&j);
}

static void print_text(const struct snapshot *s, uint64_t pid) {
    char memory[32];
    units_print_size(memory, sizeof memory, s->memory_bytes);
    printf("node %s of process %llu, device %s, up for %.1f s, %s bytes registered\n", s->name,
           (unsigned long long)pid, s->device, (double)s->age_ns / 1e9, memory);
    printf("%-18s %14s", "loops", "all");
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
        printf("  %-17s %13llu", loop_counters[c].name, (unsigned long long)s->total[c]);
        for (uint32_t i = 0; i < s->loops; i++)
            printf(" %14llu", (unsigned long long)s->loop[i].counters[c]);
        printf("   %s\n", loop_counters[c].text);
    }
    printf("  %-17s %13u", "drained", s->drained);
    for (uint32_t i = 0; i < s->loops; i++)
        printf(" %14d", s->loop[i].drained);
    printf("   the loop gets no new sessions\n");
    printf("connections\n");
    for (size_t c = 0; c < CM_COUNTERS; c++)
        printf("  %-17s %13llu   %s\n", cm_counters[c].name, (unsigned long long)s->cm[c],
               cm_counters[c].text);
    printf("CM events\n");
    for (size_t c = 0; c < STATS_CM_EVENTS; c++)
        printf("  %-17s %13llu\n", cm_event_names[c], (unsigned long long)s->events[c]);
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
        return tool_fail("process %llu belongs to somebody else: run this as its user or as root",
                         id);
    case ENOENT:
        return tool_fail("process %llu has no sluice node open", id);
    case EPROTO:
        return tool_fail("the node of process %llu is of another release than this tool", id);
    default:
        return tool_fail("cannot read the counters of process %llu: %s", id, strerror(-status));
    }
}

struct stat_options {
    uint64_t pid, watch_ns;
    bool json, watch;
};

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
        take_snapshot(&snapshot, pages[i]);
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
    return tool_end(o.watch ? watch(&o) : read_nodes(&o, NULL));
}
