/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ud_link.h - how UD QPs of two processes map each other's rings.
 *
 * Owner: the control lock, except where marked.
 */
#ifndef SOFT_UD_UD_LINK_H
#define SOFT_UD_UD_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_peer;
struct soft_qp;

void soft_ud_register(struct soft_qp *qp);
void soft_ud_hand_over(struct soft_qp *qp); /* what was posted and waits for a ring only */
void soft_ud_close(struct soft_qp *qp);
bool soft_ud_in_group(struct soft_qp *qp);
void soft_ud_on_message(struct soft_peer *peer, uint32_t type, const void *data, size_t bytes,
                        int fd);
void soft_ud_on_peer_gone(struct soft_peer *peer);
/* What the peer does is looked at with fences from now on. */
void soft_ud_put_fences(struct soft_peer *peer);
void soft_ud_on_bell(struct soft_peer *peer);
void soft_ud_if_wanted(void); /* engine thread, every turn */
void soft_ud_want(void);      /* any thread: some QP has wanted numbers */
void soft_ud_progress_all(void);
void soft_ud_on_names(void); /* name_search.h: something is known */
void soft_ud_stop(void);
void soft_ud_forked(void);

#endif
