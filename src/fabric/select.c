/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * select.c - which fabric and which device serve a node.
 *
 * Looks at what there is now and keeps nothing: device lists are freed and contexts closed again
 * before it returns. Callable from any thread.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "fabric/select.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/dropin.h"

/* What is behind a name on one fabric. */
enum finding {
    FOUND_NONE,
    FOUND_DOWN, /* it exists, but no port is active or it cannot be opened */
    FOUND_UP,
};

static void explain(struct fabric_choice *choice, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Appends to choice->why; what does not fit is cut off. */
static void explain(struct fabric_choice *choice, const char *format, ...) {
    size_t used = strlen(choice->why);
    va_list args;
    va_start(args, format);
    vsnprintf(choice->why + used, sizeof choice->why - used, format, args);
    va_end(args);
}

static bool has_active_port(const struct fabric_ops *ops, struct ibv_device *device) {
    struct ibv_context *ctx = ops->open_device(device);
    if (!ctx)
        return false;
    bool active = false;
    struct ibv_device_attr attr;
    if (ops->query_device(ctx, &attr) == 0) {
        for (unsigned port = 1; port <= attr.phys_port_cnt && !active; port++) {
            struct ibv_port_attr port_attr;
            active = ops->query_port(ctx, (uint8_t)port, &port_attr) == 0 &&
                     port_attr.state == IBV_PORT_ACTIVE;
        }
    }
    ops->close_device(ctx);
    return active;
}

/*
 * Looks for a device: of this name, or of any name (NULL), then preferring one that is up. Only a
 * NIC is asked for its ports; the software device is always up.
 */
static enum finding find_device(const struct fabric_ops *ops, const char *name, char found[64]) {
    int count = 0;
    struct ibv_device **list = ops->get_device_list(&count);
    if (!list)
        return FOUND_NONE; /* no RDMA support at all reads like no device */
    enum finding best = FOUND_NONE;
    for (int i = 0; i < count && best != FOUND_UP; i++) {
        const char *device = ops->get_device_name(list[i]);
        if (!device || (name && strcmp(device, name) != 0))
            continue;
        enum finding finding =
            ops->software || has_active_port(ops, list[i]) ? FOUND_UP : FOUND_DOWN;
        if (finding > best) {
            best = finding;
            snprintf(found, 64, "%s", device);
        }
    }
    ops->free_device_list(list);
    return best;
}

/* Names what could have been chosen, behind a refusal. */
static void explain_devices(const struct fabric_ops *ops, struct fabric_choice *choice,
                            unsigned *named) {
    int count = 0;
    struct ibv_device **list = ops->get_device_list(&count);
    if (!list)
        return;
    for (int i = 0; i < count; i++) {
        const char *device = ops->get_device_name(list[i]);
        if (device)
            explain(choice, "%s%s", (*named)++ ? ", " : "", device);
    }
    ops->free_device_list(list);
}

static int take(struct fabric_choice *choice, const struct fabric_ops *ops) {
    const char *like = ops->get_profile ? ops->get_profile() : NULL;
    if (like)
        explain(choice, ", told to be like %s (SLUICE_SOFT_PROFILE)", like);
    choice->ops = ops;
    return 0;
}

static int refuse(struct fabric_choice *choice) {
    choice->ops = NULL;
    choice->device[0] = '\0';
    errno = ENODEV;
    return -1;
}

static int choose_auto(const struct fabric_ops *system, const struct fabric_ops *soft,
                       struct fabric_choice *choice) {
    char nic[64] = "";
    enum finding finding = find_device(system, NULL, nic);
    if (finding == FOUND_UP) {
        memcpy(choice->device, nic, sizeof nic);
        explain(choice, "auto: an RDMA NIC with an active port");
        return take(choice, system);
    }
    if (finding == FOUND_DOWN)
        explain(choice, "auto: no RDMA NIC has an active port (%s)", nic);
    else
        explain(choice, "auto: no RDMA NIC here");
    if (find_device(soft, NULL, choice->device) != FOUND_UP) {
        explain(choice, ", and the software device is not available");
        return refuse(choice);
    }
    explain(choice, ", so the software device");
    return take(choice, soft);
}

static int choose_soft(const struct fabric_ops *soft, const char *asked,
                       struct fabric_choice *choice) {
    if (find_device(soft, NULL, choice->device) != FOUND_UP) {
        explain(choice, "the software device is not available");
        return refuse(choice);
    }
    explain(choice, "asked for the software device%s", asked);
    return take(choice, soft);
}

static int choose_named(const struct fabric_ops *system, const struct fabric_ops *soft,
                        const char *name, const char *asked, struct fabric_choice *choice) {
    const struct fabric_ops *fabrics[] = {system, soft};
    for (int i = 0; i < 2; i++) {
        switch (find_device(fabrics[i], name, choice->device)) {
        case FOUND_UP:
            explain(choice, "asked for by name%s", asked);
            return take(choice, fabrics[i]);
        case FOUND_DOWN:
            explain(choice, "device %.64s%s has no active port or cannot be opened", name, asked);
            return refuse(choice);
        case FOUND_NONE:
            break;
        }
    }
    unsigned named = 0;
    explain(choice, "no device \"%.48s\"%s; there is: ", name, asked);
    explain_devices(system, choice, &named);
    explain_devices(soft, choice, &named);
    if (!named)
        explain(choice, "none");
    return refuse(choice);
}

int fabric_choose_between(const struct fabric_ops *system, const struct fabric_ops *soft,
                          const char *spec, const char *env, struct fabric_choice *choice) {
    memset(choice, 0, sizeof *choice);
    const char *asked = "";
    if (!spec || strcmp(spec, "auto") == 0) {
        spec = "auto";
        if (env && *env && strcmp(env, "auto") != 0) {
            spec = env;
            asked = " (SLUICE_DEVICE)";
        }
    }
    if (strcmp(spec, "auto") == 0)
        return choose_auto(system, soft, choice);
    if (strcmp(spec, "soft") == 0)
        return choose_soft(soft, asked, choice);
    return choose_named(system, soft, spec, asked, choice);
}

int fabric_choose(const char *spec, struct fabric_choice *choice) {
    struct fabric_pair here = fabric_pair_here();
    return fabric_choose_between(here.system, here.soft, spec, secure_getenv("SLUICE_DEVICE"),
                                 choice);
}
