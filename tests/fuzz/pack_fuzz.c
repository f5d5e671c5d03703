/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * pack_fuzz.c - any bytes as the payload of a PACK: what the check lets through is exactly what a
 * sender may write, to the bit; and what a peer changes in it afterwards cannot make an item reach
 * beyond the frame.
 *
 * Input: flags, which byte is changed behind the check, and to what; then the payload. The file under
 * test is compiled into this program, because the check is private to it.
 */
#include "datapath/progress/unpack.c" /* NOLINT(bugprone-suspicious-include) */
#include "fuzz/fuzz.h"

/* What a sender writes for the items it finds: NULL, or as many bytes as it should be. */
static bool is_canonical(const uint8_t *payload, uint32_t bytes, bool reserved) {
    uint32_t at = 0;
    for (;;) {
        if (bytes - at < 16)
            return false;
        const uint8_t *p = payload + at;
        uint64_t length =
            (uint64_t)p[4] | (uint64_t)p[5] << 8 | (uint64_t)p[6] << 16 | (uint64_t)p[7] << 24;
        if ((p[0] != FRAME_DATA && p[0] != FRAME_REQUEST && p[0] != FRAME_REPLY) || p[1] || p[2] ||
            p[3] || (reserved && p[0] != FRAME_REPLY))
            return false;
        for (unsigned i = 8; i < 16; i++)
            if (p[0] == FRAME_DATA && p[i])
                return false;
        if (at + 16 + length > bytes)
            return false;
        at += 16 + (uint32_t)length;
        if (at == bytes)
            return true;
        for (; at % 8; at++)
            if (at >= bytes || payload[at])
                return false;
    }
}

/* As coalesced_take() goes through it. */
static void walk(const uint8_t *payload, uint32_t bytes, bool reserved,
                 const struct unpacking *kept) {
    uint32_t at = 0;
    for (uint32_t i = 0; at < bytes; i++) {
        struct coalesce_item item;
        const char *wrong = coalesce_item_get(&item, payload, bytes, at, reserved);
        PROVE(!wrong || !kept);
        if (wrong)
            return;
        PROVE(!kept || (i < ITEMS ? i < kept->count && kept->items[i].at == item.at &&
                                        kept->items[i].length == item.length &&
                                        kept->items[i].type == item.type &&
                                        kept->items[i].total == item.total
                                  : kept->count == ITEMS));
        PROVE(item.at == at + COALESCE_ITEM_BYTES && item.length <= bytes - item.at);
        PROVE(item.next > at && item.next <= bytes && item.next - item.at >= item.length);
        PROVE(item.next == bytes || item.next % 8 == 0);
        at = item.next;
    }
    PROVE(at == bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    bool reserved = fuzz_take(&in, 1) & 1;
    size_t where = fuzz_take(&in, 2);
    uint8_t value = (uint8_t)fuzz_take(&in, 1);
    if (in.left < COALESCE_ITEM_BYTES) /* frame_wrong() sees to that */
        return 0;
    uint32_t bytes = (uint32_t)in.left;
    uint8_t *payload = malloc(bytes); /* aligned, and nothing may be read behind it */
    PROVE(payload != NULL);
    memcpy(payload, in.at, bytes);
    struct sluice_msg frame = {.data = payload, .size = bytes};
    struct unpacking u;
    frame.rx.frame_flags = reserved ? FRAME_RESERVED : 0;
    bool right = read_items(&u, &frame, 0) == NULL;
    PROVE(right == is_canonical(payload, bytes, reserved));
    if (right)
        walk(payload, bytes, reserved, &u);
    payload[where % bytes] = value;
    walk(payload, bytes, reserved, NULL);
    free(payload);
    return 0;
}
