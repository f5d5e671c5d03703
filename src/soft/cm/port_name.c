/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port_name.c - names of bound ports: written, read back, listed. No state, any thread.
 */
#include "soft/cm/port_name.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "soft/cm/addr.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"
#include "soft/verbs/profile.h"

/*
 * A device that is like iWARP is on a network of its own: it does not find the others, nor they it. In
 * that it is like the real one.
 */
#define PREFIX "sluice-soft.1/cm/"
#define PREFIX_IWARP "sluice-soft.1/tcp/"

static const char *prefix(void) {
    return soft_profile()->iwarp ? PREFIX_IWARP : PREFIX;
}

static void format_addr(const struct sockaddr *addr, char text[40]) {
    union ibv_gid gid;
    soft_cm_addr_gid(addr, &gid);
    int from = addr->sa_family == AF_INET ? 12 : 0;
    if (soft_cm_addr_is_any(addr)) {
        strcpy(text, "any");
        return;
    }
    for (int i = from; i < 16; i++)
        sprintf(text + 2 * (i - from), "%02x", gid.raw[i]);
}

void soft_cm_port_name_format(const struct soft_cm_port_name *name, uint64_t unique,
                              char text[SOFT_CM_NAME_BYTES]) {
    char addr[40];
    format_addr((const struct sockaddr *)&name->addr, addr);
    char family = name->addr.ss_family == AF_INET ? '4' : name->afonly ? 'o' : '6';
    int used = snprintf(text, SOFT_CM_NAME_BYTES, "%s%x/%c%s/%u", prefix(), (unsigned)name->ps,
                        family, addr, name->port);
    if (name->reuse)
        snprintf(text + used, SOFT_CM_NAME_BYTES - (size_t)used, "/r%016llx-%llx",
                 (unsigned long long)soft_peer_own_number(), (unsigned long long)unique);
}

static bool parse_addr(char family, const char *text, size_t len, struct soft_cm_port_name *name) {
    bool four = family == '4';
    if (!four && family != '6' && family != 'o')
        return false;
    name->afonly = family != '6';
    soft_cm_addr_any(&name->addr, four ? AF_INET : AF_INET6);
    if (len == 3 && !memcmp(text, "any", 3))
        return true;
    uint8_t *bytes = four ? (uint8_t *)&((struct sockaddr_in *)&name->addr)->sin_addr
                          : (uint8_t *)&((struct sockaddr_in6 *)&name->addr)->sin6_addr;
    size_t want = four ? 4 : 16;
    if (len != 2 * want)
        return false;
    for (size_t i = 0; i < want; i++) {
        unsigned value;
        if (sscanf(text + 2 * i, "%2x", &value) != 1)
            return false;
        bytes[i] = (uint8_t)value;
    }
    return true;
}

/* Whether this is how it is written: without its suffix, where several share a port. */
static bool is_written(const char *text, const struct soft_cm_port_name *name) {
    struct soft_cm_port_name plain = *name;
    char again[SOFT_CM_NAME_BYTES];
    plain.reuse = false;
    soft_cm_port_name_format(&plain, 0, again);
    size_t length = strlen(again);
    if (strncmp(text, again, length))
        return false;
    return name->reuse ? text[length] == '/' && text[length + 1] == 'r' : !text[length];
}

/* Any user can create sockets with any name: accept nothing but what soft_cm_port_name_format writes. */
static bool parse(const char *text, struct soft_cm_port_name *name) {
    memset(name, 0, sizeof *name);
    size_t skip = strlen(prefix());
    if (strncmp(text, prefix(), skip))
        return false;
    char *end;
    name->ps = (int)strtoul(text + skip, &end, 16);
    if (*end != '/' || !end[1])
        return false;
    const char *addr = end + 1;
    const char *slash = strchr(addr, '/');
    if (!slash || !parse_addr(*addr, addr + 1, (size_t)(slash - addr - 1), name))
        return false;
    unsigned long port = strtoul(slash + 1, &end, 10);
    if (end == slash + 1 || port > UINT16_MAX)
        return false;
    name->port = (uint16_t)port;
    name->reuse = end[0] == '/' && end[1] == 'r';
    return is_written(text, name);
}

struct scan {
    int ps;
    uint16_t port;
    bool (*see)(const char *text, const struct soft_cm_port_name *name, void *arg);
    void *arg;
};

static bool see_text(const char *text, void *arg) {
    const struct scan *scan = arg;
    struct soft_cm_port_name name;
    return !parse(text, &name) || name.ps != scan->ps || name.port != scan->port ||
           scan->see(text, &name, scan->arg);
}

int soft_cm_port_name_scan(int ps, uint16_t port,
                           bool (*see)(const char *text, const struct soft_cm_port_name *name,
                                       void *arg),
                           void *arg) {
    struct scan scan = {.ps = ps, .port = port, .see = see, .arg = arg};
    return soft_name_scan(prefix(), see_text, &scan);
}

static bool has_port(const char *text, uint32_t port) {
    struct soft_cm_port_name name;
    return parse(text, &name) && !name.reuse && name.port == port;
}

void soft_cm_port_name_search(int ps, uint16_t port, struct soft_name_search *what) {
    *what = (struct soft_name_search){.fits = has_port, .number = port};
    snprintf(what->begin, sizeof what->begin, "%s%x/", prefix(), (unsigned)ps);
}
