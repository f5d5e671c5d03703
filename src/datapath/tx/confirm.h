/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * confirm.h - proves that the peer's device has the bytes that were sent, where a completion does not.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_TX_CONFIRM_H
#define DATAPATH_TX_CONFIRM_H

#include "datapath/loop/loop.h"

#define CONFIRMS_MAX 4u /* READs of nothing on their way, of one session */
void confirm_init(struct connection *c);
/* The peer has named a byte to READ. */
void confirm_begin(struct session *s, uint64_t address, uint32_t rkey);
/* The last entries of the send queue, so many, were posted from l->send_wr[]. */
void confirm_batch(struct sluice_loop *l, struct session *s, unsigned count);
/* An outcome is wanted of this entry that the answer of the peer's library does not give. */
bool confirm_is_wanted(const struct sq_entry *entry);
/* Entries were retired: what could not be posted before may be now. */
void confirm_again(struct sluice_loop *l, struct session *s);

#endif
