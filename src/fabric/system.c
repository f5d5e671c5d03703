/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * system.c - the fabric of the system's rdma-core: libibverbs and librdmacm, linked directly.
 *
 * The table is constant. Calls that the headers define as macros, or whose prototypes changed
 * between rdma-core releases, get a small wrapper here; everything else is the function itself.
 * rdma_write_cm_event() and rdma_resolve_addrinfo() came with librdmacm 60, so they are looked up at
 * run time: one binary, built with old headers, uses them where they exist.
 *
 * Threads: as thread-safe as rdma-core. The lookup runs once, guarded by an atomic.
 */
#define _GNU_SOURCE
#include "common/uncancelled.h"
#include "fabric/extended.h"
#include "fabric/fabric.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* ---- verbs ----------------------------------------------------------------------------------- */

static int system_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr) {
    return ibv_query_port(ctx, port, attr);
}

static uint32_t system_framed_most(bool extended, uint32_t inline_most) {
    return extended ? extended_framed_most(inline_most) : 0;
}

/* Calls that sluice_send() and its like make, too: a command may be a write(). */
static struct ibv_mr *system_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
    UNCANCELLED;
    return ibv_reg_mr(pd, addr, length, access);
}

static int system_dereg_mr(struct ibv_mr *mr) {
    UNCANCELLED;
    return ibv_dereg_mr(mr);
}

static void system_traits(const struct ibv_device *dev, const struct ibv_device_attr *attr,
                          struct fabric_traits *traits) {
    fabric_traits_of(dev->transport_type, attr, traits);
}

/* ---- rdma_cm --------------------------------------------------------------------------------- */

typedef int write_cm_event_fn(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                              uint64_t arg);

static int write_cm_event_missing(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                                  uint64_t arg) {
    (void)id, (void)event, (void)status, (void)arg;
    errno = ENOSYS;
    return -1;
}

static void *find(const char *name) {
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (!symbol) {
        /* A program that loaded us with RTLD_LOCAL keeps our dependencies out of the default
         * scope; the library itself is certainly loaded. */
        void *library = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_NOLOAD);
        if (library) {
            symbol = dlsym(library, name);
            dlclose(library); /* our own link keeps it loaded */
        }
    }
    return symbol;
}

/* The first call must not come from a signal handler, as dlsym locks: a wakeup's probe is it. */
static int system_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                                 uint64_t arg) {
    static _Atomic(write_cm_event_fn *) found;
    write_cm_event_fn *fn = atomic_load_explicit(&found, memory_order_acquire);
    if (!fn) {
        fn = (write_cm_event_fn *)find("rdma_write_cm_event");
        if (!fn)
            fn = write_cm_event_missing;
        /* several threads may: they find the same */
        atomic_store_explicit(&found, fn, memory_order_release);
    }
    return fn(id, event, status, arg);
}

typedef int resolve_addrinfo_fn(struct rdma_cm_id *id, const char *node, const char *service,
                                const struct rdma_addrinfo *hints);
typedef int query_addrinfo_fn(struct rdma_cm_id *id, struct rdma_addrinfo **out);

/* Searched for at every call: there is one a name. */
static int system_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
                                   const struct rdma_addrinfo *hints) {
    resolve_addrinfo_fn *fn = (resolve_addrinfo_fn *)find("rdma_resolve_addrinfo");
    if (fn)
        return fn(id, node, service, hints);
    errno = ENOSYS;
    return -1;
}

static int system_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **out) {
    query_addrinfo_fn *fn = (query_addrinfo_fn *)find("rdma_query_addrinfo");
    if (fn)
        return fn(id, out);
    errno = ENOSYS;
    return -1;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void *map_anonymous(size_t bytes) {
    void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return addr == MAP_FAILED ? NULL : addr;
}

/* Huge pages need aligned addresses: map more and give the two ends back. */
static void *system_mem_alloc(size_t bytes) {
    if (bytes < HUGE_PAGE)
        return map_anonymous(bytes);
    if (bytes > SIZE_MAX - HUGE_PAGE) {
        errno = ENOMEM;
        return NULL;
    }
    uint8_t *raw = map_anonymous(bytes + HUGE_PAGE);
    if (!raw)
        return NULL;
    size_t before = (HUGE_PAGE - ((uintptr_t)raw & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    size_t after = HUGE_PAGE - before;
    uint8_t *addr = raw + before;
    if (before)
        munmap(raw, before);
    if (after)
        munmap(addr + bytes, after);
    madvise(addr, bytes, MADV_HUGEPAGE); /* advice: plain pages do as well */
    return addr;
}

static void *system_mem_alloc_huge(size_t bytes, unsigned page_log2) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (int)(page_log2 << MAP_HUGE_SHIFT);
    void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return addr == MAP_FAILED ? NULL : addr;
}

static void system_mem_free(void *addr, size_t bytes) {
    if (addr)
        munmap(addr, bytes);
}

/* ---- what librdmacm keeps -------------------------------------------------------------------- */

/*
 * librdmacm opens a context of its own for every device that an id was bound to, and keeps it when
 * the last id is destroyed. A device whose driver cannot revoke an open context (rxe) is
 * not removed before that context is closed, so `rdma link del` would wait for this process to end.
 * librdmacm has no call for that. When the device is gone, its descriptors are therefore replaced by
 * ones that refer to no device; librdmacm closes them as usual when it finds the device missing.
 */
static uint64_t device_behind(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) ? (uint64_t)st.st_rdev : 0;
}

static void system_cm_mark(struct fabric_mark *mark, struct ibv_context *ctx) {
    if (mark->set || !ctx)
        return;
    *mark = (struct fabric_mark){true, ctx->cmd_fd, ctx->async_fd, device_behind(ctx->cmd_fd)};
}

/* The number may be something else's by now. */
static bool is_async_fd(int fd) {
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n < 0 ? 0 : n] = '\0';
    return strstr(target, "infinibandevent") != NULL;
}

static void system_cm_detach(const struct fabric_mark *mark) {
    if (!mark->set || mark->device == 0 || device_behind(mark->cmd_fd) != mark->device)
        return;
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nowhere < 0)
        return;
    if (is_async_fd(mark->async_fd))
        dup3(nowhere, mark->async_fd, O_CLOEXEC);
    dup3(nowhere, mark->cmd_fd, O_CLOEXEC);
    close(nowhere);
}

const struct fabric_ops fabric_system = {
    .name = "system",
    .get_traits = system_traits,
    .get_post_framed = extended_post_framed_of,
    .framed_most = system_framed_most,
    .create_extended_qp = extended_create_qp,

    .get_device_list = ibv_get_device_list,
    .free_device_list = ibv_free_device_list,
    .get_device_name = ibv_get_device_name,
    .open_device = ibv_open_device,
    .close_device = ibv_close_device,
    .query_device = ibv_query_device,
    .query_port = system_query_port,
    .query_gid = ibv_query_gid,
    .get_async_event = ibv_get_async_event,
    .ack_async_event = ibv_ack_async_event,
    .alloc_pd = ibv_alloc_pd,
    .dealloc_pd = ibv_dealloc_pd,
    .reg_mr = system_reg_mr,
    .dereg_mr = system_dereg_mr,
    .create_comp_channel = ibv_create_comp_channel,
    .destroy_comp_channel = ibv_destroy_comp_channel,
    .create_cq = ibv_create_cq,
    .destroy_cq = ibv_destroy_cq,
    .get_cq_event = ibv_get_cq_event,
    .ack_cq_events = ibv_ack_cq_events,
    .create_srq = ibv_create_srq,
    .modify_srq = ibv_modify_srq,
    .query_srq = ibv_query_srq,
    .destroy_srq = ibv_destroy_srq,
    .create_qp = ibv_create_qp,
    .modify_qp = ibv_modify_qp,
    .query_qp = ibv_query_qp,
    .destroy_qp = ibv_destroy_qp,

    .create_event_channel = rdma_create_event_channel,
    .destroy_event_channel = rdma_destroy_event_channel,
    .create_id = rdma_create_id,
    .destroy_id = rdma_destroy_id,
    .bind_addr = rdma_bind_addr,
    .resolve_addr = rdma_resolve_addr,
    .resolve_route = rdma_resolve_route,
    .connect = rdma_connect,
    .listen = rdma_listen,
    .accept = rdma_accept,
    .reject = rdma_reject,
    .establish = rdma_establish,
    .notify = rdma_notify,
    .disconnect = rdma_disconnect,
    .init_qp_attr = rdma_init_qp_attr,
    .get_cm_event = rdma_get_cm_event,
    .ack_cm_event = rdma_ack_cm_event,
    .get_src_port = rdma_get_src_port,
    .set_option = rdma_set_option,
    .write_cm_event = system_write_cm_event,
    .resolve_addrinfo = system_resolve_addrinfo,
    .query_addrinfo = system_query_addrinfo,
    .free_addrinfo = rdma_freeaddrinfo,

    .mem_alloc = system_mem_alloc,
    .mem_free = system_mem_free,
    .mem_alloc_huge = system_mem_alloc_huge,
    .cm_mark = system_cm_mark,
    .cm_detach = system_cm_detach,
    .affinity_cpus = fabric_affinity_cpus,
};
