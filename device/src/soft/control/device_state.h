/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device_state.h - what may happen to the device while it is open: it is removed, its port goes down,
 * an address of the host moves. One place for all callers: a fault plan, the control
 * socket, or the kernel's news about addresses.
 */
#ifndef SOFT_CONTROL_DEVICE_STATE_H
#define SOFT_CONTROL_DEVICE_STATE_H

#include "soft/fault/plan.h"

struct sockaddr;

/* Control lock for both. */
/* 0, or -EALREADY: it is so already. Engine thread, or a caller that holds no other lock. */
int soft_device_act(const struct soft_device_action *action);
/* An address left its link (NULL: all of them): GID_CHANGE, and ADDR_CHANGE on its ids. */
void soft_device_address_moved(const struct sockaddr *addr);

#endif
