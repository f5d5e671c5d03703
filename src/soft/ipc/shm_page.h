/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * shm_page.h - life of the board that peers look at (struct soft_board, shm_layout.h). Control lock.
 */
#ifndef SOFT_IPC_SHM_PAGE_H
#define SOFT_IPC_SHM_PAGE_H

int soft_board_start(void); /* 0 or -errno */
int soft_board_fd(void);    /* to hand to peers */
void soft_board_forked(void);

#endif
