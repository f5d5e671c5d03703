/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shm_layout.h - the memory that a process shares with its peers, read-only for them: the board with the
 * armed words of its CQs and the positions of its QPs, and the table of its keys.
 *
 * Owner: the process itself. A reader reads each word once and trusts it only as far as the reader's own memory
 * is safe: the worst that a lie does is to ring a bell too often, to have an access refused, or to have the liar's
 * own messages seen late.
 */
#ifndef SOFT_IPC_SHM_LAYOUT_H
#define SOFT_IPC_SHM_LAYOUT_H

#include <stdatomic.h>
#include <stdint.h>

#define SOFT_MAX_MR 65536
#define SOFT_MAX_REGIONS 256 /* memory that a process shares with its peers */
#define SOFT_QP_BLOCK 1024   /* queue pair numbers, which a process takes by the block */
#define SOFT_MAX_QP_BLOCKS 64
#define SOFT_SHM_PAGE_CQS 1024
#define SOFT_SHM_PAGE_QPS 65536 /* as many as a process can have */

/* ---- board: what a process shows its peers, read-only for them --------------------------------- */

#define SOFT_SHM_PAGE_MAGIC 0x53464244u /* "SFBD" */

/*
 * A QP's news for its peer, both mod 256: the position of its last visible slot, and how often it
 * changed anything else. So a poller with many QPs need not look into each one's ring. The QP writes it under its lock,
 * after the changes that it announces.
 */
struct soft_told {
    _Atomic uint8_t pos, news;
};
#define SOFT_ARMED_BELLS 0x10000u
#define SOFT_TOLD_LINE (64 / sizeof(struct soft_told)) /* QPs in a cache line */

/* How often each line of 1,024 QPs has changed, mod 256: a reader looks at the lines that have. Only a hint. */
#define SOFT_GROUP_LINES 32u
#define SOFT_GROUP_QPS (SOFT_GROUP_LINES * (unsigned)SOFT_TOLD_LINE)
struct soft_changes {
    union {
        _Atomic uint8_t line[SOFT_GROUP_LINES];
        _Atomic uint64_t word[SOFT_GROUP_LINES / sizeof(uint64_t)];
    };
};

struct soft_shm_page {
    uint32_t magic, version;
    uint8_t uuid[16];
    uint8_t pad[40];
    /*
     * How many CQs of this index are armed; not 0: a thread sleeps, ring after giving it something. In the upper half, how many
     * of them are slept on by their bells (cq_bell.h): else ring the process.
     */
    struct {
        _Atomic uint32_t armed;
        uint32_t pad[7];
        struct soft_changes changes; /* from SOFT_CHANGES_FIRST on: of the lines of 1,024 QPs */
    } cq[SOFT_SHM_PAGE_CQS];
    struct soft_told told[SOFT_SHM_PAGE_QPS] __attribute__((aligned(64))); /* by place; ring.h */
};
#define SOFT_CHANGES_FIRST (SOFT_SHM_PAGE_CQS - SOFT_SHM_PAGE_QPS / SOFT_GROUP_QPS)
_Static_assert(sizeof(((struct soft_shm_page *)0)->cq[0]) == 64, "a line each");

static inline uint32_t soft_changes_at(uint32_t place) {
    return SOFT_CHANGES_FIRST + place / SOFT_GROUP_QPS;
}

/*
 * Keys a process shows to peers of its own uid, read-only: what their requesters check before they
 * touch mapped memory. An entry is valid while its key matches, and read whole if the version was even
 * and the same before and after.
 */
struct soft_key {
    _Atomic uint32_t key; /* 0: nothing is shown */
    uint32_t access;
    uint64_t start, length; /* iova range */
    uint64_t offset;        /* of start: in the region, or the address in private memory */
    int32_t region;         /* -1: private memory, the target executes */
    uint32_t pd;
    uint32_t qpn; /* SOFT_KEY_WINDOW: of the QP it was bound on; only its peer may use it */
    _Atomic uint32_t version;
    uint32_t serial; /* of the region: another one may have its index by now */
    uint8_t pad[12];
};
_Static_assert(sizeof(struct soft_key) == 64, "key layout");
#define SOFT_KEY_WINDOW 0x80000000u /* access: a memory window, given and taken without a barrier */
#define SOFT_KEYS_BYTES (SOFT_MAX_MR * sizeof(struct soft_key))

#endif
