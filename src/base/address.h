/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * address.h - addresses as text: "host:port", "[v6]:port", "[v6%interface]:port", "*:port", with or without
 * "sluice://" in front.
 *
 * Any thread. Nothing here asks a name server; of interfaces the kernel is asked.
 */
#ifndef BASE_ADDRESS_H
#define BASE_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>

#include <sluice/sluice.h>

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/*
 * Takes an address apart. Numeric hosts and, listening, "localhost" end up in *out; another name, and listening "*",
 * is copied into host (256 bytes) and only the port is set, which stands at the same place in both families. 0 or
 * EADDRESS with *e.
 */
int address_parse(const char *text, bool listening, union address *out, char *host,
                  sluice_error *e);
/* Family, host, port and, of a link-local one, interface. */
bool address_equal(const union address *a, const union address *b);
/* An IPv4 address inside one of IPv6, as a socket of both families shows it, is written as the IPv4 address it is. */
void address_format(const struct sockaddr *addr, char out[64]);

#endif
