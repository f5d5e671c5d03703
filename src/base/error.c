/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * error.c - statuses and reasons as text, errors of calls, and the other public calls that need no node.
 *
 * Constant tables only; any thread, before any node was opened too.
 */
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"

const char *sluice_strerror(int status) {
    switch (status) {
#define STATUS_X(name, value, text)                                                                \
    case value:                                                                                    \
        return text;
        SLUICE_STATUS_LIST(STATUS_X)
#undef STATUS_X
    }
    /* A positive count (sluice_poll) is success as well. */
    return status > 0 ? "success" : "unknown status";
}

const char *sluice_reason_text(int reason) {
    switch (reason) {
#define REASON_X(name, value, text)                                                                \
    case value:                                                                                    \
        return text;
        SLUICE_REASON_LIST(REASON_X)
#undef REASON_X
    }
    return "unknown reason";
}

const char *sluice_event_name(int type) {
    switch ((sluice_event_type)type) {
    case SLUICE_UP:
        return "UP";
    case SLUICE_CLOSED:
        return "CLOSED";
    case SLUICE_MESSAGE:
        return "MESSAGE";
    case SLUICE_SENT:
        return "SENT";
    case SLUICE_WRITABLE:
        return "WRITABLE";
    case SLUICE_WAKE:
        return "WAKE";
    case SLUICE_CONNECT:
        return "CONNECT";
    case SLUICE_REQUEST:
        return "REQUEST";
    case SLUICE_REPLY:
        return "REPLY";
    case SLUICE_LARGE:
        return "LARGE";
    case SLUICE_DONE:
        return "DONE";
    case SLUICE_DOWN:
        return "DOWN";
    case SLUICE_NOTIFIED:
        return "NOTIFIED";
    case SLUICE_MOVED:
        return "MOVED";
    }
    return "unknown event";
}

uint32_t sluice_version(void) {
    return SLUICE_VERSION_MAJOR << 16 | SLUICE_VERSION_MINOR << 8 | SLUICE_VERSION_PATCH;
}

uint64_t sluice_now(void) {
    return env_now(&env_default);
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
    case SLUICE_REASON_SESSION_UNKNOWN:
    case SLUICE_REASON_RESUME_TIMEOUT:
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
