/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer_queue.h - messages to a peer, and those that wait for room in its socket.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_IPC_PEER_QUEUE_H
#define SOFT_IPC_PEER_QUEUE_H

#include <stddef.h>
#include <stdint.h>

struct soft_peer;
struct soft_queued; /* a message that waits */

/*
 * Sends one message; data is copied. fd -1 or a descriptor to pass (stays the caller's). Never
 * blocks: what the socket does not take is queued up to a bound. 0, or -errno: ECONNRESET the peer
 * is gone, ENOBUFS the bound is reached (the peer is then dropped).
 */
int soft_peer_send(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes, int fd);

/*
 * Sends a message without a descriptor that its sender repeats until it is answered: where many wait already it is not queued,
 * ENOBUFS, and the peer stays.
 */
int soft_peer_send_repeated(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes);

/*
 * A message that means nothing any more once its sender is gone. *waits: it, while it waits, and NULL otherwise; the place has to
 * stay until then, or until it is taken back.
 */
int soft_peer_send_revocable(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                             int fd, struct soft_queued **waits);
/* It is not sent any more. Its descriptors are closed. */
void soft_peer_revoke(struct soft_peer *peer, struct soft_queued *message);

int soft_peer_send_fds(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                       const int *fds, unsigned count);
void soft_peer_queue_flush(struct soft_peer *peer);
void soft_peer_queue_drop(struct soft_peer *peer);
void soft_peer_queues_forked(void);

#endif
