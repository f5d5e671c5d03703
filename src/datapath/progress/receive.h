/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * receive.h - frames that arrive.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_PROGRESS_RECEIVE_H
#define DATAPATH_PROGRESS_RECEIVE_H

#include "datapath/loop/loop.h"

void receive_completed(struct sluice_loop *l, const struct ibv_wc *wc);
/* Looks at held frames again; returns how many it got through. */
unsigned receive_held(struct sluice_loop *l, struct session *s);
/* A peer that broke the protocol: the frame goes back, the session ends. Always true. */
bool receive_broken(struct sluice_loop *l, struct session *s, struct sluice_msg *msg,
                    const char *text);

/* What became of the frame that was the next to process. */
enum recv_result {
    RECV_DONE,      /* done with: delivered, dropped, or the session is ending */
    RECV_NO_MEMORY, /* it stays first in line and is tried again */
    RECV_PENDING,   /* likewise, until what it waits for says event_notice(NOTICE_HELD) */
    RECV_NO_ROOM,   /* likewise, until the application takes events again */
};

#endif
