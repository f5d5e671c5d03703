/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device_state.h - what may happen to the device while it is open: it is removed, its port goes down,
 * an address of the host moves. One place for all callers: a fault plan, the control
 * socket, or the kernel's news about addresses.
 */
#ifndef SOFT_VERBS_DEVICE_STATE_H
#define SOFT_VERBS_DEVICE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "soft/fault/plan.h"

struct soft_context;
struct sockaddr;

extern _Atomic bool soft_device_gone; /* no new opens; what was open stays dead when it returns */
extern _Atomic bool soft_port_down;

/* Control lock for all. */
void soft_context_register(struct soft_context *ctx);
void soft_context_unregister(struct soft_context *ctx);
unsigned soft_context_count(void);
/* 0, or -EALREADY: it is so already. Engine thread, or a caller that holds no other lock. */
int soft_device_act(const struct soft_device_action *action);
/* An address left its link (NULL: all of them): GID_CHANGE, and ADDR_CHANGE on its ids. */
void soft_device_address_moved(const struct sockaddr *addr);
/* The engine stops, or this is a fork's child: the device is as new. */
void soft_device_forget(void);

#endif
