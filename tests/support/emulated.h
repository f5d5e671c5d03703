/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * emulated.h - for the few tests of what QEMU's user mode does not do as a kernel does. It has signals,
 * threads and mappings of its own in our process, starts no program of its architecture, and lacks some
 * system calls. ctest sets SLUICE_EMULATED in a build that is run in it (docs/aarch64.md).
 *
 * After cmocka.h.
 */
#ifndef TESTS_SUPPORT_EMULATED_H
#define TESTS_SUPPORT_EMULATED_H

#include <stdlib.h>

/* Skips the test where the program is emulated; `what`: that the emulator does otherwise. */
#define skip_emulated(what)                                                                        \
    do {                                                                                           \
        if (getenv("SLUICE_EMULATED")) {                                                           \
            print_message("SKIPPED: QEMU'S USER MODE %s\n", what);                                 \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
