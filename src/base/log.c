/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * log.c - the node's log, and errors of slow-path calls.
 *
 * Any thread. The application's callback may be called from every thread of the library, the
 * connection-management thread included, so it must not call back into the library.
 */
#include <stdio.h>
#include <string.h>

#include "node/node.h"

void node_log(sluice_node *n, int level, const char *format, ...) {
    char text[256];
    if (!n->options.log && level > SLUICE_LOG_WARNING)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n->options.log)
        n->options.log(level, text, n->options.log_arg);
    else
        fprintf(stderr, "sluice: %s: %s\n", n->options.name, text);
}

int error_set(sluice_error *e, sluice_status status, sluice_reason reason, int os_errno,
              const char *format, ...) {
    if (!e)
        return status;
    memset(e, 0, sizeof *e);
    e->status = status;
    e->reason = (int32_t)reason;
    e->os_errno = os_errno;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    return status;
}

sluice_status reason_status(sluice_reason reason) {
    switch (reason) {
    case SLUICE_REASON_NONE:
    case SLUICE_REASON_LOCAL_CLOSE:
    case SLUICE_REASON_PEER_CLOSE:
    case SLUICE_REASON_NODE_CLOSED:
        return SLUICE_OK;
    case SLUICE_REASON_NO_LISTENER:
    case SLUICE_REASON_REFUSED:
    case SLUICE_REASON_NOT_SLUICE:
    case SLUICE_REASON_VERSION:
    case SLUICE_REASON_MALFORMED:
    case SLUICE_REASON_BUSY:
    case SLUICE_REASON_UNSUPPORTED:
    case SLUICE_REASON_VALUE:
    case SLUICE_REASON_AUTH_REQUIRED:
    case SLUICE_REASON_AUTH_KEY:
    case SLUICE_REASON_AUTH_FAILED:
    case SLUICE_REASON_AUTH_REPLAY:
    case SLUICE_REASON_AUTH_ALTERED:
        return SLUICE_EREJECTED;
    case SLUICE_REASON_PEER_LOST:
    case SLUICE_REASON_KEEPALIVE:
        return SLUICE_EUNKNOWN;
    case SLUICE_REASON_TIMEOUT:
    case SLUICE_REASON_UNREACHABLE:
        return SLUICE_ETIMEDOUT;
    case SLUICE_REASON_ADDRESS:
    case SLUICE_REASON_WRONG_DEVICE:
        return SLUICE_EADDRESS;
    case SLUICE_REASON_NO_MEMORY:
        return SLUICE_ENOMEM;
    case SLUICE_REASON_PROTOCOL:
    case SLUICE_REASON_CREDITS:
    case SLUICE_REASON_DEVICE_REMOVED:
    case SLUICE_REASON_DEVICE_ERROR:
        return SLUICE_EDEVICE;
    case SLUICE_REASON_ACCESS:
        return SLUICE_EACCESS;
    }
    return SLUICE_EDEVICE;
}
