/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device.h - the device behind ids: binding to it, and its end.
 *
 * One context serves all ids of the process (soft_cm_context_get in soft.h). The system's library
 * keeps its contexts open for ever, so applications use id->verbs longer than the id: here a channel
 * holds the context from the first id that is bound on it until the channel is destroyed.
 */
#ifndef SOFT_CM_DEVICE_H
#define SOFT_CM_DEVICE_H

#include <sys/socket.h>

struct soft_cm_channel;
struct soft_cm_id;

/*
 * Binds the id to the device: verbs, pd, port_num, GIDs of its addresses. 0 or an errno. Repeating it
 * refreshes the GIDs. Control lock not held.
 */
int soft_cm_device_attach(struct soft_cm_id *id, struct soft_cm_channel *channel);

/*
 * The device is gone: DEVICE_REMOVAL for every id on it, which from then on answers ENXIO; untold: the
 * same without the event. An address moved to another link (NULL: all): ADDR_CHANGE for every id bound
 * to it. Control lock held.
 */
void soft_cm_device_removed(void);
void soft_cm_device_removed_untold(void);
void soft_cm_device_address_changed(const struct sockaddr *addr);

#endif
