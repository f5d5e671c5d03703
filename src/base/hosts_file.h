/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hosts_file.h - the addresses that a file like /etc/hosts has for a name; see hosts(5).
 *
 * Any thread; no state.
 */
#ifndef BASE_HOSTS_FILE_H
#define BASE_HOSTS_FILE_H

struct sockaddr_storage; /* <sys/socket.h> */

/*
 * Writes up to max addresses, with port 0, in the order of the file, and how many. 0; EAI_NONAME: the file has none;
 * EAI_SYSTEM: it cannot be read, errno says why.
 */
int hosts_file_find(const char *path, const char *host, struct sockaddr_storage *out, unsigned max,
                    unsigned *count);

#endif
