/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* log.c - see log.h. */
#include "support/log.h"

void log_nothing(int level, const char *text, void *arg) {
    (void)level, (void)text, (void)arg;
}
