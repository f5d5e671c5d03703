/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud.h - UD queue pairs: the rings datagrams travel in, and what a QP has of them.
 *
 * One ring for each pair of QPs that ever talked in that direction, made by the sender on first use: a
 * sealed memfd of 32 KiB with a header and 254 slots of 128 bytes. So there is one writer and one reader,
 * and neither can hold up another QP, whatever it does. A QP keeps a bounded number of them; the
 * one that was not used for longest is removed first, and is made again when it is needed again.
 *
 * A slot begins with its sequence word (position + 1, stored last, with release order); payload never
 * overlays it. The first slot of a datagram holds its head and 64 bytes, each further one 120 bytes.
 *
 * No byte in a ring is trusted: heads are copied once and the copy is checked, indexes are one's own.
 *
 * Owner: ways and inbound rings change under the control lock and the QP's lock, and are used under
 * either. The data path takes the QP's lock only, and asks the engine for a ring that is missing.
 */
#ifndef SOFT_UD_UD_H
#define SOFT_UD_UD_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <urcu/list.h>

#include "soft/rc/requester.h"

struct soft_peer;
struct soft_qp;
struct soft_wqe;

#define SOFT_UD_MAGIC 0x53465544u /* "SFUD" */
#define SOFT_UD_RING_BYTES 32768u
#define SOFT_UD_SLOTS 254u
#define SOFT_UD_FIRST 64u
#define SOFT_UD_MORE 120u
#define SOFT_UD_MTU 4096u
#define SOFT_UD_GRH 40u
#define SOFT_UD_WAYS 256     /* rings a QP writes */
#define SOFT_UD_INS 256      /* rings a QP reads */
#define SOFT_UD_INS_PEER 128 /* of one process */
#define SOFT_UD_WANTED 32
#define SOFT_UD_GROUPS 16 /* multicast groups of one QP */
#define SOFT_UD_MULTICAST_QPN 0xffffffu

/* head.flags */
#define SOFT_UD_F_IMM 1u
#define SOFT_UD_F_SOLICITED 2u
#define SOFT_UD_F_GROUP 4u /* sent to the group dgid */

struct soft_ud_head {
    uint32_t imm;
    uint16_t len;
    uint8_t flags, sl;
    uint32_t qkey;
    uint32_t tclass_flow; /* as in a GRH */
    uint8_t hop_limit, zero[3];
    uint8_t sgid[16], dgid[16];
    uint8_t pad[8];
};

struct soft_ud_slot {
    _Atomic uint32_t seq;
    union {
        struct {
            struct soft_ud_head head;
            uint8_t first[SOFT_UD_FIRST];
        };
        struct {
            uint32_t unused;
            uint8_t more[SOFT_UD_MORE];
        };
    };
};

struct soft_ud_ring {
    struct { /* written once by the sender, before the ring is handed over */
        uint32_t magic, slots;
        uint32_t receiver_qpn, sender_qpn;
        uint32_t pad[12];
    } fixed;
    struct {                    /* written by the receiver */
        _Atomic uint32_t acked; /* slots consumed */
        _Atomic uint32_t down;  /* it reads no more */
        uint32_t pad[14];
    } rx;
    uint32_t spare[32];
    struct soft_ud_slot slot[SOFT_UD_SLOTS];
};
_Static_assert(sizeof(struct soft_ud_head) == 60, "head layout");
_Static_assert(sizeof(struct soft_ud_slot) == 128, "slot layout");
_Static_assert(sizeof(struct soft_ud_ring) == SOFT_UD_RING_BYTES, "ring layout");

static inline unsigned soft_ud_span(unsigned len) {
    return len <= SOFT_UD_FIRST ? 1 : 1 + (len - SOFT_UD_FIRST + SOFT_UD_MORE - 1) / SOFT_UD_MORE;
}

static inline unsigned soft_ud_next(unsigned index) {
    return index + 1 == SOFT_UD_SLOTS ? 0 : index + 1;
}

/* A ring this QP writes. Without a ring: no process has the number, until then at least. */
struct soft_ud_way {
    struct soft_ud_ring *ring;
    struct soft_peer *peer; /* held; the connection that carried the ring */
    const _Atomic uint32_t *armed;
    uint32_t qpn;
    uint32_t pos, index, acked;
    uint64_t turn;     /* of the QP, when it was used last */
    uint64_t until_ns; /* no ring: not asked for again before */
    bool fence_free;
    bool taken;   /* the peer said that it reads the ring, so its bell may be rung */
    bool asking;  /* the owner of the number is being looked up */
    bool stuck;   /* it was waited for long enough: dropped while there is no room */
    bool waiting; /* something waits for room */
};

/* A ring this QP reads. */
struct soft_ud_in {
    struct soft_ud_ring *ring;
    struct soft_peer *peer; /* held */
    uint32_t from_qpn;
    uint32_t pos, index;
    uint64_t turn;
};

struct soft_ud_send { /* what a datagram has beyond a work request */
    uint8_t sgid[16], dgid[16];
    uint32_t qpn, qkey, tclass_flow;
    uint8_t hop_limit, sl;
};

struct soft_ud {
    struct soft_qp *qp;
    struct cds_list_head link;  /* all; alone: not registered; control lock */
    struct soft_ud_send *sends; /* one for each place of the send queue */
    struct soft_ud_way *way[SOFT_UD_WAYS];
    unsigned way_count;
    uint8_t hint[256]; /* place of a way, by the low byte of its number */
    struct soft_ud_in *in[SOFT_UD_INS];
    unsigned in_count, in_next;
    uint64_t turn;
    uint32_t wanted[SOFT_UD_WANTED]; /* numbers the engine shall make ways to */
    unsigned wanted_count;
    union ibv_gid group[SOFT_UD_GROUPS];
    unsigned group_count;
    bool block_self;              /* what it sends to a group does not come back */
    uint8_t staging[SOFT_UD_MTU]; /* a payload of several pieces */
};

/* Life, and sending; the QP may be of any type. Returns errno values. */
int soft_ud_create(struct soft_qp *qp);
void soft_ud_free(struct soft_qp *qp);
void soft_ud_store_wqe(struct soft_qp *qp, uint32_t index, const struct ibv_send_wr *wr);
enum soft_outcome soft_ud_send(struct soft_qp *qp, struct soft_wqe *wqe, const struct ibv_sge *sge,
                               const uint8_t *inlined);
void soft_ud_kick(struct soft_qp *qp); /* engine: receivers that something waits for */
void soft_ud_ring_bell(struct soft_ud_way *way);

#endif
