/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * json.c - see json.h.
 */
#include "json.h"

static void put_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c < 0x7f ? c : '?', out);
    }
    fputc('"', out);
}

static void put_key(struct json *j, const char *key) {
    if (j->comma)
        fputs(", ", j->out);
    j->comma = true;
    if (key != NULL) {
        put_text(j->out, key);
        fputs(": ", j->out);
    }
}

void json_begin(struct json *j, FILE *out) {
    j->out = out;
    j->comma = false;
    fputc('{', out);
}

void json_end(struct json *j) {
    fputs("}\n", j->out);
}

void json_object(struct json *j, const char *key) {
    put_key(j, key);
    fputc('{', j->out);
    j->comma = false;
}

void json_list(struct json *j, const char *key) {
    put_key(j, key);
    fputc('[', j->out);
    j->comma = false;
}

void json_close_object(struct json *j) {
    fputc('}', j->out);
    j->comma = true;
}

void json_close_list(struct json *j) {
    fputc(']', j->out);
    j->comma = true;
}

void json_text(struct json *j, const char *key, const char *value) {
    put_key(j, key);
    put_text(j->out, value);
}

void json_number(struct json *j, const char *key, uint64_t value) {
    put_key(j, key);
    fprintf(j->out, "%llu", (unsigned long long)value);
}

void json_signed(struct json *j, const char *key, int64_t value) {
    put_key(j, key);
    fprintf(j->out, "%lld", (long long)value);
}

void json_real(struct json *j, const char *key, double value, int decimals) {
    put_key(j, key);
    if (value < 0)
        fputs("null", j->out);
    else
        fprintf(j->out, "%.*f", decimals, value);
}

void json_bool(struct json *j, const char *key, bool value) {
    put_key(j, key);
    fputs(value ? "true" : "false", j->out);
}
