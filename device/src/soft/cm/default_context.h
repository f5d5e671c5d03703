/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * default_context.h - the context that rdma_cm shows as id->verbs, in a fork; the calls are in soft.h.
 */
#ifndef SOFT_CM_DEFAULT_CONTEXT_H
#define SOFT_CM_DEFAULT_CONTEXT_H

#include <stdbool.h>

/* Around a fork, which waits until no thread is inside of default_context.c. */
void soft_default_context_fork(bool begins);

#endif
