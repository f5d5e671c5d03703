/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* plugin.c - what load.c finds beside itself. */
int plugin(void);
int plugin(void) {
    return 1;
}
