/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * terminate.c - bytes of the Terminate message (RFC 5040, 4.8), and completion statuses for its codes.
 *
 * Pure; any thread. A Terminate that is read comes from a peer: its content decides only which request was refused, if
 * the stream has such a one (qp_ack.c), and the status of that request.
 */
#include "soft/iwarp/terminate.h"

#include <string.h>

#include "soft/iwarp/wire.h"

#define HAS_LENGTH 0x80u
#define HAS_HEADER 0x40u
#define HAS_READ 0x20u
#define FLAGS (HAS_LENGTH | HAS_HEADER | HAS_READ)
#define SWAPPED_FLAGS 0x07u /* the same three, in reverse bit order */
#define UNTAGGED_HEADER 18u
#define TAGGED_HEADER 14u

size_t iwarp_terminate_put(uint8_t out[IWARP_TERMINATE_MAX], const struct iwarp_terminate *t) {
    size_t at = 4;
    out[0] = (uint8_t)(iwarp_refusal_layer(t->refusal) << 4 | iwarp_refusal_type(t->refusal));
    out[1] = (uint8_t)iwarp_refusal_code(t->refusal);
    out[2] = 0;
    out[3] = 0;
    if (t->header_bytes == 0)
        return at;
    out[2] = HAS_LENGTH | HAS_HEADER;
    iwarp_put16(out + at, t->segment);
    memcpy(out + at + 2, t->header, t->header_bytes);
    at += 2u + t->header_bytes;
    if (t->read) {
        out[2] |= HAS_READ;
        memcpy(out + at, t->read_request, IWARP_TERMINATE_READ_BYTES);
        at += IWARP_TERMINATE_READ_BYTES;
    }
    return at;
}

/* The RFCs define this code. */
static bool known(unsigned refusal) {
    static const struct {
        uint8_t layer, type;
        uint16_t codes; /* a bit each */
    } rows[] = {{0, 1, 0x21f}, {0, 2, 0x3e0}, {1, 0, 0x001},
                {1, 1, 0x01f}, {1, 2, 0x07e}, {2, 0, 0x0fe}};
    unsigned code = iwarp_refusal_code(refusal);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].layer == iwarp_refusal_layer(refusal) &&
            rows[i].type == iwarp_refusal_type(refusal))
            return (code < 16 && rows[i].codes >> code & 1) || (code == 0xff && rows[i].layer == 0);
    return iwarp_refusal_layer(refusal) == 0 && iwarp_refusal_type(refusal) == 0;
}

static unsigned swap_flags(unsigned flags) {
    return (flags & 1 ? HAS_LENGTH : 0) | (flags & 2 ? HAS_HEADER : 0) | (flags & 4 ? HAS_READ : 0);
}

void iwarp_terminate_get(struct iwarp_terminate *t, const uint8_t *in, size_t bytes) {
    memset(t, 0, sizeof *t);
    t->refusal = IWARP_OPERATION_OTHER;
    if (bytes < 4)
        return;
    unsigned plain = IWARP_REFUSAL((unsigned)in[0] >> 4, in[0] & 15u, in[1]);
    unsigned swapped = IWARP_REFUSAL(in[0] & 15u, (unsigned)in[0] >> 4, in[1]);
    unsigned flags = in[2] & FLAGS;
    bool swap = flags == 0 && (in[2] & SWAPPED_FLAGS || (!known(plain) && known(swapped)));
    if (swap)
        flags = swap_flags(in[2]);
    t->refusal = swap ? swapped : plain;
    size_t at = 4;
    if (!(flags & HAS_LENGTH) || !(flags & HAS_HEADER) || bytes < at + 3)
        return;
    t->segment = iwarp_get16(in + at);
    at += 2;
    uint8_t header = in[at] & 0x80 ? TAGGED_HEADER : UNTAGGED_HEADER;
    if (bytes - at < header)
        return;
    t->header_bytes = header;
    memcpy(t->header, in + at, header);
    at += header;
    if (!(flags & HAS_READ) || bytes - at < IWARP_TERMINATE_READ_BYTES)
        return;
    t->read = true;
    memcpy(t->read_request, in + at, IWARP_TERMINATE_READ_BYTES);
}

/* Soft-iWARP sends "no buffer" also for a message that is too long; a missing receive is the usual reason. */
enum ibv_wc_status iwarp_refusal_of_request(unsigned refusal) {
    switch (refusal) {
    case IWARP_UNTAGGED_NO_BUFFER:
        return IBV_WC_RNR_RETRY_EXC_ERR;
    case IWARP_UNTAGGED_TOO_LONG:
        return IBV_WC_REM_INV_REQ_ERR;
    case IWARP_OPERATION_STREAM:
    case IWARP_OPERATION_GLOBAL:
        return IBV_WC_REM_OP_ERR;
    case IWARP_MPA_CRC:
    case IWARP_MPA_FRAMING:
    case IWARP_MPA_HANDSHAKE:
        return IBV_WC_GENERAL_ERR;
    case IWARP_MPA_LOST:
        return IBV_WC_RETRY_EXC_ERR;
    default:
        break;
    }
    switch (refusal & (unsigned)IWARP_REFUSAL(15, 15, 0)) {
    case IWARP_REFUSAL(0, 1, 0):
    case IWARP_REFUSAL(1, 1, 0):
        return IBV_WC_REM_ACCESS_ERR;
    case IWARP_REFUSAL(0, 2, 0):
        return IBV_WC_REM_INV_REQ_ERR;
    default:
        return IBV_WC_REM_OP_ERR;
    }
}

enum ibv_wc_status iwarp_refusal_of_receive(unsigned refusal) {
    switch (refusal) {
    case IWARP_UNTAGGED_TOO_LONG:
        return IBV_WC_LOC_LEN_ERR;
    case IWARP_LOCAL_CATASTROPHIC: /* memory of the receive itself */
        return IBV_WC_LOC_PROT_ERR;
    case IWARP_REMOTE_INVALIDATE:
    case IWARP_OPERATION_INVALIDATE:
        return IBV_WC_LOC_ACCESS_ERR;
    default:
        return IBV_WC_GENERAL_ERR;
    }
}
