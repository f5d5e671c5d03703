/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft.h - the calls of the software RDMA device: those of libibverbs and librdmacm, and some that no other device has.
 */
#ifndef SOFT_SOFT_H
#define SOFT_SOFT_H

#include "soft/cm.h"
#include "soft/fast.h"
#include "soft/verbs.h"

#endif
