/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr.h - what registrations, registering anew and windows share: keys that come, that are shown, and that go.
 *
 * Owner: the control lock.
 */
#ifndef SOFT_VERBS_MR_H
#define SOFT_VERBS_MR_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct soft_mr;
struct soft_pd;

int soft_mr_insert(struct soft_mr *mr);  /* control lock */
void soft_mr_remove(struct soft_mr *mr); /* control lock */
/*
 * Control lock. Sets what it stands for; shows it to peers that may use it; withdraws it: after that no thread, here or
 * in a peer, touches memory through its key, which is invalid until it is stored again.
 */
void soft_mr_describe(struct soft_mr *mr, void *addr, size_t length, uint64_t iova, int access);
void soft_mr_show(struct soft_mr *mr);
void soft_mr_make(const struct soft_mr
                      *mr); /* no lock: the pages of it that peers may touch; as a NIC pins them */
void soft_mr_withdraw(struct soft_mr *mr);
/* 0, or the errno of a registration that asks for what cannot be. Not with the control lock held. */
int soft_mr_check(const struct soft_pd *pd, void *addr, size_t length, uint64_t iova, int access);
void soft_mr_forked(void);

#endif
