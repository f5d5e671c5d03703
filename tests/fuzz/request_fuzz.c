/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * request_fuzz.c - requests and replies in both directions, alone, in packs and by rendezvous, cancelled,
 * expired, answered late, twice or by nobody: see session.h for what is proved.
 */
#include "menu.h"
#include "session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct session_menu menu = {menu_request, sizeof menu_request, false};
    return session_run(&menu, data, size);
}
