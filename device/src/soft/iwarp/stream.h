/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stream.h - the socket of a connection: sends batches, receives, and ends so that the peer reads all that was sent.
 *
 * Owner: one thread at a time. No call waits; none raises SIGPIPE. A socket of another family than the internet's works
 * too, for tests.
 */
#ifndef SOFT_IWARP_STREAM_H
#define SOFT_IWARP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iwarp_rx;
struct iwarp_tx;

#define IWARP_STREAM_STRAIGHT                                                                      \
    4096u /* payload of at least so many bytes is read straight to its place, without check values */

/* Bytes that were read and not fed yet. At least 64 bytes of memory, which may serve many streams while it is empty. */
struct iwarp_inbox {
    uint8_t *bytes;
    size_t size, at, end;
};

/* Makes a connected socket non-blocking, close-on-exec and, if it is of TCP, without Nagle's delay. 0 or an errno. */
int iwarp_stream_prepare(int fd);
/* The longest DDP segment whose frame fits one segment of TCP now. */
unsigned iwarp_stream_mulpdu(int fd);
/* Sets how long TCP tries before it gives up the peer: sent_ms for bytes on their way, some 20 s for an idle peer. */
void iwarp_stream_patience(int fd, unsigned sent_ms);
/*
 * Sends the batches of tx. 0: all of it, or at least `most` bytes; EAGAIN: the socket takes no more now; another errno:
 * the connection is over.
 */
int iwarp_stream_send(int fd, struct iwarp_tx *tx, size_t most);
/*
 * Reads and feeds until the socket is empty, the stream waits or ends (rx->status says which), or at least `most` bytes
 * were read, which *moved counts. 0: there may be more; EAGAIN: no more now; ENODATA: the peer sends no more; another
 * errno: the connection is over.
 */
int iwarp_stream_receive(int fd, struct iwarp_rx *rx, struct iwarp_inbox *inbox, size_t most,
                         size_t *moved);
/*
 * The end of a stream. iwarp_stream_finish() tells the peer that no more comes; iwarp_stream_finished() reads and drops
 * what the peer still sends. Otherwise close() would reset the connection because of unread bytes, and the reset may
 * overtake bytes that were sent. True: the peer has ended too, so the caller closes the socket. False: the caller calls
 * again when the socket is readable, for as long as it likes.
 */
void iwarp_stream_finish(int fd);
bool iwarp_stream_finished(int fd);

#endif
