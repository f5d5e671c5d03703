/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rx_segment.c - puts segments together to messages, in the order of DDP, and calls the owner's operation for each.
 *
 * Owner: as rx.h. The header comes from a peer and has passed iwarp_ddp_get() only: its opcode exists, and its queue is
 * that opcode's.
 */
#include "soft/iwarp/rx_segment.h"

#include <string.h>

#include "soft/iwarp/rx.h"
#include "soft/iwarp/wire.h"

/* ---- a segment begins ------------------------------------------------------------------------------------ */

/* The owner must name exactly as much memory as was asked for; any other length is an error of this end. */
static enum iwarp_refusal check_place(const struct iwarp_rx *rx, enum iwarp_refusal refusal) {
    if (refusal == IWARP_FINE && iwarp_place_left(&rx->place) != rx->payload)
        return IWARP_LOCAL_CATASTROPHIC;
    return refusal;
}

/* The only length of a message that the device reads itself; SENDs have any. */
static uint32_t own_bytes(unsigned opcode) {
    switch (opcode) {
    case IWARP_READ_REQUEST:
        return IWARP_READ_BYTES;
    case IWARP_IMMEDIATE:
    case IWARP_IMMEDIATE_SOLICITED:
        return IWARP_IMMEDIATE_BYTES;
    case IWARP_ATOMIC_REQUEST:
        return IWARP_ATOMIC_BYTES;
    default:
        return IWARP_ATOMIC_RESPONSE_BYTES;
    }
}

static enum iwarp_refusal begin_own(const struct iwarp_rx *rx) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    if (ddp->opcode == IWARP_TERMINATE) /* of any length, since it ends the stream in any case */
        return ddp->last ? IWARP_FINE : IWARP_UNTAGGED_TOO_LONG;
    if (!ddp->last || rx->payload > own_bytes(ddp->opcode))
        return IWARP_UNTAGGED_TOO_LONG;
    return rx->payload == own_bytes(ddp->opcode) ? IWARP_FINE : IWARP_OPERATION_OTHER;
}

/* Checks the message number, the offset, and that the segment continues the open message. */
static enum iwarp_refusal check_order(const struct iwarp_rx *rx) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    bool goes_on = rx->untagged.open && ddp->opcode != IWARP_TERMINATE;
    if (ddp->msn != rx->msn[ddp->queue])
        return IWARP_UNTAGGED_MSN;
    if (goes_on && ddp->opcode != rx->untagged.opcode)
        return IWARP_OPERATION_OPCODE;
    if (ddp->mo != (goes_on ? rx->untagged.bytes : 0))
        return IWARP_UNTAGGED_MO;
    bool carries =
        iwarp_opcode_invalidates(ddp->opcode) || iwarp_opcode_send_immediate(ddp->opcode);
    if (goes_on && carries && ddp->stag != rx->untagged.stag)
        return IWARP_OPERATION_OTHER;
    return rx->payload > UINT32_MAX - ddp->mo ? IWARP_UNTAGGED_TOO_LONG : IWARP_FINE;
}

static bool begin_untagged(struct iwarp_rx *rx, enum iwarp_refusal *refusal) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    bool send = iwarp_opcode_send(ddp->opcode);
    *refusal = check_order(rx);
    if (*refusal == IWARP_FINE && !send)
        *refusal = begin_own(rx);
    if (*refusal != IWARP_FINE)
        return true;
    if (ddp->queue == IWARP_QUEUE_SEND && !rx->untagged.taken) {
        if (!rx->ops->take(rx->owner))
            return false;
        rx->untagged.taken = true;
    }
    if (send && rx->payload > 0)
        *refusal = check_place(rx, rx->ops->receive(rx->owner, ddp->mo, rx->payload, &rx->place));
    return true;
}

/* Accepts only the answer to the oldest READ: exactly its length, at exactly its target. */
static enum iwarp_refusal begin_response(struct iwarp_rx *rx, uint32_t at) {
    struct iwarp_read read;
    if (!rx->ops->reading(rx->owner, &read))
        return IWARP_DDP_CATASTROPHIC;
    if (rx->ddp.stag != read.sink_stag)
        return IWARP_TAGGED_STAG;
    if (rx->ddp.offset != read.sink_offset + at || at > read.bytes ||
        rx->payload > read.bytes - at || (rx->payload == read.bytes - at) != rx->ddp.last)
        return IWARP_TAGGED_BOUNDS;
    if (rx->payload == 0)
        return IWARP_FINE;
    return check_place(rx, rx->ops->response(rx->owner, at, rx->payload, &rx->place));
}

static enum iwarp_refusal begin_tagged(struct iwarp_rx *rx) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    uint32_t at = rx->tagged.open ? rx->tagged.bytes : 0;
    if (rx->tagged.open) {
        if (ddp->opcode != rx->tagged.opcode)
            return IWARP_OPERATION_OPCODE;
        if (ddp->stag != rx->tagged.stag)
            return IWARP_TAGGED_STAG;
        if (ddp->offset != rx->tagged.next)
            return IWARP_TAGGED_BOUNDS;
    }
    if (rx->payload > 0 && rx->payload - 1 > UINT64_MAX - ddp->offset)
        return IWARP_TAGGED_WRAP;
    if (rx->payload > UINT32_MAX - at)
        return IWARP_TAGGED_BOUNDS;
    if (ddp->opcode == IWARP_READ_RESPONSE)
        return begin_response(rx, at);
    /* The STag and the offset of an empty WRITE are not checked. */
    if (rx->payload == 0)
        return IWARP_FINE;
    return check_place(rx,
                       rx->ops->write(rx->owner, ddp->stag, ddp->offset, rx->payload, &rx->place));
}

bool iwarp_rx_segment_begin(struct iwarp_rx *rx, enum iwarp_refusal *refusal) {
    iwarp_place_nowhere(&rx->place);
    if (!iwarp_opcode_tagged(rx->ddp.opcode))
        return begin_untagged(rx, refusal);
    *refusal = begin_tagged(rx);
    return true;
}

bool iwarp_rx_segment_is_own(const struct iwarp_rx *rx) {
    return !iwarp_opcode_tagged(rx->ddp.opcode) && !iwarp_opcode_send(rx->ddp.opcode);
}

/* ---- a segment ends -------------------------------------------------------------------------------------- */

static void deliver(struct iwarp_rx *rx, struct iwarp_message *message) {
    message->opcode = rx->ddp.opcode;
    rx->untagged.taken = rx->untagged.open = false;
    rx->written = false;
    rx->ops->deliver(rx->owner, message);
}

enum iwarp_rx_whole iwarp_rx_segment_whole(struct iwarp_rx *rx, const uint8_t *payload) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    struct iwarp_message message = {.bytes = rx->payload};
    bool plain = ddp->opcode == IWARP_SEND || ddp->opcode == IWARP_SEND_SOLICITED;
    if (!plain || !ddp->last || ddp->mo != 0 || ddp->msn != rx->msn[IWARP_QUEUE_SEND])
        return IWARP_RX_WHOLE_NOT;
    if (!rx->untagged.taken && !rx->ops->take(rx->owner))
        return IWARP_RX_WHOLE_WAITS;
    rx->untagged.taken = true;
    iwarp_place_nowhere(&rx->place);
    if (check_place(rx, rx->ops->receive(rx->owner, 0, rx->payload, &rx->place)) != IWARP_FINE ||
        !iwarp_place_put(&rx->place, payload, rx->payload))
        return IWARP_RX_WHOLE_NOT; /* its parts are refused for the same reason */
    rx->msn[IWARP_QUEUE_SEND]++;
    deliver(rx, &message);
    return IWARP_RX_WHOLE_DELIVERED;
}

static enum iwarp_refusal end_send(struct iwarp_rx *rx) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    struct iwarp_message message = {.bytes = ddp->mo + rx->payload};
    if (!ddp->last) {
        rx->untagged.open = true;
        rx->untagged.opcode = ddp->opcode;
        rx->untagged.stag = ddp->stag;
        rx->untagged.bytes = message.bytes;
        return IWARP_FINE;
    }
    if (iwarp_opcode_invalidates(ddp->opcode)) {
        enum iwarp_refusal refusal = rx->ops->invalidate(rx->owner, ddp->stag);
        if (refusal != IWARP_FINE)
            return refusal;
        message.stag = ddp->stag;
    }
    if (iwarp_opcode_send_immediate(ddp->opcode))
        iwarp_put32(message.immediate, ddp->stag);
    rx->msn[IWARP_QUEUE_SEND]++;
    deliver(rx, &message);
    return IWARP_FINE;
}

static void end_immediate(struct iwarp_rx *rx) {
    struct iwarp_message message = {.written = rx->written,
                                    .written_bytes = rx->written ? rx->written_bytes : 0};
    memcpy(message.immediate, rx->body, sizeof message.immediate);
    deliver(rx, &message);
}

static enum iwarp_refusal end_own(struct iwarp_rx *rx) {
    struct iwarp_read read;
    struct iwarp_atomic atomic;
    struct iwarp_atomic_response response;
    struct iwarp_terminate terminate;
    rx->msn[rx->ddp.queue]++;
    switch (rx->ddp.opcode) {
    case IWARP_READ_REQUEST:
        iwarp_read_get(&read, rx->body);
        return rx->ops->read(rx->owner, &read);
    case IWARP_ATOMIC_REQUEST:
        if (!iwarp_atomic_get(&atomic, rx->body))
            return IWARP_OPERATION_OPCODE;
        return rx->ops->atomic(rx->owner, &atomic);
    case IWARP_ATOMIC_RESPONSE:
        iwarp_atomic_response_get(&response, rx->body);
        return rx->ops->atomic_done(rx->owner, &response);
    case IWARP_TERMINATE:
        iwarp_terminate_get(&terminate, rx->body, rx->body_have);
        rx->status = IWARP_RX_TERMINATED;
        rx->ops->terminated(rx->owner, &terminate);
        return IWARP_FINE;
    default:
        end_immediate(rx);
        return IWARP_FINE;
    }
}

static void end_tagged(struct iwarp_rx *rx) {
    const struct iwarp_ddp *ddp = &rx->ddp;
    uint32_t bytes = (rx->tagged.open ? rx->tagged.bytes : 0) + rx->payload;
    rx->tagged.open = !ddp->last;
    rx->tagged.opcode = ddp->opcode;
    rx->tagged.stag = ddp->stag;
    rx->tagged.bytes = bytes;
    rx->tagged.next = ddp->offset + rx->payload;
    if (!ddp->last)
        return;
    if (ddp->opcode == IWARP_READ_RESPONSE) {
        rx->ops->read_done(rx->owner);
    } else if (bytes > 0 || !rx->ops->empty || !rx->ops->empty(rx->owner, ddp->stag, ddp->offset)) {
        rx->written = true;
        rx->written_bytes = bytes;
    }
}

enum iwarp_refusal iwarp_rx_segment_end(struct iwarp_rx *rx) {
    if (iwarp_opcode_send(rx->ddp.opcode))
        return end_send(rx);
    if (iwarp_rx_segment_is_own(rx))
        return end_own(rx);
    end_tagged(rx);
    return IWARP_FINE;
}
