/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hosts_file.c - the addresses that a file like /etc/hosts has for a name.
 *
 * A line is an address and names, in white space; '#' begins a comment. Names are compared without regard to case.
 * Lines of LINE_BYTES and more are passed over, and so are addresses that are none.
 *
 * Any thread; no state.
 */
#include "base/hosts_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"

#define LINE_BYTES 4096
#define BLANKS " \t\r\n\f\v"

/* False: the line was longer; it is passed over. */
static bool is_whole(const char *line, FILE *file) {
    int c;
    if (strchr(line, '\n') || feof(file))
        return true;
    while ((c = getc(file)) != EOF && c != '\n')
        ;
    return false;
}

/* The address of a line that has the name, or NULL. The line is taken apart. */
static char *address_for(char *line, const char *host) {
    char *rest, *address;
    line[strcspn(line, "#")] = 0;
    address = strtok_r(line, BLANKS, &rest);
    for (char *name; address && (name = strtok_r(NULL, BLANKS, &rest));)
        if (strcasecmp(name, host) == 0)
            return address;
    return NULL;
}

static bool parse(char *text, struct sockaddr_storage *out) {
    union address *address = (union address *)(void *)out;
    char *zone = strchr(text, '%');
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1) {
        address->v4.sin_family = AF_INET;
        return true;
    }
    if (zone)
        *zone++ = 0;
    address->v6.sin6_family = AF_INET6;
    address->v6.sin6_scope_id = zone ? if_nametoindex(zone) : 0;
    return inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1 &&
           (!zone || address->v6.sin6_scope_id != 0);
}

int hosts_file_find(const char *path, const char *host, struct sockaddr_storage *out, unsigned max,
                    unsigned *count) {
    char line[LINE_BYTES];
    FILE *file = fopen(path, "re");
    *count = 0;
    if (!file)
        return EAI_SYSTEM;
    while (*count < max && fgets(line, sizeof line, file)) {
        if (!is_whole(line, file))
            continue;
        char *address = address_for(line, host);
        if (address && parse(address, &out[*count]))
            ++*count;
    }
    int error = ferror(file) ? errno : 0;
    fclose(file);
    errno = error;
    return *count > 0 ? 0 : error != 0 ? EAI_SYSTEM : EAI_NONAME;
}
