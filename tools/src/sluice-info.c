/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-info - opens a node as a program would and says what came of it: which device and why,
 * how its threads are woken, where the workers and the memory are, the budget, and the limits.
 */
#include <stdio.h>
#include <string.h>

#include "common/json.h"
#include "common/options.h"
#include "common/tool.h"
#include "common/units.h"

#define WORKERS_MAX 64

static uint32_t workers_shown(const sluice_node_info *info) {
    return info->workers < WORKERS_MAX ? info->workers : WORKERS_MAX;
}

/* A limit that is none is left out. */
static void json_limit(struct json *j, const char *name, uint64_t value) {
    if (value != UINT64_MAX)
        json_number(j, name, value);
}

static void print_json_limits(struct json *j, const sluice_node_info *info) {
    json_object(j, "limits");
    json_limit(j, "memlock_bytes", info->memlock_bytes);
    json_bool(j, "memlock_exempt", info->memlock_exempt != 0);
    json_limit(j, "cgroup_bytes", info->cgroup_bytes);
    json_limit(j, "files_max", info->files_max);
    json_number(j, "files", info->files);
    json_list(j, "huge_pages");
    for (uint32_t i = 0; i < info->huge_count; i++) {
        json_object(j, NULL);
        json_signed(j, "numa", info->huge[i].numa);
        json_number(j, "page_bytes", (uint64_t)1 << info->huge[i].page_log2);
        json_number(j, "total", info->huge[i].total);
        json_number(j, "free", info->huge[i].free);
        json_close_object(j);
    }
    json_close_list(j);
    json_close_object(j);
}

static void print_json(const sluice_node_info *info) {
    uint32_t version = sluice_version();
    char text[32];
    snprintf(text, sizeof text, "%u.%u.%u", version >> 16, version >> 8 & 255, version & 255);
    struct json j;
    json_begin(&j, stdout);
    json_text(&j, "version", text);
    json_text(&j, "device", info->device);
    json_bool(&j, "software", info->software != 0);
    json_text(&j, "why", info->why);
    json_text(&j, "wake", info->wake);
    json_list(&j, "worker_cpus");
    for (uint32_t i = 0; i < workers_shown(info); i++)
        json_signed(&j, NULL, info->worker_cpu[i]);
    json_close_list(&j);
    json_list(&j, "worker_numa");
    for (uint32_t i = 0; i < workers_shown(info); i++)
        json_signed(&j, NULL, info->worker_numa[i]);
    json_close_list(&j);
    json_number(&j, "message_bytes_max", info->message_bytes_max);
    json_number(&j, "eager_bytes", info->eager_bytes);
    json_number(&j, "inline_bytes", info->inline_bytes);
    json_number(&j, "memory_bytes_max", info->memory_bytes_max);
    json_number(&j, "memory_bytes", info->memory_bytes);
    json_signed(&j, "device_numa", info->device_numa);
    json_signed(&j, "memory_numa", info->memory_numa);
    json_text(&j, "other_hosts", info->other_hosts);
    json_text(&j, "placement", info->placement);
    json_text(&j, "memory_pages", info->memory);
    json_text(&j, "receive_memory_pages", info->receive_memory);
    json_number(&j, "sessions_max", info->sessions_max);
    json_object(&j, "budget");
    json_number(&j, "send_bytes_max", info->memory_bytes_max - info->receive_bytes_max);
    json_number(&j, "receive_bytes_max", info->receive_bytes_max);
    json_number(&j, "session_bytes", info->session_bytes);
    json_number(&j, "sessions_bytes", info->sessions_bytes);
    json_number(&j, "sessions_bytes_full", info->sessions_bytes_full);
    json_close_object(&j);
    print_json_limits(&j, info);
    json_end(&j);
}

static void print_size(const char *label, uint64_t bytes, const char *what) {
    char text[32];
    units_print_size(text, sizeof text, bytes);
    printf("%-10s %s %s\n", label, text, what);
}

static void print_budget(const sluice_node_info *info) {
    print_size("budget", info->memory_bytes_max - info->receive_bytes_max,
               "bytes for allocating and sending");
    print_size("", info->receive_bytes_max, "bytes for receiving");
    print_size("", info->session_bytes, "bytes of that a session has at least");
    print_size("", info->sessions_bytes, "bytes all sessions have at least");
    print_size("", info->sessions_bytes_full, "bytes all sessions would take with all credits");
}

static void print_limits(const sluice_node_info *info) {
    if (info->software != 0)
        printf("%-10s none on locked memory: this device locks none (`ulimit -l`)\n", "limits");
    else if (info->memlock_bytes == UINT64_MAX || info->memlock_exempt != 0)
        printf("%-10s none on locked memory (`ulimit -l`)\n", "limits");
    else
        print_size("limits", info->memlock_bytes, "bytes may be locked (`ulimit -l`)");
    if (info->cgroup_bytes != UINT64_MAX)
        print_size("", info->cgroup_bytes, "bytes of memory for the cgroup");
    else
        printf("%-10s no limit of the cgroup on memory\n", "");
    if (info->software != 0)
        printf("%-10s memory is anonymous files: /dev/shm is no limit, the cgroup's is\n", "");
    if (info->files_max != UINT64_MAX)
        printf("%-10s %llu of %llu descriptors are open (`ulimit -n`)\n", "",
               (unsigned long long)info->files, (unsigned long long)info->files_max);
    for (uint32_t i = 0; i < info->huge_count; i++)
        printf("%-10s NUMA node %d: %llu of %llu pages of %llu KiB are free\n", "",
               info->huge[i].numa, (unsigned long long)info->huge[i].free,
               (unsigned long long)info->huge[i].total, 1ull << (info->huge[i].page_log2 - 10));
}

static void print_numa(const sluice_node_info *info) {
    printf("%-10s %s\n", "placement", info->placement);
    if (info->device_numa >= 0)
        printf("%-10s the device is on NUMA node %d\n", "", info->device_numa);
    else
        printf("%-10s %s\n", "",
               info->software != 0 ? "the device is on no NUMA node"
                                   : "on which NUMA node the device is is not known here");
    if (info->memory_numa >= 0)
        printf("%-10s memory is to be on NUMA node %d\n", "", info->memory_numa);
    else
        printf("%-10s memory is bound to no NUMA node\n", "");
}

static void print_text(const sluice_node_info *info) {
    printf("%-10s %s%s\n", "device", info->device,
           info->software != 0 ? " (software: figures are not those of a NIC)" : "");
    printf("%-10s %s\n", "why", info->why);
    printf("%-10s %s\n", "hosts", info->other_hosts);
    printf("%-10s %s\n", "wake", info->wake);
    printf("%-10s %u", "workers", info->workers);
    for (uint32_t i = 0; i < workers_shown(info); i++) {
        printf("%s", i == 0 ? ", on " : ", ");
        if (info->worker_cpu[i] < 0)
            printf("no CPU of its own");
        else if (info->worker_numa[i] < 0)
            printf("CPU %d", info->worker_cpu[i]);
        else
            printf("CPU %d (NUMA node %d)", info->worker_cpu[i], info->worker_numa[i]);
    }
    printf("\n");
    print_numa(info);
    print_size("messages", info->message_bytes_max, "bytes at most");
    print_size("frames", info->eager_bytes, "bytes travel in one frame, header included");
    print_size("inline", info->inline_bytes, "bytes are handed to the device by value");
    print_size("memory", info->memory_bytes_max, "bytes of registered memory at most");
    print_size("", info->memory_bytes, "bytes of it are registered by an idle node");
    printf("%-10s for sending: %s\n", "arenas", info->memory);
    printf("%-10s for receiving: %s\n", "", info->receive_memory);
    printf("%-10s %u at most\n", "sessions", info->sessions_max);
    print_budget(info);
    print_limits(info);
}

int main(int argc, char **argv) {
    const char *device = NULL;
    bool json = false, have_workers = false;
    uint64_t workers = 0;
    const struct option list[] = {
        {0, "device", "NAME", OPTION_TEXT, &device, NULL, 0, 0, NULL,
         "auto, soft, or the name of an RDMA device"},
        {0, "workers", "N", OPTION_NUMBER, &workers, &have_workers, 0, WORKERS_MAX, NULL,
         "as a program with that many workers (default: the library's)"},
        {0, "json", NULL, OPTION_FLAG, &json, NULL, 0, 0, NULL, "one JSON object"},
    };
    struct options options = {.about = "which device a node would use here, why, and its limits",
                              .usage = "[options]",
                              .list = list,
                              .count = sizeof list / sizeof list[0]};
    tool_start("sluice-info");
    int rc = options_main(&options, argc, argv);
    if (rc >= 0)
        return rc;
    sluice_node *node;
    sluice_error error;
    sluice_node_options o = {.size = sizeof o, .name = tool_name(), .device = device};
    o.workers = have_workers && workers == 0 ? SLUICE_NO_WORKERS : (uint32_t)workers;
    if (sluice_open(&node, &o, &error) != 0)
        return tool_end(tool_fail("cannot open a node: %s", error.text));
    sluice_node_info info = {.size = sizeof info};
    int status = sluice_node_get_info(node, &info);
    sluice_close(node, 0);
    if (status != 0)
        return tool_end(tool_fail("cannot read the node: %s", sluice_strerror(status)));
    if (json)
        print_json(&info);
    else
        print_text(&info);
    return tool_end(0);
}
