/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * port_name.c - names of bound ports: written, read back, listed. No state, any thread.
 */
#include "soft/cm/port_name.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "soft/cm/addr.h"
#include "soft/ipc/name_list.h"
#include "soft/ipc/name_search.h"
#include "soft/ipc/peer.h"
#include "soft/object/profile.h"

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

/* Numbers as snprintf() writes them: lower case, without leading zeros. Moves on behind it. */
static bool parse_number(const char **text, unsigned base, unsigned most, unsigned *value) {
    const char *at = *text;
    uint64_t number = 0;
    for (; number <= most; at++) {
        unsigned digit = *at >= '0' && *at <= '9'   ? (unsigned)(*at - '0')
                         : *at >= 'a' && *at <= 'f' ? (unsigned)(*at - 'a' + 10)
                                                    : base;
        if (digit >= base)
            break;
        number = number * base + digit;
    }
    bool valid = at > *text && number <= most && (**text != '0' || at == *text + 1);
    *text = at;
    *value = (unsigned)number;
    return valid;
}

/* Family and address, up to the slash behind them. */
static bool parse_addr(const char *text, size_t length, struct soft_cm_port_name *name) {
    bool four = *text == '4';
    if (length == 0 || (!four && *text != '6' && *text != 'o'))
        return false;
    name->afonly = *text++ != '6';
    soft_cm_addr_any(&name->addr, four ? AF_INET : AF_INET6);
    if (--length == 3 && !memcmp(text, "any", 3))
        return true;
    uint8_t *bytes = four ? (uint8_t *)&((struct sockaddr_in *)&name->addr)->sin_addr
                          : (uint8_t *)&((struct sockaddr_in6 *)&name->addr)->sin6_addr;
    if (length != (four ? 8 : 32))
        return false;
    for (size_t i = 0; i < length; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = memchr(digits, text[i], 16);
        if (!digit)
            return false;
        bytes[i / 2] = (uint8_t)(bytes[i / 2] << 4 | (digit - digits));
    }
    return !soft_cm_addr_is_any((struct sockaddr *)&name->addr);
}

/*
 * Any user can create sockets with any name, and as many as he likes: accepts nothing but what soft_cm_port_name_format
 * writes for that port space (-1: any) and port (0: any), and looks at the address last.
 */
static bool parse(const char *text, int ps, uint16_t port, struct soft_cm_port_name *name) {
    size_t skip = strlen(prefix());
    unsigned value;
    if (strncmp(text, prefix(), skip))
        return false;
    const char *at = text + skip;
    if (!parse_number(&at, 16, INT32_MAX, &value) || *at++ != '/' || (ps >= 0 && (int)value != ps))
        return false;
    const char *addr = at, *slash = strchr(addr, '/');
    if (!slash)
        return false;
    *name = (struct soft_cm_port_name){.ps = (int)value};
    at = slash + 1;
    if (!parse_number(&at, 10, UINT16_MAX, &value) || (port && value != port))
        return false;
    name->port = (uint16_t)value;
    name->reuse = at[0] == '/' && at[1] == 'r'; /* then with a suffix, as several share it */
    return (name->reuse || !*at) && parse_addr(addr, (size_t)(slash - addr), name);
}

struct scan {
    int ps;
    uint16_t port;
    bool (*see)(const char *text, const struct soft_cm_port_name *name, void *arg);
    void *arg;
};

static bool see_text(const struct soft_listed_name *listed, void *arg) {
    const struct scan *scan = arg;
    const char *text = listed->text;
    struct soft_cm_port_name name;
    return !parse(text, scan->ps, scan->port, &name) || scan->see(text, &name, scan->arg);
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
    return parse(text, -1, (uint16_t)port, &name) && !name.reuse;
}

void soft_cm_port_name_search(int ps, uint16_t port, struct soft_name_search *what) {
    *what = (struct soft_name_search){.fits = has_port, .number = port};
    snprintf(what->begin, sizeof what->begin, "%s%x/", prefix(), (unsigned)ps);
}
