/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake.h - MPA's request and reply (RFC 5044, and RFC 6581 for revision 2): once each, before any frame.
 *
 * The dialer sends a request, the listener a reply. Bytes to a handshake and back, from pieces of any size; and what
 * the two ends agree on, as functions of what each wants. Not soft/cm/mpa.h, which is rdma_cm of a device that behaves as
 * one of iWARP within a host.
 *
 * Pure; any thread. A parser belongs to who feeds it.
 */
#ifndef SOFT_IWARP_HANDSHAKE_H
#define SOFT_IWARP_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/terminate.h"

#define IWARP_HANDSHAKE_HEAD 20u
#define IWARP_HANDSHAKE_BEHIND 512u /* of a peer: more ends it */
/* Of ours: Linux's Soft-iWARP fails from 252 on, and from 257 on takes its kernel along. */
#define IWARP_PRIVATE_MAX 251u
#define IWARP_HANDSHAKE_MAX (IWARP_HANDSHAKE_HEAD + 4u + IWARP_PRIVATE_MAX) /* what is written */

#define IWARP_DEPTH_NONE 0x3fffu /* of READs: not negotiated here; the most a field holds */

/* How the dialer's first frame lets the listener send: a READ or WRITE of nothing. SEND is never asked for. */
enum iwarp_rtr { IWARP_RTR_NONE, IWARP_RTR_WRITE, IWARP_RTR_READ };

struct iwarp_handshake {
    bool reply;
    uint8_t revision;
    bool markers, crc, reject;
    bool enhanced; /* revision 2: what follows counts */
    bool peer_to_peer, rtr_send, rtr_write, rtr_read;
    uint16_t ird, ord; /* READs served, READs asked at a time; of the sender */
    /* RFC 7306 between two of this device: asked with one reserved bit, granted with another; others echo or ignore. */
    bool extended;
    /* The application's; of the parser's bytes when read. */
    const uint8_t *data;
    uint16_t bytes;
};

/* Returns how many bytes it is; 0: there is more data than IWARP_PRIVATE_MAX. */
size_t iwarp_handshake_put(uint8_t out[IWARP_HANDSHAKE_MAX], const struct iwarp_handshake *h);

struct iwarp_handshake_parser {
    bool reply; /* what is expected */
    uint16_t have;
    uint8_t bytes[IWARP_HANDSHAKE_HEAD + IWARP_HANDSHAKE_BEHIND];
};

enum iwarp_parsed { IWARP_PARSED_MORE, IWARP_PARSED_DONE, IWARP_PARSED_BAD };

void iwarp_handshake_expect(struct iwarp_handshake_parser *p, bool reply);
/* How many bytes are still known to belong to it; more may turn out to. 0: it is complete. */
size_t iwarp_handshake_wants(const struct iwarp_handshake_parser *p);
/*
 * Takes what belongs to it, says how much that was, and where it is complete what it is. Bad as soon as that is seen:
 * a wrong key byte, a revision or a length that there is not. Behind a request nothing may come; behind a reply frames do.
 */
enum iwarp_parsed iwarp_handshake_take(struct iwarp_handshake_parser *p, const uint8_t *in,
                                       size_t bytes, size_t *taken, struct iwarp_handshake *h);

/* What one end has to offer. */
struct iwarp_offer {
    bool crc;           /* asks for check values; the other end may, too */
    bool peer_to_peer;  /* dialer: the listener is to be able to send first */
    bool extended;      /* may use RFC 7306 */
    uint16_t ird, ord;  /* of its queue pair */
    uint16_t depth_max; /* to which the two may be raised for the other end */
};

/* What both then hold to, as one of them sees it. */
struct iwarp_terms {
    uint8_t revision;
    bool crc, extended;
    bool peer_to_peer; /* the dialer begins with rtr; otherwise with its first message */
    enum iwarp_rtr rtr;
    uint16_t ird, ord; /* of its queue pair now; what the peer's are known to allow */
};

enum iwarp_verdict {
    IWARP_VERDICT_ACCEPT,
    IWARP_VERDICT_REJECT, /* listener: send iwarp_handshake_reject(), close. dialer: the listener's application did */
    IWARP_VERDICT_MARKERS,   /* dialer: it asks for markers; close */
    IWARP_VERDICT_FORM,      /* dialer: a revision or form that was not asked for; close */
    IWARP_VERDICT_TERMINATE, /* dialer: send that Terminate, close */
};

/* The request of a dialer, with its application's data. */
struct iwarp_handshake iwarp_handshake_request(const struct iwarp_offer *own, const void *data,
                                               uint16_t bytes);
/* A listener's: what the request comes to, and the reply that accepts it, to which the application's data is added. */
enum iwarp_verdict iwarp_handshake_answer(const struct iwarp_offer *own,
                                          const struct iwarp_handshake *request,
                                          struct iwarp_terms *terms, struct iwarp_handshake *reply);
/* The reply that refuses that request. */
struct iwarp_handshake iwarp_handshake_reject(const struct iwarp_handshake *request,
                                              const void *data, uint16_t bytes);
/* A dialer's: what the reply to that request comes to; refusal: the Terminate, of IWARP_VERDICT_TERMINATE. */
enum iwarp_verdict iwarp_handshake_conclude(const struct iwarp_offer *own,
                                            const struct iwarp_handshake *request,
                                            const struct iwarp_handshake *reply,
                                            struct iwarp_terms *terms, enum iwarp_refusal *refusal);

#endif
