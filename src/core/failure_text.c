/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* failure_text.c - see failure_text.h. No state; whether an address is this host's is asked of the system. */
#include "core/failure_text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cm_conn.h"
#include "core/wire/private_data.h"

enum locality {
    LOCAL_UNKNOWN,
    LOCAL_YES,
    LOCAL_NO,
};

/* A socket of another protocol, at any port: what is wrong with that address is wrong with the address. */
static enum locality locality_of(const union address *address) {
    union address any_port = *address;
    socklen_t bytes = address->any.sa_family == AF_INET ? sizeof address->v4 : sizeof address->v6;
    int fd = socket(address->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno == EAFNOSUPPORT ? LOCAL_NO : LOCAL_UNKNOWN;
    any_port.v4.sin_port = 0; /* the same place in both families */
    int error = bind(fd, &any_port.any, bytes) == 0 ? 0 : errno;
    close(fd);
    return error == 0 ? LOCAL_YES : error == EADDRNOTAVAIL ? LOCAL_NO : LOCAL_UNKNOWN;
}

static bool is_wildcard(const union address *address) {
    return address->any.sa_family == AF_INET ? address->v4.sin_addr.s_addr == htonl(INADDR_ANY)
                                             : IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr) != 0;
}

/* rdma_cm says so of an address that is another host's, and of every clash that a wildcard has a part in. */
static const char *not_available(const union address *address) {
    bool some_port = address->v4.sin_port == 0;
    if (is_wildcard(address))
        return some_port ? "no port is free" : "the port is taken at an address of this host";
    switch (locality_of(address)) {
    case LOCAL_YES:
        return some_port ? "no port is free"
                         : "the port is taken by a listener at every address of this host";
    case LOCAL_NO:
        return "it is not an address of this host";
    case LOCAL_UNKNOWN:
        break;
    }
    return "it is not an address of this host, or has no free port";
}

void failure_text_of_bind(char *out, size_t size, const struct sockaddr *address, int error) {
    const union address *at = (const union address *)(const void *)address;
    switch (error) {
    case EADDRINUSE: /* by a listener, or an id that is bound and does not share it */
        snprintf(out, size, "the address is in use");
        return;
    case EADDRNOTAVAIL:
        snprintf(out, size, "%s", not_available(at));
        return;
    case ENODEV:
        snprintf(out, size, "no RDMA device has that address");
        return;
    case EACCES:
        snprintf(out, size, "port %u needs the right to bind it (CAP_NET_BIND_SERVICE)",
                 ntohs(at->v4.sin_port));
        return;
    default:
        snprintf(out, size, "%s", strerror(error));
        return;
    }
}

sluice_reason failure_text_reason_of_bind(int error) {
    switch (error) {
    case EADDRINUSE:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case ENODEV:
    case EACCES:
    case EPERM:
        return SLUICE_REASON_ADDRESS;
    default:
        return failure_text_reason_of_call(error);
    }
}

sluice_reason failure_text_reason_of_call(int error) {
    return error == ENOMEM || error == ENOBUFS ? SLUICE_REASON_NO_MEMORY
                                               : SLUICE_REASON_DEVICE_ERROR;
}

const char failure_text_no_port[] = "this host has no port left to dial from";

bool failure_text_short_of_files(int error) {
    return error == EMFILE || error == ENFILE;
}

const char *failure_text_of_rejection(sluice_reason reason, bool consumer, bool empty) {
    if (consumer)
        return empty ? "rejected without private data"
                     : "rejected with private data of another program";
    switch ((int)reason) {
    case SLUICE_REASON_NO_LISTENER:
        return "no listener there, says the peer's stack";
    case SLUICE_REASON_UNREACHABLE:
        return "the peer's stack gave the connection up";
    case SLUICE_REASON_PEER_LOST:
        return "the peer's stack still has an older connection, or none any more";
    default:
        return "the peer's stack rejected the connection";
    }
}

sluice_reason failure_text_reason_of_refusal(const struct private_data_rej *rej) {
    bool closed =
        rej->reason == SLUICE_REASON_LOCAL_CLOSE || rej->reason == SLUICE_REASON_PEER_CLOSE;
    return rej->reason == SLUICE_REASON_NONE || closed ? SLUICE_REASON_REFUSED
                                                       : (sluice_reason)rej->reason;
}

void failure_text_of_refusal(char *out, size_t size, const struct private_data_rej *rej,
                             bool by_listener) {
    if (failure_text_reason_of_refusal(rej) == SLUICE_REASON_REFUSED)
        snprintf(out, size, "%s", rej->text);
    else
        snprintf(out, size, "told by the %s: %s", by_listener ? "listener" : "dialer",
                 rej->text[0] ? rej->text : sluice_reason_text(rej->reason));
}

static const char *completion(enum ibv_wc_status status) {
    switch (status) {
    case IBV_WC_SUCCESS:
        return "success";
    case IBV_WC_WR_FLUSH_ERR:
        return "the queue pair broke, with no reason given";
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
        return "the peer acknowledged nothing any more";
    case IBV_WC_RNR_RETRY_EXC_ERR:
        return "the peer had no receive ready for long";
    case IBV_WC_REM_ABORT_ERR:
        return "the peer's device gave an operation up";
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_INV_RD_REQ_ERR:
        return "the peer's device takes no such operation";
    case IBV_WC_REM_OP_ERR:
        return "the peer's device could not complete an operation";
    case IBV_WC_REM_ACCESS_ERR:
        return "the peer's memory does not allow the access";
    case IBV_WC_LOC_LEN_ERR:
        return "more came than the receive has room for";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        return "this side's memory does not allow the access";
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_GENERAL_ERR:
    case IBV_WC_FATAL_ERR:
    case IBV_WC_BAD_RESP_ERR:
    case IBV_WC_MW_BIND_ERR:
    case IBV_WC_LOC_EEC_OP_ERR:
    case IBV_WC_LOC_RDD_VIOL_ERR:
    case IBV_WC_INV_EECN_ERR:
    case IBV_WC_INV_EEC_STATE_ERR:
    case IBV_WC_TM_ERR:
    case IBV_WC_TM_RNDV_INCOMPLETE:
        break;
    }
    return "the device failed an operation";
}

void failure_text_of_completion(char *out, size_t size, enum ibv_wc_status status) {
    snprintf(out, size, "%s (completion status %d)", completion(status), (int)status);
}

void failure_text_of_end(char *out, size_t size, sluice_reason reason, const char *text) {
    const char *why = sluice_reason_text((int)reason);
    bool more = text && *text && strcmp(text, why) != 0;
    snprintf(out, size, "%s%s%s", why, more ? ": " : "", more ? text : "");
}
