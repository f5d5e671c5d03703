/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* inbox.c - see inbox.h. */
#include "soft/iwarp/inbox.h"

#include <stdlib.h>

#include "soft/ipc/spinlock.h"

#define INBOX_BYTES 65536u
#define SPARE_MAX 64u /* more are freed: so many threads seldom read at a time */

struct spare { /* lies in the memory itself */
    struct spare *next;
};

static soft_spin lock;
static struct spare *spares;
static unsigned spare_count;

bool iwarp_inbox_take(struct iwarp_inbox *inbox) {
    if (inbox->bytes)
        return true;
    spin_lock(&lock);
    struct spare *spare = spares;
    if (spare) {
        spares = spare->next;
        spare_count--;
    }
    spin_unlock(&lock);
    void *bytes = spare ? (void *)spare : malloc(INBOX_BYTES);
    if (!bytes)
        return false;
    *inbox = (struct iwarp_inbox){.bytes = bytes, .size = INBOX_BYTES};
    return true;
}

void iwarp_inbox_give(struct iwarp_inbox *inbox) {
    struct spare *spare = (void *)inbox->bytes;
    *inbox = (struct iwarp_inbox){0};
    if (!spare)
        return;
    spin_lock(&lock);
    bool keep = spare_count < SPARE_MAX;
    if (keep) {
        spare->next = spares;
        spares = spare;
        spare_count++;
    }
    spin_unlock(&lock);
    if (!keep)
        free(spare);
}

void iwarp_inbox_forked(void) {
    spares = NULL;
    spare_count = 0;
    spin_unlock(&lock);
}
