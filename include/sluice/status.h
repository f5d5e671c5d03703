/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * status.h - every status and every reason the library can give, in one place.
 *
 * A status says what became of a call or of a message: 0 or negative, never renumbered.
 * A reason says why a session was refused or ended: positive, never renumbered. Both lists
 * feed the enum, the texts of sluice_strerror() and sluice_reason_text(), and the documentation.
 *
 * To dial again may help, after a pause, with PEER_CLOSE, PEER_LOST, NO_LISTENER, TIMEOUT, UNREACHABLE, DEVICE_ERROR, NO_MEMORY, NODE_CLOSED
 * of the peer, BUSY, KEEPALIVE, SESSION_UNKNOWN and RESUME_TIMEOUT; with REFUSED, if its code means that. With DEVICE_REMOVED of this
 * side the node has to be closed and opened again first. The others come back: a program or its settings are at fault.
 */
#ifndef SLUICE_STATUS_H
#define SLUICE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text) */
#define SLUICE_STATUS_LIST(X)                                                                      \
    X(OK, 0, "success")                                                                            \
    X(EAGAIN, -1, "the send window or the memory is full: wait for SLUICE_WRITABLE")               \
    X(ETIMEDOUT, -2, "no answer in time, or the deadline passed first")                            \
    X(ECLOSED, -3, "the handle is closed or stale, or its node was shut down")                     \
    X(EUNKNOWN, -4, "the peer was lost: the message may or may not have arrived")                  \
    X(EREJECTED, -5, "the peer refused")                                                           \
    X(EINVAL, -6, "an argument is not valid")                                                      \
    X(ENOMEM, -7, "out of memory, or the memory limit of the node is reached")                     \
    X(EMSGSIZE, -8, "the message is larger than this session carries")                             \
    X(EDEVICE, -9, "the RDMA device, its connection or a call of the system failed")               \
    X(EFORKED, -10, "the handle was inherited through fork()")                                     \
    X(EADDRESS, -11, "the address is malformed, unknown, not local or in use")                     \
    X(ELIMIT, -12, "a limit is reached: nodes, sessions, listeners, loops or descriptors")         \
    X(ECANCELLED, -13, "cancelled by this side")                                                   \
    X(EACCESS, -14, "the memory does not allow that: key, range or right")                         \
    X(EFENCED, -15, "not delivered: it was behind an operation whose outcome is not known")

/* X(name, value, text) */
#define SLUICE_REASON_LIST(X)                                                                      \
    X(NONE, 0, "no reason given")                                                                  \
    X(LOCAL_CLOSE, 1, "closed by this side")                                                       \
    X(PEER_CLOSE, 2, "closed by the peer")                                                         \
    X(PEER_LOST, 3, "the peer died or cannot be reached any more")                                 \
    X(NO_LISTENER, 4, "no listener at that address")                                               \
    X(REFUSED, 5, "refused by the peer")                                                           \
    X(NOT_SLUICE, 6, "the peer does not speak this protocol")                                      \
    X(VERSION, 7, "no protocol version in common")                                                 \
    X(MALFORMED, 8, "malformed private data")                                                      \
    X(PROTOCOL, 9, "the peer broke the protocol")                                                  \
    X(CREDITS, 10, "the peer overran its credits")                                                 \
    X(TIMEOUT, 11, "not established in time")                                                      \
    X(ADDRESS, 12, "the address cannot be used")                                                   \
    X(UNREACHABLE, 13, "the peer cannot be reached, or did not answer")                            \
    X(DEVICE_REMOVED, 14, "the RDMA device failed or was removed")                                 \
    X(DEVICE_ERROR, 15, "the RDMA device or the system reported an error")                         \
    X(NO_MEMORY, 16, "out of memory")                                                              \
    X(NODE_CLOSED, 17, "the node was closed, this side's or the peer's")                           \
    X(BUSY, 18, "there is no room for another session")                                            \
    X(WRONG_DEVICE, 19, "the address belongs to another device than the node's")                   \
    X(UNSUPPORTED, 20, "one side asks for a feature the other does not have")                      \
    X(VALUE, 21, "a negotiated value is out of range")                                             \
    X(KEEPALIVE, 22, "nothing was received from the peer for two keepalive intervals")             \
    X(AUTH_REQUIRED, 23, "the listener wants the peer to authenticate itself")                     \
    X(AUTH_KEY, 24, "the listener has no key with that id")                                        \
    X(AUTH_FAILED, 25, "one of the two does not have the key")                                     \
    X(AUTH_REPLAY, 26, "an authentication that was used before")                                   \
    X(AUTH_ALTERED, 27, "what was negotiated was changed on its way")                              \
    X(ACCESS, 28, "one side accessed memory the other does not allow: key, range or right")        \
    X(SESSION_UNKNOWN, 29,                                                                         \
      "the peer runs, and does not know the session: it restarted or gave up")                     \
    X(RESUME_TIMEOUT, 30, "the connection was lost, and not made again in time")

typedef enum sluice_status {
#define SLUICE_X(name, value, text) SLUICE_##name = value,
    SLUICE_STATUS_LIST(SLUICE_X)
#undef SLUICE_X
} sluice_status;

typedef enum sluice_reason {
#define SLUICE_X(name, value, text) SLUICE_REASON_##name = value,
    SLUICE_REASON_LIST(SLUICE_X)
#undef SLUICE_X
} sluice_reason;

#ifdef __cplusplus
}
#endif
#endif
