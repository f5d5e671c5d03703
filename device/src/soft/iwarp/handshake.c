/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake.c - MPA's request and reply to bytes and back, and the terms that two ends agree on in them.
 *
 * Pure; any thread. The bytes come from any host that can reach a port: the parser has room for the longest handshake,
 * and allocates nothing for the length that a peer claims.
 */
#include "soft/iwarp/handshake.h"

#include <string.h>

#include "soft/iwarp/wire.h"

#define KEY_BYTES 16u
#define FLAG_MARKERS 0x80u
#define FLAG_CRC 0x40u
#define FLAG_REJECT 0x20u
#define FLAG_ENHANCED 0x10u
/*
 * Reserved bits, which other implementations ignore. Soft-iWARP's listener echoes them all, so the bit that grants is
 * not the bit that asks.
 */
#define FLAG_ASKS_EXTENDED 0x01u
#define FLAG_GRANTS_EXTENDED 0x02u
#define DEPTH_BYTES 4u
#define FIELD_HIGH 0x8000u /* of IRD: peer-to-peer; of ORD: a WRITE as RTR */
#define FIELD_LOW 0x4000u  /* of IRD: a SEND as RTR; of ORD: a READ */

static const char keys[2][KEY_BYTES + 1] = {"MPA ID Req Frame", "MPA ID Rep Frame"};

/* ---- to bytes -------------------------------------------------------------------------------------------- */

static uint8_t flags_of(const struct iwarp_handshake *h) {
    unsigned extended = h->reply ? FLAG_GRANTS_EXTENDED : FLAG_ASKS_EXTENDED;
    return (uint8_t)((h->markers ? FLAG_MARKERS : 0) | (h->crc ? FLAG_CRC : 0) |
                     (h->reject ? FLAG_REJECT : 0) | (h->enhanced ? FLAG_ENHANCED : 0) |
                     (h->extended ? extended : 0));
}

static uint16_t field(bool high, bool low, uint16_t depth) {
    unsigned most = depth < IWARP_DEPTH_NONE ? depth : IWARP_DEPTH_NONE;
    return (uint16_t)((high ? FIELD_HIGH : 0) | (low ? FIELD_LOW : 0) | most);
}

size_t iwarp_handshake_put(uint8_t out[IWARP_HANDSHAKE_MAX], const struct iwarp_handshake *h) {
    if (h->bytes > IWARP_PRIVATE_MAX)
        return 0;
    size_t at = IWARP_HANDSHAKE_HEAD;
    memcpy(out, keys[h->reply], KEY_BYTES);
    out[16] = flags_of(h);
    out[17] = h->revision;
    iwarp_put16(out + 18, (uint16_t)(h->bytes + (h->enhanced ? DEPTH_BYTES : 0)));
    if (h->enhanced) {
        iwarp_put16(out + at, field(h->peer_to_peer, h->rtr_send, h->ird));
        iwarp_put16(out + at + 2, field(h->rtr_write, h->rtr_read, h->ord));
        at += DEPTH_BYTES;
    }
    if (h->bytes > 0)
        memcpy(out + at, h->data, h->bytes);
    return at + h->bytes;
}

/* ---- from bytes ------------------------------------------------------------------------------------------ */

void iwarp_handshake_expect(struct iwarp_handshake_parser *p, bool reply) {
    p->reply = reply;
    p->have = 0;
}

static size_t behind(const struct iwarp_handshake_parser *p) {
    return iwarp_get16(p->bytes + 18);
}

size_t iwarp_handshake_wants(const struct iwarp_handshake_parser *p) {
    if (p->have < IWARP_HANDSHAKE_HEAD)
        return IWARP_HANDSHAKE_HEAD - p->have;
    return IWARP_HANDSHAKE_HEAD + behind(p) - p->have;
}

/* Revision 1 has no such bit: it is one of those that are reserved there, and not looked at (RFC 5044, 7.1). */
static bool is_enhanced(const struct iwarp_handshake_parser *p) {
    return p->bytes[16] & FLAG_ENHANCED && p->bytes[17] >= 2;
}

/* Checks the bytes at hand, from the one at `from` on. */
static bool head_is_right(const struct iwarp_handshake_parser *p, size_t from) {
    size_t keyed = p->have < KEY_BYTES ? p->have : KEY_BYTES;
    if (from < keyed && memcmp(p->bytes + from, keys[p->reply] + from, keyed - from) != 0)
        return false;
    if (p->have > 17 && (p->bytes[17] < 1 || p->bytes[17] > 2))
        return false;
    if (p->have < IWARP_HANDSHAKE_HEAD)
        return true;
    bool enhanced = is_enhanced(p), reject = p->reply && p->bytes[16] & FLAG_REJECT;
    /* Soft-iWARP sends no more than the head in a reply that rejects. */
    return behind(p) <= IWARP_HANDSHAKE_BEHIND &&
           (!enhanced || behind(p) >= DEPTH_BYTES || (reject && behind(p) == 0));
}

static void read_fields(struct iwarp_handshake *h, const struct iwarp_handshake_parser *p) {
    const uint8_t *at = p->bytes + IWARP_HANDSHAKE_HEAD;
    unsigned flags = p->bytes[16];
    size_t left = behind(p);
    *h = (struct iwarp_handshake){.reply = p->reply,
                                  .revision = p->bytes[17],
                                  .markers = flags & FLAG_MARKERS,
                                  .crc = flags & FLAG_CRC,
                                  .reject = p->reply && flags & FLAG_REJECT,
                                  .enhanced = is_enhanced(p),
                                  .ird = IWARP_DEPTH_NONE,
                                  .ord = IWARP_DEPTH_NONE};
    h->extended = p->reply ? flags & FLAG_GRANTS_EXTENDED && !(flags & FLAG_ASKS_EXTENDED)
                           : (flags & FLAG_ASKS_EXTENDED) != 0;
    if (h->enhanced && left >= DEPTH_BYTES) {
        unsigned ird = iwarp_get16(at), ord = iwarp_get16(at + 2);
        h->peer_to_peer = ird & FIELD_HIGH;
        h->rtr_send = ird & FIELD_LOW;
        h->rtr_write = ord & FIELD_HIGH;
        h->rtr_read = ord & FIELD_LOW;
        h->ird = ird & IWARP_DEPTH_NONE;
        h->ord = ord & IWARP_DEPTH_NONE;
        at += DEPTH_BYTES;
        left -= DEPTH_BYTES;
    }
    h->data = at;
    h->bytes = (uint16_t)left;
}

enum iwarp_parsed iwarp_handshake_take(struct iwarp_handshake_parser *p, const uint8_t *in,
                                       size_t bytes, size_t *taken, struct iwarp_handshake *h) {
    *taken = 0;
    /* Twice: the head, then what follows it, whose length is in the head. */
    for (int part = 0; part < 2; part++) {
        size_t from = p->have, n = iwarp_handshake_wants(p);
        n = n < bytes - *taken ? n : bytes - *taken;
        if (n > 0)
            memcpy(p->bytes + from, in + *taken, n);
        p->have = (uint16_t)(from + n);
        *taken += n;
        if (from < IWARP_HANDSHAKE_HEAD && !head_is_right(p, from))
            return IWARP_PARSED_BAD;
    }
    if (p->have < IWARP_HANDSHAKE_HEAD || iwarp_handshake_wants(p) > 0)
        return IWARP_PARSED_MORE;
    read_fields(h, p);
    return IWARP_PARSED_DONE;
}

/* ---- the terms ------------------------------------------------------------------------------------------- */

struct iwarp_handshake iwarp_handshake_request(const struct iwarp_offer *own, const void *data,
                                               uint16_t bytes) {
    return (struct iwarp_handshake){.revision = 2,
                                    .crc = own->crc,
                                    .enhanced = true,
                                    .peer_to_peer = own->peer_to_peer,
                                    .rtr_write = own->peer_to_peer,
                                    .rtr_read = own->peer_to_peer,
                                    .ird = own->ird,
                                    .ord = own->ord,
                                    .extended = own->extended,
                                    .data = data,
                                    .bytes = bytes};
}

static uint16_t least(uint16_t a, uint16_t b) {
    return a < b ? a : b;
}

static enum iwarp_rtr choose_rtr(const struct iwarp_handshake *h) {
    return h->rtr_write ? IWARP_RTR_WRITE : h->rtr_read ? IWARP_RTR_READ : IWARP_RTR_NONE;
}

enum iwarp_verdict iwarp_handshake_answer(const struct iwarp_offer *own,
                                          const struct iwarp_handshake *request,
                                          struct iwarp_terms *terms,
                                          struct iwarp_handshake *reply) {
    enum iwarp_rtr rtr = request->peer_to_peer ? choose_rtr(request) : IWARP_RTR_NONE;
    /* An empty SEND as RTR is refused: it would take a receive that the application posted for a message. */
    if (request->markers || (request->peer_to_peer && rtr == IWARP_RTR_NONE))
        return IWARP_VERDICT_REJECT;
    *terms = (struct iwarp_terms){.revision = request->revision,
                                  .crc = own->crc || request->crc,
                                  .extended = own->extended && request->extended,
                                  .peer_to_peer = request->peer_to_peer,
                                  .rtr = rtr,
                                  .ird = own->ird,
                                  .ord = own->ord};
    if (request->enhanced) {
        /* This end serves the READs that the dialer asks, up to a limit, and asks no more than the dialer serves. */
        if (request->ord != IWARP_DEPTH_NONE && request->ord > terms->ird)
            terms->ird = least(request->ord, own->depth_max > own->ird ? own->depth_max : own->ird);
        if (request->ird != IWARP_DEPTH_NONE)
            terms->ord = least(terms->ord, request->ird);
    }
    *reply = (struct iwarp_handshake){.reply = true,
                                      .revision = request->revision,
                                      .crc = terms->crc,
                                      .enhanced = request->enhanced,
                                      .peer_to_peer = terms->peer_to_peer,
                                      .rtr_write = rtr == IWARP_RTR_WRITE,
                                      .rtr_read = rtr == IWARP_RTR_READ,
                                      .ird = terms->ird,
                                      .ord = terms->ord,
                                      .extended = terms->extended};
    return IWARP_VERDICT_ACCEPT;
}

struct iwarp_handshake iwarp_handshake_reject(const struct iwarp_handshake *request,
                                              const void *data, uint16_t bytes) {
    return (struct iwarp_handshake){.reply = true,
                                    .revision = request->revision,
                                    .reject = true,
                                    .enhanced = request->enhanced,
                                    .data = data,
                                    .bytes = bytes};
}

/* Takes the RTR frame that the reply chose among the offered ones. False: it chose none of them. */
static bool conclude_rtr(const struct iwarp_handshake *request, const struct iwarp_handshake *reply,
                         struct iwarp_terms *terms) {
    terms->peer_to_peer = request->peer_to_peer && reply->peer_to_peer;
    if (!terms->peer_to_peer)
        return true;
    struct iwarp_handshake both = {.rtr_write = request->rtr_write && reply->rtr_write,
                                   .rtr_read = request->rtr_read && reply->rtr_read};
    terms->rtr = choose_rtr(&both);
    return terms->rtr != IWARP_RTR_NONE;
}

enum iwarp_verdict iwarp_handshake_conclude(const struct iwarp_offer *own,
                                            const struct iwarp_handshake *request,
                                            const struct iwarp_handshake *reply,
                                            struct iwarp_terms *terms,
                                            enum iwarp_refusal *refusal) {
    *refusal = IWARP_FINE;
    if (reply->reject)
        return IWARP_VERDICT_REJECT;
    if (reply->revision != request->revision || reply->enhanced != request->enhanced)
        return IWARP_VERDICT_FORM;
    if (reply->markers)
        return IWARP_VERDICT_MARKERS;
    *terms = (struct iwarp_terms){.revision = reply->revision,
                                  .crc = request->crc || reply->crc,
                                  .extended = request->extended && reply->extended,
                                  .ird = own->ird,
                                  .ord = own->ord};
    if (!conclude_rtr(request, reply, terms)) {
        *refusal = IWARP_MPA_RTR;
        return IWARP_VERDICT_TERMINATE;
    }
    if (reply->ird != IWARP_DEPTH_NONE)
        terms->ord = least(terms->ord, reply->ird);
    if (reply->ord != IWARP_DEPTH_NONE && reply->ord > terms->ird) {
        if (reply->ord > own->depth_max) {
            *refusal = IWARP_MPA_IRD;
            return IWARP_VERDICT_TERMINATE;
        }
        terms->ird = reply->ord;
    }
    return IWARP_VERDICT_ACCEPT;
}
