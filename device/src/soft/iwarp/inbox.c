/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* inbox.c - see inbox.h. */
#include "soft/iwarp/inbox.h"

#include <limits.h>

#include "soft/iwarp/stock.h"

#define INBOX_BYTES (72u << 10) /* so that a message of 64 KiB and what is around it are one read */
#define SPARE_MAX 64u           /* more threads than this seldom read at a time */

static struct iwarp_stock stock = {
    .bytes = INBOX_BYTES, .kept_max = SPARE_MAX, .lent_max = UINT_MAX};

bool iwarp_inbox_take(struct iwarp_inbox *inbox) {
    if (inbox->bytes)
        return true;
    void *bytes = iwarp_stock_take(&stock);
    if (!bytes)
        return false;
    *inbox = (struct iwarp_inbox){.bytes = bytes, .size = INBOX_BYTES};
    return true;
}

void iwarp_inbox_give(struct iwarp_inbox *inbox) {
    iwarp_stock_give(&stock, inbox->bytes);
    *inbox = (struct iwarp_inbox){0};
}

void iwarp_inbox_forked(void) {
    iwarp_stock_forked(&stock);
}
