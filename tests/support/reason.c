/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* reason.c - see reason.h. */
#include "support/reason.h"

void expect_end(struct pair *p, struct side *side, const struct end *end) {
    sluice_event event;
    do
        assert_true(pair_next(p, side, &event));
    while (event.type != SLUICE_CLOSED);
    sluice_session_info info = {.size = sizeof info};
    assert_int_equal(sluice_session_get_info(event.session, &info), 0);
    if (event.reason != end->reason)
        fail_msg("%s (%s), expected %s", sluice_reason_text(event.reason), info.close_text,
                 sluice_reason_text((int)end->reason));
    assert_int_equal(event.status, end->status);
    if (end->vendor != ANY)
        assert_int_equal(event.vendor, end->vendor);
    assert_int_equal(info.cm_event, end->cm_event);
    assert_int_equal(info.cm_status, end->cm_status);
    assert_int_equal(info.wc_status, end->wc_status);
    if (end->text)
        assert_string_equal(info.close_text, end->text);
    else
        assert_true(info.close_text[0] != 0);
    /* Who prints both does not say the same twice. */
    if (strcmp(info.close_text, sluice_reason_text(event.reason)) == 0)
        fail_msg("%s (%s)", sluice_reason_text(event.reason), info.close_text);
}

void reason_dial(struct pair *p) {
    pair_dial(p, ONCE);
}
