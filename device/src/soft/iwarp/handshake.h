/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake.h - MPA's request and reply (RFC 5044, and RFC 6581 for revision 2): once each, before any frame.
 *
 * The dialer sends a request, the listener a reply. The functions here turn bytes, in pieces of any size, into a
 * handshake and back, and compute the terms that the two ends agree on from the offers of each. Not to be confused with
 * soft/cm/mpa.h, which is rdma_cm of a device that behaves as one of iWARP within a host.
 *
 * Pure; any thread. A parser belongs to the thread that feeds it.
 */
#ifndef SOFT_IWARP_HANDSHAKE_H
#define SOFT_IWARP_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/terminate.h"

#define IWARP_HANDSHAKE_HEAD 20u
#define IWARP_HANDSHAKE_BEHIND 512u /* most bytes behind a peer's head; more ends the connection */
/*
 * The most private data that this end sends. Linux's Soft-iWARP fails from 252 bytes on, and a reply with more than 256
 * bytes behind the head crashes its kernel.
 */
#define IWARP_PRIVATE_MAX 251u
#define IWARP_HANDSHAKE_MAX (IWARP_HANDSHAKE_HEAD + 4u + IWARP_PRIVATE_MAX) /* this end sends */

#define IWARP_DEPTH_NONE 0x3fffu /* READ depth: not negotiated in MPA; the largest value */

/* The dialer's first frame (RTR), after which the listener may send: an empty READ or WRITE, never a SEND. */
enum iwarp_rtr { IWARP_RTR_NONE, IWARP_RTR_WRITE, IWARP_RTR_READ };

struct iwarp_handshake {
    bool reply;
    uint8_t revision;
    bool markers, crc, reject;
    bool enhanced; /* revision 2: the fields below are valid */
    bool peer_to_peer, rtr_send, rtr_write, rtr_read;
    uint16_t ird, ord; /* READs that the sender serves, and asks, at a time */
    /* RFC 7306 between two of this device: asked by one reserved bit, granted by another; other ends echo or ignore. */
    bool extended;
    /* The application's private data; when read, it points into the parser. */
    const uint8_t *data;
    uint16_t bytes;
};

/* Returns the length; 0: there is more private data than IWARP_PRIVATE_MAX. */
size_t iwarp_handshake_put(uint8_t out[IWARP_HANDSHAKE_MAX], const struct iwarp_handshake *h);

struct iwarp_handshake_parser {
    bool reply; /* a reply is expected, not a request */
    uint16_t have;
    uint8_t bytes[IWARP_HANDSHAKE_HEAD + IWARP_HANDSHAKE_BEHIND];
};

enum iwarp_parsed { IWARP_PARSED_MORE, IWARP_PARSED_DONE, IWARP_PARSED_BAD };

void iwarp_handshake_expect(struct iwarp_handshake_parser *p, bool reply);
/* How many more bytes belong to the handshake as far as known; the head may add more. 0: it is complete. */
size_t iwarp_handshake_wants(const struct iwarp_handshake_parser *p);
/*
 * Takes the bytes that belong to the handshake, sets *taken to their number, and fills *h when it is complete. Returns
 * BAD at the first wrong byte: of the key, the revision or the length. No byte may follow a request before its reply;
 * frames follow a reply.
 */
enum iwarp_parsed iwarp_handshake_take(struct iwarp_handshake_parser *p, const uint8_t *in,
                                       size_t bytes, size_t *taken, struct iwarp_handshake *h);

/* The offer of one end. */
struct iwarp_offer {
    bool crc;           /* asks for check values; they are used if either end asks */
    bool peer_to_peer;  /* dialer: the listener shall be able to send first */
    bool extended;      /* may use RFC 7306 */
    uint16_t ird, ord;  /* of its queue pair */
    uint16_t depth_max; /* ird may be raised so far for the other end */
};

/* The terms that both ends keep to, as one of them sees them. */
struct iwarp_terms {
    uint8_t revision;
    bool crc, extended;
    bool peer_to_peer; /* the dialer's first frame is `rtr`; otherwise its first message is */
    enum iwarp_rtr rtr;
    uint16_t ird, ord; /* of its queue pair from now on, adapted to the peer's */
};

enum iwarp_verdict {
    IWARP_VERDICT_ACCEPT,
    IWARP_VERDICT_REJECT,    /* listener: send iwarp_handshake_reject(), close. dialer: rejected */
    IWARP_VERDICT_MARKERS,   /* dialer: the reply asks for markers; close */
    IWARP_VERDICT_FORM,      /* dialer: the reply has a revision or form not asked for; close */
    IWARP_VERDICT_TERMINATE, /* dialer: send the Terminate of *refusal, close */
};

/* The request of a dialer, with its application's data. */
struct iwarp_handshake iwarp_handshake_request(const struct iwarp_offer *own, const void *data,
                                               uint16_t bytes);
/* Listener: the terms for a request, and the reply that accepts it; the caller adds the application's data to that. */
enum iwarp_verdict iwarp_handshake_answer(const struct iwarp_offer *own,
                                          const struct iwarp_handshake *request,
                                          struct iwarp_terms *terms, struct iwarp_handshake *reply);
/* The reply that refuses that request. */
struct iwarp_handshake iwarp_handshake_reject(const struct iwarp_handshake *request,
                                              const void *data, uint16_t bytes);
/* Dialer: the terms after the reply to that request; *refusal: the Terminate to send with IWARP_VERDICT_TERMINATE. */
enum iwarp_verdict iwarp_handshake_conclude(const struct iwarp_offer *own,
                                            const struct iwarp_handshake *request,
                                            const struct iwarp_handshake *reply,
                                            struct iwarp_terms *terms, enum iwarp_refusal *refusal);

#endif
