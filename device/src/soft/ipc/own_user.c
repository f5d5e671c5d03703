/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * own_user.c - see own_user.h.
 *
 * In a user namespace every user that it does not map reads as one, the overflow uid. A process that runs
 * as that user itself, or is not mapped, cannot tell its own processes from other users'. So the overflow uid counts
 * as no user of ours, except where the namespace maps all users and the kernel does not need it.
 */
#define _GNU_SOURCE
#include "soft/ipc/own_user.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define PLACEHOLDER 65534u /* unless the system says otherwise, and then this one too */
#define ALL_USERS UINT32_MAX

enum { UNKNOWN, SOME_MAPPED, ALL_MAPPED };
static _Atomic int mapped;
static _Atomic uint32_t placeholder = PLACEHOLDER;

static bool maps_all(void) {
    unsigned first, outer, count;
    FILE *file = fopen("/proc/self/uid_map", "re");
    if (!file)
        return false;
    bool all =
        fscanf(file, "%u %u %u", &first, &outer, &count) == 3 && first == 0 && count == ALL_USERS;
    fclose(file);
    return all;
}

void soft_own_user_start(void) {
    unsigned uid;
    FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
    if (file && fscanf(file, "%u", &uid) == 1)
        atomic_store(&placeholder, uid);
    if (file)
        fclose(file);
    atomic_store(&mapped, maps_all() ? ALL_MAPPED : SOME_MAPPED);
}

bool soft_own_user(uid_t uid, pid_t pid) {
    if (uid != geteuid())
        return false;
    if (pid == getpid()) /* ourselves */
        return true;
    if (atomic_load(&mapped) == UNKNOWN)
        soft_own_user_start();
    return atomic_load(&mapped) == ALL_MAPPED ||
           (uid != PLACEHOLDER && uid != atomic_load(&placeholder));
}
