/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * address_watch.h - the kernel's reports about the host's addresses: the ids bound to an address get an event
 * when it is taken off its link (device_state.h). Engine thread; control lock for all calls.
 */
#ifndef SOFT_CONTROL_ADDRESS_WATCH_H
#define SOFT_CONTROL_ADDRESS_WATCH_H

/* Where the kernel gives no such news the device works without them. */
void soft_address_watch_start(void);
void soft_address_watch_stop(void);
void soft_address_watch_forked(void);

#endif
