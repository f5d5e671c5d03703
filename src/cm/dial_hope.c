/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* dial_hope.c - whether a dial goes on after a failure: elsewhere, later, or not at all. Any thread. */
#include "cm/internal.h"

enum cm_hope cm_hope_of(sluice_reason reason) {
    switch (reason) {
    case SLUICE_REASON_BUSY:
    case SLUICE_REASON_UNREACHABLE:
    case SLUICE_REASON_PEER_LOST: /* a stale connection: the peer is about to forget it */
        return CM_HOPE_LATER;
    case SLUICE_REASON_ADDRESS:
    case SLUICE_REASON_WRONG_DEVICE:
    case SLUICE_REASON_NO_LISTENER:
    case SLUICE_REASON_NODE_CLOSED:
    case SLUICE_REASON_DEVICE_REMOVED:
    case SLUICE_REASON_DEVICE_ERROR:
        return CM_HOPE_ELSEWHERE;
    case SLUICE_REASON_NONE:
    case SLUICE_REASON_LOCAL_CLOSE:
    case SLUICE_REASON_PEER_CLOSE:
    case SLUICE_REASON_REFUSED:
    case SLUICE_REASON_NOT_SLUICE:
    case SLUICE_REASON_VERSION:
    case SLUICE_REASON_MALFORMED:
    case SLUICE_REASON_PROTOCOL:
    case SLUICE_REASON_CREDITS:
    case SLUICE_REASON_TIMEOUT:
    case SLUICE_REASON_NO_MEMORY:
    case SLUICE_REASON_UNSUPPORTED:
    case SLUICE_REASON_VALUE:
    case SLUICE_REASON_KEEPALIVE:
    case SLUICE_REASON_AUTH_REQUIRED:
    case SLUICE_REASON_AUTH_KEY:
    case SLUICE_REASON_AUTH_FAILED:
    case SLUICE_REASON_AUTH_REPLAY:
    case SLUICE_REASON_ACCESS:
    case SLUICE_REASON_AUTH_ALTERED:
    case SLUICE_REASON_SESSION_UNKNOWN:
    case SLUICE_REASON_RESUME_TIMEOUT:
        return CM_HOPE_NONE;
    }
    return CM_HOPE_NONE; /* a number of a newer peer */
}

enum cm_hope cm_hope_of_waiting(enum cm_hope hope, sluice_reason reason) {
    if (hope != CM_HOPE_ELSEWHERE)
        return hope;
    switch (reason) {
    case SLUICE_REASON_NO_LISTENER:
    case SLUICE_REASON_REFUSED: /* by the stack there; the refusal of an application leaves no hope at all */
    case SLUICE_REASON_UNREACHABLE:
    case SLUICE_REASON_PEER_LOST:
    case SLUICE_REASON_NODE_CLOSED: /* the peer's, and so is the device: it may be started anew */
    case SLUICE_REASON_DEVICE_REMOVED:
        return CM_HOPE_LATER;
    case SLUICE_REASON_BUSY:
    case SLUICE_REASON_ADDRESS:
    case SLUICE_REASON_WRONG_DEVICE:
    case SLUICE_REASON_DEVICE_ERROR:
    case SLUICE_REASON_NONE:
    case SLUICE_REASON_LOCAL_CLOSE:
    case SLUICE_REASON_PEER_CLOSE:
    case SLUICE_REASON_NOT_SLUICE:
    case SLUICE_REASON_VERSION:
    case SLUICE_REASON_MALFORMED:
    case SLUICE_REASON_PROTOCOL:
    case SLUICE_REASON_CREDITS:
    case SLUICE_REASON_TIMEOUT:
    case SLUICE_REASON_NO_MEMORY:
    case SLUICE_REASON_UNSUPPORTED:
    case SLUICE_REASON_VALUE:
    case SLUICE_REASON_KEEPALIVE:
    case SLUICE_REASON_AUTH_REQUIRED:
    case SLUICE_REASON_AUTH_KEY:
    case SLUICE_REASON_AUTH_FAILED:
    case SLUICE_REASON_AUTH_REPLAY:
    case SLUICE_REASON_ACCESS:
    case SLUICE_REASON_AUTH_ALTERED:
    case SLUICE_REASON_SESSION_UNKNOWN:
    case SLUICE_REASON_RESUME_TIMEOUT:
        break;
    }
    return hope;
}
