/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_lookup.h - one lookup of a name, for as long as it takes.
 *
 * Any thread; no state.
 */
#ifndef CM_NAME_LOOKUP_H
#define CM_NAME_LOOKUP_H

#include "cm/resolver.h"

/* By the environment's resolver, or by getaddrinfo(3): it may wait for a name server. */
void name_lookup_servers(const struct sluice_env *env, const char *host, struct cm_names *out);
/* Waits for no server. False: this host alone does not know the name, and *out is of no use. */
bool name_lookup_host(const struct sluice_env *env, const char *host, struct cm_names *out);

#endif
