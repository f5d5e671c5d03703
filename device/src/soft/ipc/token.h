/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * token.h - taking a token out of the counting eventfd of a channel, the one place of the device where a thread may be
 * cancelled: in ibv_get_cq_event() and its like, which programs sleep in for good (common/uncancelled.h).
 *
 * Any thread, that has cancellation disabled.
 */
#ifndef SOFT_IPC_TOKEN_H
#define SOFT_IPC_TOKEN_H

#include <stdbool.h>

/*
 * Waits for one, unless the descriptor is not to wait; false and errno: there is none. The thread may be cancelled as it was
 * allowed to be before it disabled that: cancel_state. Then the token is still there, for the next thread.
 */
bool soft_token_take(int fd, int cancel_state);

#endif
