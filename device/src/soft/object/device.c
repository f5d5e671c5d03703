/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device.c - the contexts of the device, and what has happened to it. Control lock.
 */
#include "soft/object/device.h"

#include <stdatomic.h>
#include "soft/ipc/control_lock.h"

_Atomic bool soft_device_gone, soft_port_down;
CDS_LIST_HEAD(soft_contexts);

void soft_context_register(struct soft_context *ctx) {
    soft_assert_locked();
    cds_list_add(&ctx->link, &soft_contexts);
}

void soft_context_unregister(struct soft_context *ctx) {
    cds_list_del(&ctx->link);
}

unsigned soft_context_count(void) {
    unsigned n = 0;
    const struct soft_context *ctx;
    cds_list_for_each_entry(ctx, &soft_contexts, link)
        n++;
    return n;
}

void soft_device_forget(void) {
    CDS_INIT_LIST_HEAD(&soft_contexts);
    atomic_store(&soft_device_gone, false);
    atomic_store(&soft_port_down, false);
}
