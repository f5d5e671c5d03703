/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stream.h - the socket of a connection: batches out of it and into it, without waiting, and an end that the peer hears.
 *
 * Owner: one thread at a time. No call waits; none raises SIGPIPE. A socket of another family than the internet's does
 * as well, for tests.
 */
#ifndef SOFT_IWARP_STREAM_H
#define SOFT_IWARP_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct iwarp_rx;
struct iwarp_tx;

#define IWARP_STREAM_STRAIGHT                                                                      \
    4096u /* of payload to come, without check values, are read into its place */

/* What was read and not fed yet. Memory of at least 64 bytes that may serve many streams, as long as it is empty. */
struct iwarp_inbox {
    uint8_t *bytes;
    size_t size, at, end;
};

/* Makes a connected socket ready: no waiting, no waiting for more to send, closed by exec. 0 or an errno. */
int iwarp_stream_prepare(int fd);
/* The longest segment whose frame fits one of TCP's now. */
unsigned iwarp_stream_mulpdu(int fd);
/* How long TCP tries before it says that the peer is gone: of what was sent, and of an idle peer some 20 s. */
void iwarp_stream_patience(int fd, unsigned sent_ms);
/*
 * Sends what there is. 0: all of it, or at least `most` bytes; EAGAIN: the socket takes no more now; another errno: it
 * is over.
 */
int iwarp_stream_send(int fd, struct iwarp_tx *tx, size_t most);
/*
 * Reads and feeds until nothing is there, the stream waits or ends (rx->status says which), or `most` bytes were read, which
 * *moved counts. 0: there may be more; EAGAIN: nothing more now; ENODATA: the peer sends no more; another errno: it is over.
 */
int iwarp_stream_receive(int fd, struct iwarp_rx *rx, struct iwarp_inbox *inbox, size_t most,
                         size_t *moved);
/*
 * The end, so that the peer reads all that was sent: closing with unread bytes would be a reset, which may overtake them. Says
 * that no more comes, then reads away what the peer still sends. True: it has ended, too; close. False: look again
 * when it is readable, for as long as the caller likes to.
 */
void iwarp_stream_finish(int fd);
bool iwarp_stream_finished(int fd);

#endif
