/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * load.c - programs that load libibverbs or librdmacm themselves: a preloaded library comes before a program's
 * own symbols, but not before a lookup by handle. For the names of these two libraries the program gets this one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "dropin/dropin.h"

typedef void *dlopen_fn(const char *file, int mode);

static _Atomic(dlopen_fn *) system_dlopen;

/* "libibverbs.so", "libibverbs.so.1", in any folder. */
static bool is_name_of(const char *file, const char *library) {
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    size_t length = strlen(library);
    return strncmp(name, library, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, ".1") == 0);
}

static const char *instead_of(const char *file) {
    Dl_info own;
    if (!file || (!is_name_of(file, "libibverbs.so") && !is_name_of(file, "librdmacm.so")))
        return file;
    return dladdr((void *)(uintptr_t)&system_dlopen, &own) != 0 ? own.dli_fname : file;
}

static dlopen_fn *find_system(void) {
    dlopen_fn *fn = (dlopen_fn *)dlsym(RTLD_NEXT, "dlopen");
    atomic_store_explicit(&system_dlopen, fn, memory_order_release);
    return fn;
}

/*
 * The system's dlopen() searches the run path of its caller, which it knows by the return address. This function
 * therefore jumps to it instead of calling it, in a debug build as well: the caller is then the program.
 */
#ifdef __clang__
#define JUMP __attribute__((musttail))
#define JUMPS
#else
#define JUMP
#define JUMPS __attribute__((optimize("O2")))
#endif

EXPORT JUMPS void *dlopen(const char *file, int mode) {
    dlopen_fn *fn = atomic_load_explicit(&system_dlopen, memory_order_acquire);
    if (!fn)
        fn = find_system();
    const char *instead = instead_of(file);
    JUMP return fn(instead, mode);
}
