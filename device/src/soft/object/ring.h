/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ring.h - the shared-memory ring through which one QP sends to another.
 *
 * One ring per direction, made by the receiving side: a memfd of 8 KiB that holds a 256 byte header
 * and 62 slots of 128 bytes. A slot is two cache lines: a 16 byte head and 112 bytes of payload.
 *
 * Memory order. The writer fills the slot and stores head.seq last with release order; the reader
 * loads seq with acquire order and then reads the rest. seq is position + 1, so a slot of an older
 * lap never matches. A message may span several slots: every slot keeps its own seq word and
 * payload never overlays it, so old payload cannot pass for a sequence word.
 * The reader reports progress as a slot position: in the heads of the opposite ring (`ack`), or,
 * when it has nothing to send, in header.acked.
 *
 * The reader trusts no byte in here: it copies a head once and checks the copy; indexes are its own.
 */
#ifndef SOFT_OBJECT_RING_H
#define SOFT_OBJECT_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_RING_MAGIC 0x53465231u /* "SFR1" */
#define SOFT_RING_BYTES 8192u
#define SOFT_SLOT_BYTES 128u
#define SOFT_RING_SLOTS 62u
#define SOFT_SLOT_PAYLOAD 112u
#define SOFT_SPAN_MAX 4u /* slots of one segment */
#define SOFT_SEGMENT_MAX (SOFT_SPAN_MAX * SOFT_SLOT_PAYLOAD)

/* operations (head.op) */
enum soft_op {
    SOFT_OP_SEND = 1,      /* payload in the slots */
    SOFT_OP_SEND_DESC = 2, /* payload is struct soft_desc[len]: bytes in mapped regions */
    /* one-sided, executed at the target: payload begins with struct soft_reth in the first segment */
    SOFT_OP_WRITE = 3,      /* then the bytes */
    SOFT_OP_WRITE_DONE = 4, /* WRITE_WITH_IMM whose bytes are in place already; soft_reth.length */
    SOFT_OP_READ = 5,       /* nothing more; the answer is a stream of READ_RESPONSE */
    SOFT_OP_ATOMIC = 6,     /* then struct soft_atomic; the answer is one ATOMIC_RESPONSE */
    SOFT_OP_READ_RESPONSE = 7,
    SOFT_OP_ATOMIC_RESPONSE = 8, /* the old value, 8 bytes */
    SOFT_OP_VIOLATION = 9, /* the requester's own check refused its access: len = enum soft_nak */
};

/* head.flags */
#define SOFT_F_FIRST 0x01u
#define SOFT_F_LAST 0x02u
#define SOFT_F_IMM 0x04u
#define SOFT_F_SOLICITED 0x08u
#define SOFT_F_INVALIDATE 0x10u /* SEND_WITH_INV: imm is the key */

struct soft_slot {
    union { /* little endian: stored together, the sequence word is the low half */
        _Atomic uint64_t seq_ack;
        struct {
            _Atomic uint32_t seq;
            _Atomic uint32_t ack; /* slots of the opposite ring consumed so far */
        };
    };
    union { /* atomic so that each is read once: the peer may write again at any time */
        _Atomic uint64_t word_imm;
        struct {
            _Atomic uint32_t word; /* op:8 flags:8 len:16 */
            _Atomic uint32_t imm;
        };
    };
    uint8_t data[SOFT_SLOT_PAYLOAD];
} __attribute__((aligned(128)));

/* One piece of a message that lies in a region the receiver has mapped. */
struct soft_desc {
    uint32_t region;
    uint32_t length;
    uint64_t offset;
};

#define SOFT_MAX_DESC (SOFT_SPAN_MAX * (SOFT_SLOT_PAYLOAD / sizeof(struct soft_desc)))

struct soft_reth {
    uint64_t addr;
    uint32_t key, length;
};

struct soft_atomic {
    uint64_t compare_add, swap;
    uint32_t is_swap, zero;
};

/* Why a receiver refused a message (header.nak) */
enum soft_nak {
    SOFT_NAK_NONE = 0,
    SOFT_NAK_INVALID_REQUEST = 1, /* message longer than the receive buffers, bad operation */
    SOFT_NAK_REMOTE_ACCESS = 2,
    SOFT_NAK_REMOTE_OPERATION = 3, /* the receiver's own buffers were not usable */
};

struct soft_ring {
    /* written once by the receiver, before the ring is handed over */
    struct {
        uint32_t magic, slots;
        uint32_t receiver_qpn, sender_qpn;
        uint32_t place; /* on the receiver's board: where its QP tells of what it sends */
        uint32_t pad[11];
    } fixed;
    /* written by the receiver */
    struct {
        _Atomic uint32_t acked;     /* slots consumed */
        _Atomic uint32_t down;      /* the receiving QP left RTR/RTS */
        _Atomic uint64_t nak;       /* position << 8 | enum soft_nak; valid once nonzero */
        _Atomic uint32_t stalled;   /* position + 1 of a message without a receive (RNR), else 0 */
        _Atomic uint32_t rnr_timer; /* min_rnr_timer of the receiver */
        _Atomic uint32_t access;    /* qp_access_flags | max_dest_rd_atomic << 16 */
        _Atomic uint32_t dark;      /* the receiver's port is down: nothing reaches it */
        uint32_t pad[8];
    } rx;
    /* written by the sender */
    struct {
        _Atomic uint32_t down;     /* the sending QP left RTS */
        _Atomic uint32_t touching; /* odd: the sender is inside one of the receiver's regions */
        _Atomic uint32_t room;     /* no thread polls for slots to become free: ring the sender */
        uint32_t pad[13];
    } tx;
    uint32_t spare[16];
    struct soft_slot slot[SOFT_RING_SLOTS];
};
_Static_assert(sizeof(struct soft_slot) == SOFT_SLOT_BYTES, "slot layout");
_Static_assert(offsetof(struct soft_ring, slot) == 256, "ring header layout");
_Static_assert(sizeof(struct soft_ring) == SOFT_RING_BYTES, "ring layout");

static inline uint32_t soft_word(unsigned op, unsigned flags, unsigned len) {
    return op | flags << 8 | len << 16;
}

static inline unsigned soft_span(unsigned bytes) {
    return bytes <= SOFT_SLOT_PAYLOAD ? 1 : (bytes + SOFT_SLOT_PAYLOAD - 1) / SOFT_SLOT_PAYLOAD;
}

static inline unsigned soft_slot_next(unsigned index) {
    return index + 1 == SOFT_RING_SLOTS ? 0 : index + 1;
}

#endif
