/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * run.h - "sluice-soft run": starts another program with the software device in place of the system's
 * RDMA libraries. Does not return when that succeeds.
 */
#ifndef RUN_H
#define RUN_H

/* argv[0] is "run". An exit status: as a shell's, 126 or 127 when the program cannot be started. */
int run_main(int argc, char **argv);

#endif
