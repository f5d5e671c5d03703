/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * coalesced.h - coalesced frames that arrive, and the messages that lie in them.
 *
 * Owner: the loop's thread, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_COALESCED_H
#define DATAPATH_RX_COALESCED_H

#include "datapath/loop/loop.h"

/* A message that lies in a coalesced frame is no longer needed. */
void coalesced_return(struct sluice_loop *l, struct sluice_msg *view);
/* No longer needed: as many of these loans as lie in one frame and follow the first, which does. How many. */
uint32_t coalesced_take_back(struct sluice_loop *l, const struct loop_loan *loans, uint32_t count);
/* One user of this frame is done with it: a message in it, or the code that takes it apart. */
void coalesced_release(struct sluice_loop *l, struct sluice_msg *frame);
/* The application makes a message that lies in a coalesced frame its own: its bytes move to its own buffer. */
void coalesced_retain(struct sluice_msg *view);

/*
 * Makes the message of that frame which lies there. Its own buffer is kept where a message that is not being sent has no use
 * for the record.
 */
static inline void coalesced_view(struct sluice_msg *view, struct sluice_msg *frame, uint32_t at) {
    view->item.node.next = (struct cds_wfcq_node *)(void *)view->data;
    view->data = frame->data + at;
    view->next = frame;
    view->flags = MSG_VIEW;
    view->owner = frame->owner;
}

#endif
