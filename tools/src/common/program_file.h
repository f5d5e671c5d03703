/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* program_file.h - what a program's file says of the libraries it is started with. No state, any thread. */
#ifndef TOOLS_PROGRAM_FILE_H
#define TOOLS_PROGRAM_FILE_H

#include <stdbool.h>

/*
 * Whether the program that execvp() would find under this name asks the loader for a library whose name begins so.
 * False also for scripts, and for what cannot be read.
 */
bool program_file_needs(const char *name, const char *library);

#endif
