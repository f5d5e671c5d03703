/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * teller.h - another process as the software device sees it: a control connection on which any message may
 * come, with descriptors or without; and what was heard on it, so that messages name what there is.
 *
 * The messages are handed over by the fuzzer's thread, which holds the control lock meanwhile: the device's
 * own thread sees none of it. Owner: that thread.
 */
#ifndef TESTS_FUZZ_TELLER_H
#define TESTS_FUZZ_TELLER_H

#include "fuzz/fuzz.h"
#include "soft/cm/wire.h"
#include "soft/ipc/peer_internal.h"
#include "soft/object/qp.h"

#define TELLER_BLOCK 8000u /* its queue pairs have the numbers from here on */
#define TELLER_QPN(n) (TELLER_BLOCK * SOFT_QP_BLOCK + (n))
#define TELLER_TALKS 16u
#define TELLER_NUMBERS 16u

struct teller_talk {
    uint64_t mine, theirs; /* ids of a connection, 0: not known */
};

struct teller {
    struct soft_peer *peer;
    int sock;
    struct teller_talk talk[TELLER_TALKS];
    uint32_t talks, next_id;
    /* What there is to name: queue pairs, ids of others, ports that are listened on. */
    uint32_t qpn[TELLER_NUMBERS], qpns;
    uint64_t other[2];
    uint16_t port, ud_port;
    uint32_t heard;
    int ring; /* the last that came with LINK: what the other side reads; -1: none */
};

/* Once: files to be sent. */
void teller_prepare(void);
/* A connection that has not greeted. Control lock, for all of these. */
void teller_connect(struct teller *t);
void teller_greet(struct teller *t);
/* One message as the input wants it; then what the device has said in return is heard. */
void teller_tell(struct teller *t, struct fuzz_input *in);
void teller_hear(struct teller *t);
/* That message, as it is; fd -1: none. */
void teller_say(struct teller *t, uint32_t type, const void *body, size_t bytes, int fd);
int teller_file(size_t bytes); /* sealed, as a peer's must be */
void teller_leave(struct teller *t);

#endif
