/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * address.c - see address.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/error.h"

#define SCHEME "sluice://"
#define REFUSE(...) return error_set(e, SLUICE_EADDRESS, SLUICE_REASON_ADDRESS, 0, __VA_ARGS__)

static int parse_port(const char *text, bool listening, uint16_t *port) {
    char *end;
    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || *end || value > 65535 || (value == 0 && !listening))
        return -1;
    *port = (uint16_t)value;
    return 0;
}

/* The number of an interface by its name, or as it is; 0: there is none. */
static uint32_t zone_number(const char *zone) {
    uint32_t number = if_nametoindex(zone);
    char name[IF_NAMESIZE];
    if (number == 0 && *zone && strspn(zone, "0123456789") == strlen(zone))
        number = (uint32_t)strtoul(zone, NULL, 10);
    return number != 0 && if_indextoname(number, name) ? number : 0;
}

/* Numbers with a colon in them; behind a percent sign the interface of a link-local one. */
static int parse_v6(const char *name, bool bracketed, struct sockaddr_in6 *out, sluice_error *e) {
    char number[INET6_ADDRSTRLEN] = "";
    const char *zone = strchr(name, '%');
    size_t length = zone ? (size_t)(zone - name) : strlen(name);
    if (length < sizeof number)
        memcpy(number, name, length);
    if (inet_pton(AF_INET6, number, &out->sin6_addr) == 1) {
        bool local = IN6_IS_ADDR_LINKLOCAL(&out->sin6_addr);
        if (!zone && !local)
            return SLUICE_OK;
        if (!zone)
            REFUSE("\"%.60s\" is link-local and needs its interface: [%.60s%%eth0]:port", name,
                   name);
        if (!local)
            REFUSE("\"%.100s\" names an interface, which only link-local addresses do", name);
        if ((out->sin6_scope_id = zone_number(zone + 1)) == 0)
            REFUSE("\"%.100s\": there is no interface \"%.40s\"", name, zone + 1);
        return SLUICE_OK;
    }
    if (bracketed)
        REFUSE("\"%.100s\" is not an IPv6 address, and brackets are for those", name);
    REFUSE("\"%.100s\" is neither a host nor an IPv6 address", name);
}

int address_parse(const char *text, bool listening, union address *out, char *host,
                  sluice_error *e) {
    if (!text)
        REFUSE("no address given");
    const char *at = strncasecmp(text, SCHEME, strlen(SCHEME)) == 0 ? text + strlen(SCHEME) : text;
    if (strstr(at, "://"))
        REFUSE("\"%.100s\" has another scheme than \"" SCHEME "\"", text);
    bool bracketed = *at == '[';
    const char *begin = at + bracketed;
    const char *end = bracketed ? strchr(begin, ']') : strrchr(begin, ':');
    uint16_t port;
    if (!end || (bracketed && end[1] != ':'))
        REFUSE("\"%.100s\" is not host:port or [v6]:port", text);
    if (parse_port(end + 1 + bracketed, listening, &port) != 0)
        REFUSE("\"%.100s\" has no valid port (%s to 65535)", text, listening ? "0" : "1");
    size_t length = (size_t)(end - begin);
    char name[256];
    if (length == 0)
        REFUSE("\"%.100s\" has no host", text);
    if (length >= sizeof name)
        REFUSE("\"%.60s...\" has a host of %zu characters, above %zu", text, length,
               sizeof name - 1);
    memcpy(name, begin, length);
    name[length] = 0;

    memset(out, 0, sizeof *out);
    *host = 0;
    if (bracketed || strchr(name, ':')) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        return parse_v6(name, bracketed, &out->v6, e);
    }
    out->v4.sin_family = AF_INET;
    out->v4.sin_port = htons(port);
    if (inet_pton(AF_INET, name, &out->v4.sin_addr) == 1)
        return SLUICE_OK;
    if (strcmp(name, "*") == 0) {
        if (!listening)
            REFUSE("\"*\" can be listened at, not dialed");
        memcpy(host, name, length + 1);
        return SLUICE_OK;
    }
    if (listening && strcasecmp(name, "localhost") == 0) {
        out->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return SLUICE_OK;
    }
    if (strspn(name, "0123456789.") == length)
        REFUSE("\"%.100s\" is not an IPv4 address", name);
    if (listening)
        REFUSE("listening needs a numeric address, \"localhost\" or \"*\", not \"%.100s\"", name);
    memcpy(host, name, length + 1);
    return SLUICE_OK;
}

bool address_equal(const union address *a, const union address *b) {
    if (a->any.sa_family != b->any.sa_family || a->v4.sin_port != b->v4.sin_port)
        return false;
    if (a->any.sa_family == AF_INET)
        return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
    return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, sizeof a->v6.sin6_addr) == 0 &&
           a->v6.sin6_scope_id == b->v6.sin6_scope_id;
}

void address_format(const struct sockaddr *addr, char out[64]) {
    const union address *a = (const union address *)(const void *)addr;
    char host[INET6_ADDRSTRLEN] = "?";
    if (addr->sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof host);
        snprintf(out, 64, "%s:%u", host, ntohs(a->v4.sin_port));
    } else if (addr->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&a->v6.sin6_addr)) {
        inet_ntop(AF_INET, a->v6.sin6_addr.s6_addr + 12, host, sizeof host);
        snprintf(out, 64, "%s:%u", host, ntohs(a->v6.sin6_port));
    } else if (addr->sa_family == AF_INET6) {
        char zone[1 + IF_NAMESIZE] = "%";
        inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof host);
        if (!IN6_IS_ADDR_LINKLOCAL(&a->v6.sin6_addr) ||
            !if_indextoname(a->v6.sin6_scope_id, zone + 1))
            *zone = 0;
        snprintf(out, 64, "[%.39s%.16s]:%u", host, zone, ntohs(a->v6.sin6_port));
    } else {
        snprintf(out, 64, "unknown");
    }
}
