/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* door.c - see door.h. */
#include "soft/door.h"

const struct soft_calls soft_calls = {
#define SOFT_CALL(name) .name = soft_##name,
    SOFT_CALLS(SOFT_CALL)
#undef SOFT_CALL
};
