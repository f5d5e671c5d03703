/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * greeting_fuzz.c - from the records to WELCOME and just behind it, as dialer and as listener, with a key
 * and without, asked and not: records that are altered, and frames that come too early, twice or never. See
 * session.h for what is proved.
 */
#include "menu.h"
#include "session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct session_menu menu = {menu_greeting, sizeof menu_greeting, true};
    return session_run(&menu, data, size);
}
