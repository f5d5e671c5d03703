/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_rej_fuzz.c - any bytes as a refusal: refused itself and nothing written, or decoded into a
 * text that can be shown on a terminal and does not change when it is passed on.
 *
 * Input: the REJ.
 */
#include "core/wire/private_data.h"
#include "fuzz/fuzz.h"

static void prove_printable(const char *text) {
    const uint8_t *at = (const uint8_t *)text;
    for (size_t i = 0; at[i]; i++) {
        PROVE(at[i] >= 0x20 && at[i] != 0x7f && at[i] != 0xc0 && at[i] != 0xc1 && at[i] < 0xf5);
        PROVE(!(at[i] == 0xc2 && at[i + 1] < 0xa0)); /* 8-bit control characters */
        bool follows = (at[i] & 0xc0) == 0x80;
        PROVE(!follows || (i > 0 && at[i - 1] >= 0x80));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct private_data_rej rej, again, before;
    memset(&before, 0xa5, sizeof before);
    memcpy(&rej, &before, sizeof rej);
    if (private_data_rej_decode(&rej, data, size) != SLUICE_REASON_NONE) {
        PROVE(memcmp(&rej, &before, sizeof rej) == 0);
        return 0;
    }
    size_t length = strnlen(rej.text, sizeof rej.text);
    PROVE(length == data[3] - 8u && length <= PRIVATE_DATA_REJ_TEXT);
    prove_printable(rej.text);
    uint8_t bytes[PRIVATE_DATA_REJ_BYTES];
    size_t used = private_data_rej_encode(&rej, bytes);
    PROVE(used == data[3] && memcmp(bytes, data, 8) == 0);
    PROVE(private_data_rej_decode(&again, bytes, used) == SLUICE_REASON_NONE);
    PROVE(again.reason == rej.reason && again.code == rej.code);
    PROVE(strcmp(again.text, rej.text) == 0);
    return 0;
}
