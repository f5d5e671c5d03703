/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dropin_test.c - a program that was started with the drop-in has that one device, though the library in it has a copy.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sanitize.h"
#include "fabric/dropin.h"
#include "fabric/fast.h"
#include "soft/door.h"
#include "support/must.h"

static const void *base; /* where the drop-in is loaded */

static const void *base_of(const void *address) {
    Dl_info info;
    return address && dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

/* As the loader does with LD_PRELOAD: its names are those of all. */
static void load_dropin(void) {
    char path[4096];
    const char *bin = getenv("SLUICE_BIN_DIR");
    must(bin);
    snprintf(path, sizeof path, "%s/../lib/libsluice-soft.so", bin);
    void *dropin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!dropin)
        fail_msg("%s", dlerror());
    base = base_of(dlsym(dropin, SOFT_DOOR_SYMBOL));
    must(base && base != base_of(&fabric_soft));
}

#define IS_ITS(call) assert_ptr_equal(base_of((const void *)(uintptr_t)(call)), base)

TEST(the_library_uses_the_device_that_the_program_was_started_with) {
#if defined SANITIZE_ADDRESS || defined SANITIZE_THREAD
    skip(); /* two copies with a runtime each */
#endif
    /* Its copy has read that when it opened a device, and no other copy opens one here. */
    must(setenv("SLUICE_SOFT_FAULTS", "call=create_cq n=1 errno=EMFILE", 1) == 0);
    load_dropin();
    struct fabric_pair here = fabric_preloaded_pair();
    int count = -1;
    must(here.system->get_device_list(&count) == NULL && count == 0);
    assert_ptr_not_equal(here.soft, &fabric_soft);
    IS_ITS(here.soft->open_device);
    IS_ITS(here.soft->create_qp);
    IS_ITS(here.soft->create_id);
    IS_ITS(here.soft->mem_alloc);
    IS_ITS(here.soft->free_addrinfo);
    IS_ITS(here.soft->fast->share);
    IS_ITS(here.soft->fast->sleep_begin);
    IS_ITS(here.soft->fast->reach);

    /* What the library puts around its calls comes to it as well: a CQ is of the copy that opened the device. */
    struct ibv_device **list = here.soft->get_device_list(&count);
    must(list && count == 1);
    struct ibv_context *ctx = here.soft->open_device(list[0]);
    must(ctx);
    struct ibv_device_attr attr;
    must(here.soft->query_device(ctx, &attr) == 0);
    if (!fabric_profile(here.soft))
        IS_ITS(here.soft->get_post_framed(&attr));
    assert_true(!here.soft->create_cq(ctx, 4, NULL, NULL, 0) && errno == EMFILE);
    struct ibv_cq *cq = here.soft->create_cq(ctx, 4, NULL, NULL, 0);
    must(cq);
    IS_ITS(ctx->ops.poll_cq);
    struct ibv_wc wc;
    assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
    must(here.soft->destroy_cq(cq) == 0 && here.soft->close_device(ctx) == 0);
    here.soft->free_device_list(list);
}
