/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * malformed.h - what a dialer of iWARP may not say: requests of MPA, and frames behind a good one; some that are unusual and
 * right are between them. As bytes for a socket. One thread.
 */
#ifndef TESTS_SUPPORT_MALFORMED_H
#define TESTS_SUPPORT_MALFORMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "soft/iwarp/rdmap.h"

#define MALFORMED_RECEIVE 1024u /* a SEND of so many bytes is longer than the listener's receives */

enum malformed_end { MALFORMED_OPEN, MALFORMED_FIN, MALFORMED_RST };

struct malformed {
    const char *name;
    enum malformed_end end; /* of the stream, behind the bytes */
    bool early;             /* it ends, or may, before the listener has seen a first frame */
    size_t count;
    uint8_t bytes[4096];
};

/* The one of that number; false: there is none. */
bool malformed_request(size_t number, struct malformed *m);
/* Behind a request that asks for check values, of revision 1, or of revision 2. */
bool malformed_frames(size_t number, struct malformed *m);
/* That request. */
void malformed_ask(unsigned revision, struct malformed *m);
/* Behind that request: asks rping to READ; and answers to what it then asks for. */
void malformed_offer(struct malformed *m);
bool malformed_answer(size_t number, const struct iwarp_read *asked, struct malformed *m);
/* A WRITE of nothing, which is right, and a frame of a DDP that there is not: 1/1/4. */
void malformed_nothing(struct malformed *m);
void malformed_probe(struct malformed *m);

#endif
