/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * name_fuzz.c - any text as the name of a socket in the kernel's table, where every user can put what he likes: it
 * is taken for a port only if it is letter by letter what the owner of that port would have written.
 *
 * The parser is compiled into this program, because it is private to its file.
 */
#include "soft/cm/port_name.c" /* NOLINT(bugprone-suspicious-include) */

#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct soft_cm_port_name name;
    char again[SOFT_CM_NAME_BYTES];
    char *text = malloc(size + 1);
    PROVE(text);
    memcpy(text, data, size);
    text[size] = 0;
    if (parse(text, -1, 0, &name)) { /* of any port space and port */
        bool reuse = name.reuse;
        name.reuse = false; /* what follows then only tells several apart */
        soft_cm_port_name_format(&name, 0, again);
        size_t length = strlen(again);
        PROVE(strncmp(text, again, length) == 0);
        PROVE(reuse ? text[length] == '/' && text[length + 1] == 'r' : text[length] == 0);
    }
    free(text);
    return 0;
}
