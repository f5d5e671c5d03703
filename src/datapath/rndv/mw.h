/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mw.h - keys for exactly the bytes of one message, good for one queue pair.
 *
 * A memory window of type 2 where the device has them: bound by a WR in front of the frame
 * that carries its rkey, invalidated by a WR before the memory is used for anything else. Elsewhere a registration
 * of these bytes, made and ended by calls that block for a moment; its rkey is good for every queue pair of
 * the node, for as long as the transfer takes.
 *
 * Owner: the loop's thread.
 */
#ifndef DATAPATH_RNDV_MW_H
#define DATAPATH_RNDV_MW_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct sluice_node;

struct mw {
    struct ibv_mw *mw; /* kept from transfer to transfer */
    struct ibv_mr *mr; /* instead of it: of these bytes */
    uint32_t rkey;
    uint32_t bound; /* the last key of the window */
    bool open;      /* a key is out, or may be */
};

/* The bytes that an rkey is for, and its rights. */
struct mw_bytes {
    void *addr;
    uint64_t bytes;
    struct ibv_mr *mr; /* memory a window may be bound on; NULL: register these bytes */
    unsigned rights;   /* IBV_ACCESS_REMOTE_READ or _WRITE */
    bool still;        /* no program changes them while the key is good */
};

/*
 * A new key. *bind says whether wr, filled in but for wr_id and flags, has to be posted to make it good.
 * False: the device has no more, now.
 */
bool mw_open(struct sluice_node *n, struct mw *w, const struct mw_bytes *of, struct ibv_send_wr *wr,
             bool *bind);
/* Takes the key back. True: wr has to be posted, and nothing is safe before it completed. */
bool mw_close(struct sluice_node *n, struct mw *w, struct ibv_send_wr *wr);
/* A key that was made, and nothing of it posted. */
void mw_forget(struct sluice_node *n, struct mw *w);
/* Without the help of a queue pair, which is gone: no key of it opens anything afterwards. */
void mw_free(struct sluice_node *n, struct mw *w);

#endif
