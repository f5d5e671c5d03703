/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_mapped_test.c - memory that a device could not pin is not registered either. Both ways in
 * which the kernel is asked, the one of Linux 6.11 and the one before.
 */
#include "support/softverbs.h"

#include <sys/mman.h>

#include "soft/soft.h"
#include "soft/verbs/mr_mapped.h"

/* Each is refused at once, with the errno of a device of the kernel's. */
#define LOW_ADDRESS ((uintptr_t)0x40000000)

static void refused(struct sv_end *e, void *addr, size_t length, int access, int error) {
    errno = 0;
    assert_null(soft_reg_mr(e->pd, addr, length, access));
    assert_int_equal(errno, error);
}

static void accepted(struct sv_end *e, void *addr, size_t length, int access) {
    struct ibv_mr *mr = soft_reg_mr(e->pd, addr, length, access);
    assert_non_null(mr);
    assert_int_equal(soft_dereg_mr(mr), 0);
}

static int as_text(void **state) {
    (void)state;
    soft_vma_as_text = true;
    return 0;
}

static int by_call(void **state) {
    (void)state;
    soft_vma_as_text = false;
    return 0;
}

#define BOTH(name)                                                                                 \
    TEST_EACH(name, {#name, name, NULL, NULL, NULL},                                               \
              {#name "_read_as_text", name, as_text, by_call, NULL})

BOTH(memory_that_is_not_mapped_is_not_registered) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    /* Low, where the kernel puts nothing by itself: a hole stays one whatever is allocated meanwhile. */
    uint8_t *pages = mmap((void *)LOW_ADDRESS, 65536, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    accepted(&e, pages + 1, 65535, IBV_ACCESS_LOCAL_WRITE);
    assert_int_equal(munmap(pages + 8192, 4096), 0);
    assert_int_equal(munmap(pages + 61440, 4096), 0);
    for (int access = 0; access <= IBV_ACCESS_LOCAL_WRITE; access += IBV_ACCESS_LOCAL_WRITE) {
        accepted(&e, pages, 8192, access);
        accepted(&e, pages + 12288, 49152, access);
        refused(&e, NULL, 64, access, EFAULT);
        refused(&e, pages, 8193, access, EFAULT);          /* runs into the hole */
        refused(&e, pages + 8192, 1, access, EFAULT);      /* is the hole */
        refused(&e, pages + 12287, 2, access, EFAULT);     /* begins in it */
        refused(&e, pages, 16384, access, EFAULT);         /* goes across */
        refused(&e, pages + 12288, 49153, access, EFAULT); /* ends behind */
        refused(&e, (void *)~(uintptr_t)4095, 4095, access, EFAULT);
        refused(&e, pages, (size_t)1 << 45, access, ENOMEM); /* more than there is */
    }
    assert_null(soft_reg_mr_iova(e.pd, pages + 8192, 64, 0, 0));
    assert_int_equal(errno, EFAULT);
    assert_int_equal(munmap(pages, 65536), 0);
    sv_close(&e);
}

/* A mapping is not memory: what was reserved without any behind it counts as what it claims. */
BOTH(more_than_the_machine_has_is_not_registered) {
    struct sv_end e;
    const size_t huge = (size_t)1 << 45; /* 32 TiB */
    sv_open(&e, SV_OPTIONS());
    void *claimed = mmap(NULL, huge, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (claimed == MAP_FAILED) {
        sv_close(&e);
        skip(); /* fewer address bits, or a limit on the address space */
    }
    refused(&e, claimed, huge, 0, ENOMEM);
    accepted(&e, (uint8_t *)claimed + huge / 2, 1 << 20, 0);
    assert_int_equal(munmap(claimed, huge), 0);
    sv_close(&e);
}

BOTH(memory_without_the_right_is_not_registered) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    static const int writes[] = {
        IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_MW_BIND};
    uint8_t *pages = mmap(NULL, 16384, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    accepted(&e, pages, 16384, 0);
    accepted(&e, pages, 16384, IBV_ACCESS_REMOTE_READ);
    for (unsigned i = 0; i < sizeof writes / sizeof writes[0]; i++)
        refused(&e, pages, 16384, writes[i], EFAULT);
    assert_int_equal(mprotect(pages, 8192, PROT_READ | PROT_WRITE), 0);
    for (unsigned i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        accepted(&e, pages, 8192, writes[i]);
        refused(&e, pages, 8193, writes[i], EFAULT);
    }
    assert_int_equal(mprotect(pages, 4096, PROT_NONE), 0);
    refused(&e, pages, 1, 0, EFAULT);
    assert_int_equal(munmap(pages, 16384), 0);
    sv_close(&e);
}

/* Linux 5.14 and later: before, nothing tells but the access. */
BOTH(what_lies_behind_the_end_of_its_file_is_not_registered) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    int fd = memfd_create("short", MFD_CLOEXEC);
    assert_true(fd >= 0 && ftruncate(fd, 4096) == 0);
    uint8_t *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(pages != MAP_FAILED);
    accepted(&e, pages, 4096, IBV_ACCESS_LOCAL_WRITE);
    if (madvise(pages, 4096, 22 /* MADV_POPULATE_READ */) == 0)
        refused(&e, pages, 8192, IBV_ACCESS_LOCAL_WRITE, EFAULT);
    assert_int_equal(munmap(pages, 8192), 0);
    close(fd);
    sv_close(&e);
}
