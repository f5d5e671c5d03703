/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * mr_mapped.h - may memory be registered: is all of it there, with the rights that the device needs?
 *
 * A device of the kernel's pins the pages and so finds out. The software device pins none, and an access to missing
 * memory would only be seen when a peer's data arrives, as a failure of the connection.
 */
#ifndef SOFT_VERBS_MR_MAPPED_H
#define SOFT_VERBS_MR_MAPPED_H

#include <stdbool.h>
#include <stddef.h>

/*
 * 0, EFAULT (not all of it is mapped, or not with the right to read, or, for write, to write; also what
 * lies behind the end of its file), or ENOMEM (more than the machine has). Touches a page of each
 * mapping of a file at most, nothing else. Any thread; no lock is needed.
 */
int soft_vma_check(const void *addr, size_t length, bool write);

extern bool soft_vma_as_text; /* as before Linux 6.11: for tests */

#endif
