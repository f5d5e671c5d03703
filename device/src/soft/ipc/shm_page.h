/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shm_page.h - life of the board that peers look at (struct soft_shm_page, shm_layout.h). Control lock.
 */
#ifndef SOFT_IPC_SHM_PAGE_H
#define SOFT_IPC_SHM_PAGE_H

struct soft_shm_page;

extern struct soft_shm_page *soft_shm_page; /* NULL before the engine first started */

int soft_shm_page_start(void); /* 0 or -errno */
int soft_shm_page_fd(void);    /* to hand to peers */
void soft_shm_page_forked(void);

#endif
