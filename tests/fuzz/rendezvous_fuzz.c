/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rendezvous_fuzz.c - large messages in both directions, in any order of announcements, answers, READs and
 * WRITEs, with the wrong ones among them: see session.h for what is proved.
 */
#include "menu.h"
#include "session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct session_menu menu = {menu_rendezvous, sizeof menu_rendezvous, false};
    return session_run(&menu, data, size);
}
