/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keys.h - the table of keys that peers of this user see, and read what a key stands for.
 */
#ifndef SOFT_OBJECT_KEYS_H
#define SOFT_OBJECT_KEYS_H

#include <stdint.h>
#include <sys/types.h>

struct soft_key;
struct soft_mr;

extern struct soft_key *soft_keys;                             /* own table; NULL: none was made */
extern uid_t soft_keys_uid;                                    /* ours, when it was made */
int soft_keys_fd(void);                                        /* control lock; -1: no memory */
void soft_key_publish(const struct soft_mr *mr, uint32_t key); /* when it is registered or bound */
void soft_keys_forked(void);

#endif
