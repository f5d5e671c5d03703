/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * select.c - chooses the fabric and the device of a node.
 *
 * Looks at the devices that are there now and keeps no state: device lists are freed and contexts closed again
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
#include "fabric/fast.h"

/* The devices of one fabric that have a name, or any name; the first of each kind. */
struct finding {
    char up[64];             /* or empty: there is none */
    char down[64], shut[64]; /* no port is active; it cannot be opened */
    int error;               /* behind `shut`; without it, of the list itself */
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

/* 0, and whether one is active; or the errno with which it cannot be known. */
static int look_at_ports(const struct fabric_ops *ops, struct ibv_device *device, bool *active) {
    *active = false;
    errno = 0;
    struct ibv_context *ctx = ops->open_device(device);
    if (!ctx)
        return errno ? errno : EIO;
    struct ibv_device_attr attr;
    int error = ops->query_device(ctx, &attr);
    for (unsigned port = 1; error == 0 && port <= attr.phys_port_cnt && !*active; port++) {
        struct ibv_port_attr port_attr;
        *active = ops->query_port(ctx, (uint8_t)port, &port_attr) == 0 &&
                  port_attr.state == IBV_PORT_ACTIVE;
    }
    ops->close_device(ctx);
    return error < 0 ? EIO : error;
}

static void note(char kept[64], const char *device) {
    if (!*kept)
        snprintf(kept, 64, "%s", device);
}

/*
 * Looks for a device: of this name, or of any name (NULL), and stops at one that is up. Only a NIC is asked
 * for its ports; the software device is always up.
 */
static struct finding find_device(const struct fabric_ops *ops, const char *name) {
    struct finding found = {.error = 0};
    int count = 0;
    errno = 0;
    struct ibv_device **list = ops->get_device_list(&count);
    if (!list) {
        /* No RDMA support at all reads like no device. */
        found.error = errno == ENOSYS || errno == ENODEV || errno == ENOENT ? 0 : errno;
        return found;
    }
    for (int i = 0; i < count && !*found.up; i++) {
        const char *device = ops->get_device_name(list[i]);
        bool active = true;
        if (!device || (name && strcmp(device, name) != 0))
            continue;
        int error = fabric_is_software(ops) ? 0 : look_at_ports(ops, list[i], &active);
        if (error != 0 && !*found.shut)
            found.error = error;
        note(error != 0 ? found.shut : active ? found.up : found.down, device);
    }
    ops->free_device_list(list);
    return found;
}

/* Behind "auto: " or for a name: what there was, and why it is not taken; false: there was nothing. */
static bool explain_finding(struct fabric_choice *choice, const struct finding *found,
                            const char *what, const char *asked) {
    if (*found->down)
        explain(choice, "%s %s%s has no active port", what, found->down, asked);
    if (*found->shut)
        explain(choice, "%s%s %s%s cannot be opened: %s", *found->down ? ", " : "", what,
                found->shut, asked, strerror(found->error));
    else if (found->error != 0)
        explain(choice, "the RDMA devices cannot be listed: %s", strerror(found->error));
    return *found->down || found->error != 0;
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
    const char *like = fabric_profile(ops);
    if (like)
        explain(choice, ", with the profile of %s (SLUICE_SOFT_PROFILE)", like);
    choice->ops = ops;
    return 0;
}

static int refuse(struct fabric_choice *choice, int error) {
    choice->ops = NULL;
    choice->device[0] = '\0';
    errno = error;
    return -1;
}

static int choose_auto(const struct fabric_ops *system, const struct fabric_ops *soft,
                       struct fabric_choice *choice) {
    struct finding nic = find_device(system, NULL);
    if (*nic.up) {
        memcpy(choice->device, nic.up, sizeof nic.up);
        explain(choice, "auto: an RDMA NIC with an active port");
        return take(choice, system);
    }
    explain(choice, "auto: ");
    if (!explain_finding(choice, &nic, "RDMA NIC", ""))
        explain(choice, "no RDMA NIC here");
    struct finding own = find_device(soft, NULL);
    if (!*own.up) {
        explain(choice, ", and the software device is not available");
        return refuse(choice, ENODEV);
    }
    memcpy(choice->device, own.up, sizeof own.up);
    explain(choice, ", so the software device");
    return take(choice, soft);
}

static int choose_soft(const struct fabric_ops *soft, const char *asked,
                       struct fabric_choice *choice) {
    struct finding own = find_device(soft, NULL);
    if (!*own.up) {
        explain(choice, "the software device is not available");
        return refuse(choice, ENODEV);
    }
    memcpy(choice->device, own.up, sizeof own.up);
    explain(choice, "asked for the software device%s", asked);
    return take(choice, soft);
}

static int choose_named(const struct fabric_ops *system, const struct fabric_ops *soft,
                        const char *name, const char *asked, struct fabric_choice *choice) {
    const struct fabric_ops *fabrics[] = {system, soft};
    int unlisted = 0;
    for (int i = 0; i < 2; i++) {
        struct finding found = find_device(fabrics[i], name);
        if (*found.up) {
            memcpy(choice->device, found.up, sizeof found.up);
            explain(choice, "asked for by name%s", asked);
            return take(choice, fabrics[i]);
        }
        if (*found.down || *found.shut) {
            explain_finding(choice, &found, "device", asked);
            return refuse(choice, *found.shut ? found.error : ENODEV);
        }
        unlisted = unlisted ? unlisted : found.error;
    }
    if (unlisted) { /* it may well be there */
        explain(choice, "device %.48s%s: the RDMA devices cannot be listed: %s", name, asked,
                strerror(unlisted));
        return refuse(choice, unlisted);
    }
    unsigned named = 0;
    explain(choice, "no device \"%.48s\"%s; there is: ", name, asked);
    explain_devices(system, choice, &named);
    explain_devices(soft, choice, &named);
    if (!named)
        explain(choice, "none");
    return refuse(choice, ENODEV);
}

int fabric_select_between(const struct fabric_ops *system, const struct fabric_ops *soft,
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

int fabric_select(const char *spec, struct fabric_choice *choice) {
    struct fabric_pair here = fabric_preloaded_pair();
    return fabric_select_between(here.system, here.soft, spec, secure_getenv("SLUICE_DEVICE"),
                                 choice);
}
