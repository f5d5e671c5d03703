/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ddp.c - headers of DDP segments to bytes and back.
 *
 * Pure; any thread. A header that is read comes from a peer: one that is not refused has an existing opcode, and that
 * opcode's queue.
 */
#include "soft/iwarp/ddp.h"

#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/wire.h"

#define TAGGED 0x80u
#define LAST 0x40u
#define DDP_VERSION_MASK 0x03u
#define DDP_VERSION 0x01u
#define RDMAP_VERSION_MASK 0xc0u
#define RDMAP_VERSION 0x40u
#define OPCODE_MASK 0x0fu

size_t iwarp_ddp_put(uint8_t out[IWARP_HEADER_MAX], const struct iwarp_ddp *ddp) {
    bool tagged = iwarp_opcode_tagged(ddp->opcode);
    out[0] = (uint8_t)((tagged ? TAGGED : 0) | (ddp->last ? LAST : 0) | DDP_VERSION);
    out[1] = (uint8_t)(RDMAP_VERSION | ddp->opcode);
    iwarp_put32(out + 2, ddp->stag);
    if (tagged) {
        iwarp_put64(out + 6, ddp->offset);
        return IWARP_TAGGED_BYTES;
    }
    iwarp_put32(out + 6, ddp->queue);
    iwarp_put32(out + 10, ddp->msn);
    iwarp_put32(out + 14, ddp->mo);
    return IWARP_UNTAGGED_BYTES;
}

enum iwarp_refusal iwarp_ddp_get(struct iwarp_ddp *ddp, const uint8_t *in, bool extended) {
    bool tagged = in[0] & TAGGED;
    unsigned opcode = in[1] & OPCODE_MASK;
    if ((in[0] & DDP_VERSION_MASK) != DDP_VERSION)
        return tagged ? IWARP_TAGGED_VERSION : IWARP_UNTAGGED_VERSION;
    if ((in[1] & RDMAP_VERSION_MASK) != RDMAP_VERSION)
        return IWARP_OPERATION_VERSION;
    if (opcode >= IWARP_OPCODES || (iwarp_opcode_extended(opcode) && !extended) ||
        iwarp_opcode_tagged(opcode) != tagged)
        return IWARP_OPERATION_OPCODE;
    *ddp = (struct iwarp_ddp){
        .opcode = (uint8_t)opcode, .last = in[0] & LAST, .stag = iwarp_get32(in + 2)};
    if (tagged) {
        ddp->offset = iwarp_get64(in + 6);
        return IWARP_FINE;
    }
    ddp->queue = iwarp_get32(in + 6);
    ddp->msn = iwarp_get32(in + 10);
    ddp->mo = iwarp_get32(in + 14);
    return ddp->queue == iwarp_opcode_queue(opcode) ? IWARP_FINE : IWARP_UNTAGGED_QUEUE;
}
