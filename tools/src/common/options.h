/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * options.h - command lines from a table: flags and operands in any order, -s64, -s 64, --size=64,
 * --size 64, grouped one-letter flags, "--" ends the flags. The same table prints --help. Every
 * tool has -h, --help, -V and --version without listing them.
 *
 * Parsing writes only through the table's pointers, and says what is wrong in one line that names
 * the flag, the value and what would have been right. Owner: the caller.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
    OPTION_FLAG,    /* bool: no value */
    OPTION_NUMBER,  /* uint64_t, min..max */
    OPTION_SIZE,    /* uint64_t bytes, min..max, suffixes K M G */
    OPTION_SECONDS, /* uint64_t nanoseconds, min..max in nanoseconds; written in seconds */
    OPTION_CHOICE,  /* uint64_t: index in choices */
    OPTION_SET,     /* uint64_t: a bit for each index in choices; written with commas */
    OPTION_TEXT     /* const char *, not empty */
};

struct option {
    char letter;       /* 0: none */
    const char *name;  /* without dashes */
    const char *value; /* what --help calls the value; NULL for a flag */
    enum option_kind kind;
    void *out;   /* see the kinds */
    bool *given; /* set to true when the option occurs; may be NULL */
    uint64_t min, max;
    const char *const *choices; /* NULL-terminated */
    const char *help;           /* one or more lines */
};

struct options {
    const char *about; /* one sentence */
    const char *usage; /* lines, without the tool's name in front of the first */
    const struct option *list;
    size_t count;
    const char *notes;     /* lines after the options, may be NULL */
    const char **operands; /* filled in order */
    int operands_max;
    int operand_count; /* how many there were */
    char error[320];
};

enum options_result { OPTIONS_OK, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_WRONG };

enum options_result options_parse(struct options *o, int argc, char **argv);
void options_help(const struct options *o, const char *tool, FILE *out);
/* Parses and serves --help, --version and errors. Returns -1 to go on, else the exit status. */
int options_main(struct options *o, int argc, char **argv);

#endif
