/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * json.h - writes one JSON value, on one line, piece by piece. Commas and escapes are its business,
 * nesting the caller's. Text is made valid UTF-8: what is not printable ASCII is escaped or
 * replaced, because names in it may come from another process.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    bool comma; /* something stands before in this object or list */
};

void json_begin(struct json *j, FILE *out);        /* opens the outermost object */
void json_end(struct json *j);                     /* closes it and ends the line */
void json_object(struct json *j, const char *key); /* key NULL inside a list */
void json_list(struct json *j, const char *key);
void json_close_object(struct json *j);
void json_close_list(struct json *j);
void json_text(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
void json_signed(struct json *j, const char *key, int64_t value);
void json_real(struct json *j, const char *key, double value, int decimals); /* < 0: null */
void json_bool(struct json *j, const char *key, bool value);

#endif
