/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * credit_fuzz.c - credits given, used, kept back, recalled and returned, by a peer that may lie about them:
 * see session.h for what is proved.
 */
#include "menu.h"
#include "session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct session_menu menu = {menu_credit, sizeof menu_credit, false};
    return session_run(&menu, data, size);
}
