/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-info - opens a node as a program would and says what came of it: which device and why,
 * how its threads are woken, where the workers run, and the limits.
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
    json_number(&j, "message_bytes_max", info->message_bytes_max);
    json_number(&j, "eager_bytes", info->eager_bytes);
    json_number(&j, "inline_bytes", info->inline_bytes);
    json_number(&j, "memory_bytes_max", info->memory_bytes_max);
    json_number(&j, "memory_bytes", info->memory_bytes);
    json_number(&j, "sessions_max", info->sessions_max);
    json_end(&j);
}

static void print_size(const char *label, uint64_t bytes, const char *what) {
    char text[32];
    units_print_size(text, sizeof text, bytes);
    printf("%-10s %s %s\n", label, text, what);
}

static void print_text(const sluice_node_info *info) {
    printf("%-10s %s%s\n", "device", info->device,
           info->software != 0 ? " (software: figures are not those of a NIC)" : "");
    printf("%-10s %s\n", "why", info->why);
    printf("%-10s %s\n", "wake", info->wake);
    printf("%-10s %u", "workers", info->workers);
    for (uint32_t i = 0; i < workers_shown(info); i++) {
        printf("%s", i == 0 ? ", on " : ", ");
        if (info->worker_cpu[i] >= 0)
            printf("CPU %d", info->worker_cpu[i]);
        else
            printf("no CPU of its own");
    }
    printf("\n");
    print_size("messages", info->message_bytes_max, "bytes at most");
    print_size("frames", info->eager_bytes, "bytes travel in one frame, header included");
    print_size("inline", info->inline_bytes, "bytes are handed to the device by value");
    print_size("memory", info->memory_bytes_max, "bytes of registered memory at most");
    print_size("", info->memory_bytes, "bytes of it are registered by an idle node");
    printf("%-10s %u at most\n", "sessions", info->sessions_max);
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
