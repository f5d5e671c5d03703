/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * async_event.h - asynchronous events of a context: the device's, and those of its QPs, CQs and SRQs. Any thread.
 */
#ifndef SOFT_OBJECT_ASYNC_EVENT_H
#define SOFT_OBJECT_ASYNC_EVENT_H

#include <infiniband/verbs.h>

struct soft_context;

void soft_async_event(struct ibv_context *ctx, enum ibv_event_type type, void *element);
/* Before element dies: forgets its unfetched events, waits until the fetched ones are acked. */
void soft_async_drain(struct ibv_context *ctx, void *element);
/* Those that were not fetched; no thread uses the context any more. */
void soft_async_free(struct soft_context *ctx);

#endif
