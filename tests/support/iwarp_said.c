/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* iwarp_said.c - see iwarp_said.h. */
#include "support/test.h"

#include "support/iwarp_said.h"

#include "soft/iwarp/rdmap.h"
#include "support/iwarp.h"
#include "support/pattern.h"

void iwarp_say_begin(struct iwarp_said *s) {
    s->bytes = 0;
    pattern_fill(s->data, 0, sizeof s->data, 5);
}

void iwarp_say(struct iwarp_said *s, struct iwarp_ddp ddp, const void *payload, size_t bytes) {
    assert_true(s->bytes + bytes + 64 < sizeof s->stream);
    s->bytes += iwarp_frame(s->stream + s->bytes, &ddp, payload, bytes);
}

void iwarp_say_send(struct iwarp_said *s, uint8_t opcode, uint32_t msn, uint32_t stag, uint32_t mo,
                    size_t bytes, bool last) {
    iwarp_say(
        s, (struct iwarp_ddp){.opcode = opcode, .last = last, .stag = stag, .msn = msn, .mo = mo},
        s->data + mo, bytes);
}

void iwarp_say_tagged(struct iwarp_said *s, uint8_t opcode, uint32_t stag, uint64_t offset,
                      uint32_t at, size_t bytes, bool last) {
    iwarp_say(
        s, (struct iwarp_ddp){.opcode = opcode, .last = last, .stag = stag, .offset = offset + at},
        s->data + at, bytes);
}

void iwarp_say_own(struct iwarp_said *s, uint8_t opcode, uint32_t msn, const void *payload,
                   size_t bytes) {
    iwarp_say(s,
              (struct iwarp_ddp){
                  .opcode = opcode, .last = true, .queue = iwarp_opcode_queue(opcode), .msn = msn},
              payload, bytes);
}
