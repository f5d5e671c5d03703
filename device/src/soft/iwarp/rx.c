/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rx.c - reads frames, as a state machine; rx_segment.c has the meaning of their segments.
 *
 * Owner: one thread at a time. All bytes come from a peer: its lengths decide how much is read, never how much is
 * allocated.
 */
#include "soft/iwarp/rx.h"

#include <string.h>

#include "soft/iwarp/rx_segment.h"
#include "soft/iwarp/wire.h"

enum { STATE_HEAD, STATE_BEGIN, STATE_PAYLOAD, STATE_TAIL };
_Static_assert(STATE_HEAD == 0, "iwarp_rx_inside() asks for it by number");

void iwarp_rx_init(struct iwarp_rx *rx, const struct iwarp_rx_ops *ops, void *owner, bool crc,
                   bool extended) {
    memset(rx, 0, sizeof *rx);
    rx->ops = ops;
    rx->owner = owner;
    rx->crc = crc;
    rx->extended = extended;
    for (unsigned i = 0; i < IWARP_QUEUES; i++)
        rx->msn[i] = 1;
}

static void refuse(struct iwarp_rx *rx, enum iwarp_refusal refusal) {
    rx->status = IWARP_RX_REFUSED;
    rx->refusal = refusal;
    iwarp_place_nowhere(&rx->place);
}

/*
 * Drops the rest of the frame. With check values the refusal waits for the end of the frame, where they show whether
 * the frame arrived as it was sent.
 */
static void doom(struct iwarp_rx *rx, enum iwarp_refusal refusal) {
    iwarp_place_nowhere(&rx->place);
    if (rx->doomed != IWARP_FINE)
        return;
    rx->doomed = refusal;
    if (!rx->crc || rx->checked)
        refuse(rx, refusal);
}

static void count_check(struct iwarp_rx *rx, const void *data, size_t bytes) {
    if (rx->crc && !rx->checked)
        rx->check = iwarp_crc32c(rx->check, data, bytes);
}

/* Adds bytes to `to` until it has `want`. True: it has them. */
static bool gather(struct iwarp_rx *rx, uint8_t *to, unsigned want, const uint8_t **data,
                   size_t *bytes) {
    size_t n = want > rx->have ? want - rx->have : 0;
    n = n < *bytes ? n : *bytes;
    if (n > 0) {
        memcpy(to + rx->have, *data, n);
        rx->have = (uint8_t)(rx->have + n);
        *data += n;
        *bytes -= n;
    }
    return rx->have >= want;
}

/* ---- the parts of a frame; each function returns whether its part is done -------------------------------- */

/* The rest of the segment is payload. */
static void head_done(struct iwarp_rx *rx, unsigned header) {
    count_check(rx, rx->head, rx->have);
    rx->left = rx->payload = rx->segment - header;
    rx->have = 0;
}

_Static_assert(IWARP_LENGTH_BYTES + IWARP_TAGGED_BYTES + IWARP_CRC_BYTES >=
                   IWARP_LENGTH_BYTES + IWARP_HEADER_MAX,
               "a whole frame with the shortest header has as many bytes as the longest header");

/* Of a frame that is wholly at hand. False: the segment is too short for its header. */
static bool take_whole_head(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    unsigned header = iwarp_ddp_bytes((*data)[IWARP_LENGTH_BYTES]);
    rx->segment = iwarp_get16(*data);
    if (rx->segment < header)
        return false;
    memcpy(rx->head, *data, sizeof rx->head);
    rx->headed = true;
    rx->left = rx->payload = rx->segment - header;
    rx->state = STATE_BEGIN;
    *data += IWARP_LENGTH_BYTES + header;
    *bytes -= IWARP_LENGTH_BYTES + header;
    return true;
}

static bool take_head(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    if (rx->checked && rx->have == 0 && take_whole_head(rx, data, bytes))
        return true;
    if (!gather(rx, rx->head, IWARP_LENGTH_BYTES, data, bytes))
        return false;
    rx->segment = iwarp_get16(rx->head);
    /* A segment too short for its header is read as payload, and dropped. */
    unsigned header = rx->segment < IWARP_HEADER_MIN ? 0 : IWARP_HEADER_MIN;
    if (!gather(rx, rx->head, IWARP_LENGTH_BYTES + header, data, bytes))
        return false;
    if (header > 0 && iwarp_ddp_bytes(rx->head[IWARP_LENGTH_BYTES]) <= rx->segment) {
        header = iwarp_ddp_bytes(rx->head[IWARP_LENGTH_BYTES]);
        if (!gather(rx, rx->head, IWARP_LENGTH_BYTES + header, data, bytes))
            return false;
        rx->headed = true;
    }
    head_done(rx, header);
    rx->state = STATE_BEGIN;
    if (!rx->headed) {
        rx->state = STATE_PAYLOAD;
        doom(rx, IWARP_MPA_FRAMING);
    }
    return true;
}

static bool begin_segment(struct iwarp_rx *rx) {
    enum iwarp_refusal refusal =
        iwarp_ddp_get(&rx->ddp, rx->head + IWARP_LENGTH_BYTES, rx->extended);
    if (refusal == IWARP_FINE && !iwarp_rx_segment_begin(rx, &refusal)) {
        rx->status = IWARP_RX_WAITING;
        return false;
    }
    rx->state = STATE_PAYLOAD;
    if (refusal != IWARP_FINE)
        doom(rx, refusal);
    return true;
}

static void took_payload(struct iwarp_rx *rx, size_t bytes) {
    rx->left -= (uint32_t)bytes;
    if (rx->left == 0)
        rx->state = STATE_TAIL;
}

#define AT_ONCE 8192u /* summed, then copied while the first-level cache still has it */

static void place_payload(struct iwarp_rx *rx, const uint8_t *data, size_t bytes) {
    while (bytes > 0) {
        size_t n = bytes < AT_ONCE ? bytes : AT_ONCE;
        count_check(rx, data, n);
        if (!iwarp_place_put(&rx->place, data, n))
            doom(rx, IWARP_LOCAL_CATASTROPHIC);
        data += n;
        bytes -= n;
    }
}

static void use_payload(struct iwarp_rx *rx, const uint8_t *data, size_t bytes) {
    if (rx->doomed == IWARP_FINE && !iwarp_rx_segment_is_own(rx)) {
        place_payload(rx, data, bytes);
        return;
    }
    count_check(rx, data, bytes);
    if (rx->doomed != IWARP_FINE)
        return;
    size_t room = sizeof rx->body - rx->body_have, n = bytes < room ? bytes : room;
    memcpy(rx->body + rx->body_have, data, n);
    rx->body_have = (uint8_t)(rx->body_have + n);
}

static bool take_payload(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    size_t n = rx->left < *bytes ? rx->left : *bytes;
    if (n > 0) {
        use_payload(rx, *data, n);
        *data += n;
        *bytes -= n;
    }
    took_payload(rx, n);
    return rx->state == STATE_TAIL;
}

static bool take_tail(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    unsigned pad = iwarp_pad(rx->segment);
    if (rx->checked && rx->have == 0 && *bytes >= pad + IWARP_CRC_BYTES) {
        *data += pad + IWARP_CRC_BYTES;
        *bytes -= pad + IWARP_CRC_BYTES;
    } else if (!gather(rx, rx->tail, pad + IWARP_CRC_BYTES, data, bytes)) {
        return false;
    }
    count_check(rx, rx->tail, pad);
    if (rx->crc && !rx->checked && rx->check != iwarp_crc32c_get(rx->tail + pad)) {
        refuse(rx, IWARP_MPA_CRC);
        return true;
    }
    enum iwarp_refusal refusal = rx->doomed;
    if (refusal == IWARP_FINE)
        refusal = iwarp_rx_segment_end(rx);
    if (refusal != IWARP_FINE) {
        refuse(rx, refusal);
        return true;
    }
    rx->frames++;
    rx->state = STATE_HEAD;
    rx->have = rx->body_have = 0;
    rx->check = 0;
    rx->checked = rx->headed = false;
    return true;
}

/* ---- a frame that is wholly at hand, as most are --------------------------------------------------------- */

static bool is_at_hand(const uint8_t *data, size_t bytes) {
    return bytes >= IWARP_LENGTH_BYTES && bytes >= iwarp_fpdu_bytes(iwarp_get16(data));
}

/* Its check value is checked before anything of it is used. */
static bool check_ahead(struct iwarp_rx *rx, const uint8_t *data) {
    size_t summed = iwarp_fpdu_bytes(iwarp_get16(data)) - IWARP_CRC_BYTES;
    rx->checked = iwarp_crc32c(0, data, summed) == iwarp_crc32c_get(data + summed);
    if (!rx->checked)
        refuse(rx, IWARP_MPA_CRC);
    return rx->checked;
}

/* A message that is this frame alone. False: nothing of it was taken, and its parts are taken one by one. */
static bool take_message(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    const uint8_t *header = *data + IWARP_LENGTH_BYTES;
    unsigned segment = iwarp_get16(*data), frame = iwarp_fpdu_bytes(segment);
    if (segment <= IWARP_UNTAGGED_BYTES || rx->untagged.open ||
        iwarp_ddp_get(&rx->ddp, header, rx->extended) != IWARP_FINE)
        return false;
    rx->payload = segment - IWARP_UNTAGGED_BYTES;
    switch (iwarp_rx_segment_whole(rx, header + IWARP_UNTAGGED_BYTES)) {
    case IWARP_RX_WHOLE_DELIVERED:
        break;
    case IWARP_RX_WHOLE_WAITS:
        (void)take_head(rx, data, bytes);
        rx->status = IWARP_RX_WAITING;
        return true;
    case IWARP_RX_WHOLE_NOT:
        return false;
    }
    rx->frames++;
    rx->checked = false;
    *data += frame;
    *bytes -= frame;
    return true;
}

static bool begin_frame(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    if (rx->have == 0 && is_at_hand(*data, *bytes)) {
        if (rx->crc && !check_ahead(rx, *data))
            return false;
        if (take_message(rx, data, bytes))
            return true;
    }
    return take_head(rx, data, bytes);
}

/* ---- the stream ------------------------------------------------------------------------------------------ */

static bool step(struct iwarp_rx *rx, const uint8_t **data, size_t *bytes) {
    switch (rx->state) {
    case STATE_HEAD:
        return *bytes > 0 && begin_frame(rx, data, bytes);
    case STATE_BEGIN:
        return begin_segment(rx);
    case STATE_PAYLOAD:
        return take_payload(rx, data, bytes);
    default:
        return take_tail(rx, data, bytes);
    }
}

size_t iwarp_rx_feed(struct iwarp_rx *rx, const uint8_t *data, size_t bytes) {
    size_t left = bytes;
    if (rx->status == IWARP_RX_WAITING)
        rx->status = IWARP_RX_OPEN;
    else if (bytes == 0)
        return 0;
    while (rx->status == IWARP_RX_OPEN && step(rx, &data, &left))
        continue;
    return bytes - left;
}

unsigned iwarp_rx_want(const struct iwarp_rx *rx, size_t least, const struct iovec **pieces) {
    if (rx->status != IWARP_RX_OPEN || rx->state != STATE_PAYLOAD || rx->left < least ||
        rx->place.at == rx->place.count)
        return 0;
    *pieces = &rx->place.piece[rx->place.at];
    return rx->place.count - rx->place.at;
}

void iwarp_rx_filled(struct iwarp_rx *rx, size_t bytes) {
    if (bytes == 0 || rx->state != STATE_PAYLOAD || bytes > iwarp_place_left(&rx->place))
        return;
    iwarp_place_filled(&rx->place, bytes, rx->crc && !rx->checked ? &rx->check : NULL);
    took_payload(rx, bytes);
}

bool iwarp_rx_uses(const struct iwarp_rx *rx, const void *from, size_t bytes) {
    return iwarp_place_uses(&rx->place, from, bytes);
}

void iwarp_rx_withdraw(struct iwarp_rx *rx, enum iwarp_refusal refusal) {
    if (rx->status == IWARP_RX_OPEN && rx->state == STATE_PAYLOAD)
        doom(rx, refusal);
}

/* With the header of the refused segment, if that had a whole one, and the READ request, if that was refused. */
void iwarp_rx_terminate(const struct iwarp_rx *rx, struct iwarp_terminate *terminate) {
    *terminate = (struct iwarp_terminate){.refusal = rx->refusal};
    if (!rx->headed || iwarp_refusal_layer(rx->refusal) > 1)
        return;
    terminate->segment = rx->segment;
    terminate->header_bytes = (uint8_t)iwarp_ddp_bytes(rx->head[IWARP_LENGTH_BYTES]);
    memcpy(terminate->header, rx->head + IWARP_LENGTH_BYTES, terminate->header_bytes);
    if (rx->doomed == IWARP_FINE && rx->ddp.opcode == IWARP_READ_REQUEST &&
        rx->body_have == IWARP_READ_BYTES) {
        terminate->read = true;
        memcpy(terminate->read_request, rx->body, IWARP_READ_BYTES);
    }
}
