/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dropin.h - what the files of the drop-in share: the software device under the names of libibverbs
 * and librdmacm, for programs that do not know of it.
 *
 * These files make three objects: libsluice-soft.so, preloaded, has both interfaces and no symbol
 * versions; sluice-soft/libibverbs.so.1 and sluice-soft/librdmacm.so.1, in a directory for the library
 * path, have them versioned. The latter two reach the device through the soft_* symbols of the first, so
 * that a process has one device, whichever object it loads.
 */
#ifndef DROPIN_DROPIN_H
#define DROPIN_DROPIN_H

#include "soft/soft.h"

/* In the header these are macros over inline functions; here they are the symbols behind them. */
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define EXPORT __attribute__((visibility("default")))

#endif
