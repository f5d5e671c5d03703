/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * units.c - strict parsers: no sign, no blank, no overflow, nothing after the number.
 */
#include "units.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* Reads digits; returns the first character that is none, or NULL: no digit, or too large. */
static const char *digits(const char *text, uint64_t *out) {
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return NULL;
    if (at == text)
        return NULL;
    *out = value;
    return at;
}

bool units_number(const char *text, uint64_t *out) {
    uint64_t value;
    const char *end = digits(text, &value);
    if (end == NULL || *end != '\0')
        return false;
    *out = value;
    return true;
}

bool units_size(const char *text, uint64_t *out) {
    uint64_t value;
    const char *end = digits(text, &value);
    if (end == NULL)
        return false;
    uint64_t unit = 1;
    if (*end == 'k' || *end == 'K')
        unit = UINT64_C(1) << 10;
    else if (*end == 'm' || *end == 'M')
        unit = UINT64_C(1) << 20;
    else if (*end == 'g' || *end == 'G')
        unit = UINT64_C(1) << 30;
    if (unit != 1)
        end++;
    if (*end != '\0' || __builtin_mul_overflow(value, unit, &value))
        return false;
    *out = value;
    return true;
}

bool units_seconds_ns(const char *text, uint64_t *out) {
    uint64_t whole, ns = 0;
    const char *end = digits(text, &whole);
    if (end == NULL)
        return false;
    if (*end == '.') {
        uint64_t scale = UINT64_C(100000000);
        const char *at = end + 1;
        if (*at == '\0')
            return false;
        for (; *at >= '0' && *at <= '9' && scale != 0; at++, scale /= 10)
            ns += (uint64_t)(*at - '0') * scale;
        end = at;
    }
    uint64_t total;
    if (*end != '\0' || __builtin_mul_overflow(whole, UINT64_C(1000000000), &total) ||
        __builtin_add_overflow(total, ns, &total))
        return false;
    *out = total;
    return true;
}

void units_print_size(char *out, size_t out_bytes, uint64_t bytes) {
    static const char suffix[] = {'G', 'M', 'K'};
    for (int i = 0; i < 3; i++) {
        uint64_t unit = UINT64_C(1) << (30 - 10 * i);
        if (bytes >= unit && bytes % unit == 0) {
            snprintf(out, out_bytes, "%llu%c", (unsigned long long)(bytes / unit), suffix[i]);
            return;
        }
    }
    snprintf(out, out_bytes, "%llu", (unsigned long long)bytes);
}

static bool is_ipv6(const char *text) {
    struct in6_addr unused;
    char plain[64];
    const char *zone = strchr(text, '%');
    size_t length = zone != NULL ? (size_t)(zone - text) : strlen(text);
    if (length >= sizeof plain)
        return false;
    memcpy(plain, text, length);
    plain[length] = '\0';
    return inet_pton(AF_INET6, plain, &unused) == 1;
}

/* Splits text in place. *host loses its brackets; *port is NULL where none was written. */
static const char *split(char *text, const char **host, const char **port) {
    *host = text;
    *port = NULL;
    if (text[0] == '[') {
        char *close = strchr(text, ']');
        if (close == NULL)
            return "the closing bracket ']' is missing";
        *close = '\0';
        *host = text + 1;
        if (!is_ipv6(*host))
            return "brackets are for IPv6 addresses, as in [::1]:18515";
        if (close[1] == ':')
            *port = close + 2;
        else if (close[1] != '\0')
            return "after ']' only :PORT may follow";
        return NULL;
    }
    char *colon = strchr(text, ':');
    if (colon == NULL)
        return NULL;
    if (strchr(colon + 1, ':') != NULL)
        return is_ipv6(text) ? NULL
                             : "more than one ':'; an IPv6 address with a port needs "
                               "brackets, as in [::1]:18515";
    *colon = '\0';
    *port = colon + 1;
    return NULL;
}

const char *units_address(const char *text, int64_t default_port, char out[ADDRESS_BYTES],
                          bool *had_port) {
    char copy[ADDRESS_BYTES - 16];
    static const char scheme[] = "sluice://";
    if (strncmp(text, scheme, sizeof scheme - 1) == 0)
        text += sizeof scheme - 1;
    if (strlen(text) >= sizeof copy)
        return "it is too long";
    for (const char *at = text; *at != '\0'; at++)
        if (*at <= ' ' || *at == 0x7f || *at == '/')
            return "it contains a character that no host name has";
    strcpy(copy, text);

    const char *host, *port_text;
    const char *wrong = split(copy, &host, &port_text);
    if (wrong != NULL)
        return wrong;
    if (*host == '\0')
        return "the host is missing";
    uint64_t port = (uint64_t)default_port;
    if (port_text != NULL) {
        if (!units_number(port_text, &port) || port > 65535)
            return "the port must be a number from 0 to 65535";
    } else if (default_port < 0) {
        return "the port is missing: write HOST:PORT";
    }
    snprintf(out, ADDRESS_BYTES, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
             (unsigned)port);
    if (had_port != NULL)
        *had_port = port_text != NULL;
    return NULL;
}

const char *units_addresses(const char *text, int64_t default_port, char out[ADDRESSES_BYTES],
                            bool *had_port) {
    char all[ADDRESSES_BYTES] = "";
    size_t used = 0;
    unsigned count = 0;
    *had_port = false;
    for (const char *at = text, *end; at != NULL; at = *end != '\0' ? end + 1 : NULL) {
        char copy[ADDRESS_BYTES], one[ADDRESS_BYTES];
        bool has_port;
        end = at + strcspn(at, ",");
        size_t length = (size_t)(end - at);
        if (length >= sizeof copy)
            return "it is too long";
        if (++count > ADDRESSES_MAX)
            return "it has more than 8 addresses";
        memcpy(copy, at, length);
        copy[length] = '\0';
        const char *wrong = units_address(copy, default_port, one, &has_port);
        if (wrong != NULL)
            return wrong;
        if (strcmp(strrchr(one, ':'), ":0") == 0)
            return "port 0 cannot be connected to, use the one that the other side prints";
        *had_port |= has_port;
        used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", count > 1 ? "," : "", one);
    }
    memcpy(out, all, used + 1);
    return NULL;
}
