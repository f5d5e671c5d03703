/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * qpn_directory.h - which process owns a queue pair number.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_IPC_QPN_DIRECTORY_H
#define SOFT_IPC_QPN_DIRECTORY_H

#include <stdint.h>

struct soft_peer;

/*
 * The peer whose process owns a queue pair number. 0 and a held peer, or -errno. The first may give the lock up to read
 * names; the second says -EINPROGRESS then, and is asked again (name_search.h).
 */
int soft_qpn_directory_find(uint32_t qpn, struct soft_peer **peer);
int soft_qpn_directory_ask(uint32_t qpn, struct soft_peer **peer);
/* A new block of QP numbers for this process, or -errno; EAGAIN: another thread had one. Gives the lock up. */
int soft_qpn_directory_claim(uint32_t *block);
void soft_qpn_directory_stop(void);
void soft_qpn_directory_forked(void);

#endif
