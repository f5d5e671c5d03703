/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * error.c - the public calls that need no node: texts, names, version and clock.
 *
 * Constant tables only; callable from any thread and before any node was opened.
 */
#include <sluice/sluice.h>

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
    case SLUICE_NOTIFIED:
        return "NOTIFIED";
    }
    return "unknown event";
}

uint32_t sluice_version(void) {
    return SLUICE_VERSION_MAJOR << 16 | SLUICE_VERSION_MINOR << 8 | SLUICE_VERSION_PATCH;
}

uint64_t sluice_now(void) {
    return env_now(&env_default);
}
