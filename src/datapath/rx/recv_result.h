/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* recv_result.h - what became of a frame that was taken to what it is for. */
#ifndef DATAPATH_RX_RECV_RESULT_H
#define DATAPATH_RX_RECV_RESULT_H

enum recv_result {
    RECV_DONE,      /* done with: delivered, dropped, or the session is ending */
    RECV_NO_MEMORY, /* it stays first in line and is tried again */
    RECV_PENDING,   /* likewise, until what it waits for says event_notice(NOTICE_HELD) */
    RECV_NO_ROOM,   /* likewise, until the application takes events again */
};

#endif
