/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * plan_fuzz.c - any text as a fault plan, as it comes from the environment or through the control socket: it is a
 * plan, or it is refused with a place inside of the text and a reason that can be printed.
 */
#include "fuzz/fuzz.h"
#include "soft/fault/plan.h"

static bool printable(const char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
            return false;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct soft_plan_error error = {0};
    char *text = malloc(size + 1); /* ends where the input ends: a read behind it is seen */
    PROVE(text);
    memcpy(text, data, size);
    text[size] = 0;
    struct soft_plan *plan = soft_plan_parse(text, &error);
    if (!plan) {
        unsigned lines = 1;
        for (const char *at = text; *at; at++)
            lines += *at == '\n';
        PROVE(error.line >= 1 && error.line <= lines + 1 && error.column >= 1);
        PROVE(error.reason[0] && printable(error.reason));
    }
    free(plan);
    free(text);
    return 0;
}
