/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_lookup.c - what a name stands for: asked of the system, which asks name servers, or of this host alone.
 *
 * Owner: the resolver thread that asks.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "cm/name_lookup.h"
#include "cm/addrinfo.h"
#include "base/hosts_file.h"

#define FOUND_MAX 32 /* addresses looked at, before the same ones are left out */

static int ask_system(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                      unsigned *count) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found;
    (void)arg;
    int error = getaddrinfo(host, NULL, &hints, &found);
    if (error != 0)
        return error;
    for (struct addrinfo *at = found; at && *count < max; at = at->ai_next)
        if (at->ai_addrlen <= sizeof *out)
            memcpy(&out[(*count)++], at->ai_addr, at->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

/* Also the forms of a number that address_parse() leaves to the system, as "127.1". */
static int ask_files(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                     unsigned *count) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out;
    (void)arg;
    if (!host[strspn(host, "0123456789abcdefxABCDEFX.")] && inet_aton(host, &v4->sin_addr)) {
        v4->sin_family = AF_INET;
        *count = 1;
        return 0;
    }
    return hosts_file_find("/etc/hosts", host, out, max, count);
}

/* False: it is there already, or no address that can be dialed. */
static bool add(struct cm_names *names, const struct sockaddr_storage *found) {
    union address address = {0};
    size_t bytes = found->ss_family == AF_INET    ? sizeof address.v4
                   : found->ss_family == AF_INET6 ? sizeof address.v6
                                                  : 0;
    if (bytes == 0)
        return false;
    memcpy(&address, found, bytes);
    for (unsigned i = 0; i < names->count; i++)
        if (cm_same_host(&names->addresses[i], &address))
            return false;
    names->addresses[names->count++] = address;
    return true;
}

/* The next of the family, or of another one if that has none left. */
static struct sockaddr_storage *next_of(struct sockaddr_storage *found, unsigned count,
                                        sa_family_t family) {
    struct sockaddr_storage *other = NULL;
    for (unsigned i = 0; i < count; i++) {
        if (family != AF_UNSPEC && found[i].ss_family == family)
            return &found[i];
        if (!other && found[i].ss_family != AF_UNSPEC)
            other = &found[i];
    }
    return other;
}

/*
 * In turn from each family, beginning with the one that is best, as RFC 8305 (4) has it: where one family leads
 * nowhere, the other has its first try after one address, and a place among those that are tried.
 */
static void add_in_turn(struct cm_names *names, struct sockaddr_storage *found, unsigned count) {
    struct sockaddr_storage *at;
    sa_family_t family = AF_UNSPEC;
    while (names->count < CM_CANDIDATES && (at = next_of(found, count, family))) {
        if (add(names, at))
            family = at->ss_family == AF_INET ? AF_INET6 : AF_INET;
        at->ss_family = AF_UNSPEC; /* taken */
    }
}

/* Without descriptors no name server can be asked: that is a local error, whatever getaddrinfo() makes of it. */
static int short_of_files(void) {
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error == EMFILE || error == ENFILE ? error : 0;
}

typedef int resolve_fn(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                       unsigned *count);

static void look_up(const struct sluice_env *env, const char *host, struct cm_names *names,
                    resolve_fn *resolve) {
    struct sockaddr_storage found[FOUND_MAX];
    unsigned count = 0;
    memset(found, 0, sizeof found);
    memset(names, 0, sizeof *names);
    errno = 0;
    names->error = resolve(env->arg, host, found, FOUND_MAX, &count);
    names->os_errno = names->error == EAI_SYSTEM ? errno : names->error ? short_of_files() : 0;
    if (names->error == 0)
        add_in_turn(names, found, count < FOUND_MAX ? count : FOUND_MAX);
    if (names->error == 0 && names->count == 0)
        names->error = EAI_NONAME;
}

void name_lookup_servers(const struct sluice_env *env, const char *host, struct cm_names *out) {
    look_up(env, host, out, env->resolve ? env->resolve : ask_system);
}

bool name_lookup_host(const struct sluice_env *env, const char *host, struct cm_names *out) {
    resolve_fn *resolve = env->resolve_local ? env->resolve_local : env->resolve ? NULL : ask_files;
    if (resolve)
        look_up(env, host, out, resolve);
    return resolve && out->error == 0;
}
