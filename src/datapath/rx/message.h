/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * message.h - memory for a message of the application.
 *
 * Owner: the thread that owns the loop, unless a function says otherwise.
 */
#ifndef DATAPATH_RX_MESSAGE_H
#define DATAPATH_RX_MESSAGE_H

#include "datapath/loop/loop.h"

/* A message of the application's, of any size; any thread. NULL and errno. */
struct sluice_msg *message_get(struct pool *pool, size_t bytes);

#endif
