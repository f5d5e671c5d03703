/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * gid_table.c - the tables that a program asks for by index: GIDs, partition keys, GUID, indexes, and the
 * few places of a file system where other libraries look.
 *
 * There is no file system behind this device: reading a file of it fails as where the file is missing.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "dropin/dropin.h"
#include "soft/soft.h"

#define FULL_MEMBER 0xffff

static bool gid_is_set(const union ibv_gid *gid) {
    return gid->global.subnet_prefix != 0 || gid->global.interface_id != 0;
}

static int gid_entry(struct ibv_context *ctx, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *entry) {
    memset(entry, 0, sizeof *entry);
    if (port > UINT8_MAX || index > INT32_MAX ||
        soft_query_gid(ctx, (uint8_t)port, (int)index, &entry->gid) != 0)
        return port > UINT8_MAX || index > INT32_MAX ? EINVAL : errno;
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    return gid_is_set(&entry->gid) ? 0 : ENODATA;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size);
EXPORT int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size) {
    struct ibv_gid_entry own;
    if (flags)
        return EOPNOTSUPP;
    int rc = gid_entry(ctx, port, index, &own);
    if (rc == 0)
        memcpy(entry, &own, entry_size < sizeof own ? entry_size : sizeof own);
    return rc;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
                             size_t max_entries, uint32_t flags, size_t entry_size);
EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *entries,
                                    size_t max_entries, uint32_t flags, size_t entry_size) {
    struct ibv_port_attr port;
    struct ibv_gid_entry own;
    size_t n = 0;
    if (flags || entry_size == 0)
        return flags ? -EOPNOTSUPP : -EINVAL;
    int rc = soft_query_port(ctx, 1, &port);
    if (rc != 0)
        return -rc;
    for (int i = 0; i < port.gid_tbl_len; i++) {
        rc = gid_entry(ctx, 1, (uint32_t)i, &own);
        if (rc == ENODATA)
            continue;
        if (rc != 0)
            return -rc;
        if (n == max_entries)
            return -EINVAL;
        memcpy((char *)entries + n++ * entry_size, &own,
               entry_size < sizeof own ? entry_size : sizeof own);
    }
    return (ssize_t)n;
}

/* As the kernel's tables name it: 1 is RoCE v2. */
int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index, int *type);
EXPORT int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index,
                              int *type) {
    union ibv_gid gid;
    if (index > INT32_MAX || soft_query_gid(ctx, port, (int)index, &gid) != 0)
        return -1;
    *type = 1;
    return 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey) {
    (void)ctx;
    if (port != 1 || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = htobe16(FULL_MEMBER);
    return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *ctx, uint8_t port, __be16 pkey) {
    (void)ctx;
    if (port == 1 && pkey == htobe16(FULL_MEMBER))
        return 0;
    errno = EINVAL;
    return -1;
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *dev) {
    (void)dev;
    return soft_device_guid();
}

EXPORT int ibv_get_device_index(struct ibv_device *dev) {
    (void)dev;
    return -1; /* the kernel gives them out, and does not know this one */
}

const char *ibv_get_sysfs_path(void);
EXPORT const char *ibv_get_sysfs_path(void) {
    return "/sys";
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);
EXPORT int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size) {
    (void)dir, (void)file, (void)buf, (void)size;
    errno = ENOENT;
    return -1;
}

int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *format, ...);
EXPORT int ibv_read_ibdev_sysfs_file(char *buf, size_t size, void *sysfs_dev, const char *format,
                                     ...) {
    (void)buf, (void)size, (void)sysfs_dev, (void)format;
    errno = ENOENT;
    return -1;
}

/* ---- fork: nothing is pinned, so nothing has to be kept from a child ---------------------------------- */

EXPORT int ibv_fork_init(void) {
    return 0;
}

EXPORT enum ibv_fork_status ibv_is_fork_initialized(void) {
    return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size);
EXPORT int ibv_dontfork_range(void *base, size_t size) {
    (void)base, (void)size;
    return 0;
}

int ibv_dofork_range(void *base, size_t size);
EXPORT int ibv_dofork_range(void *base, size_t size) {
    (void)base, (void)size;
    return 0;
}
