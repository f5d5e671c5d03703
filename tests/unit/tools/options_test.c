/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * options_test.c - the command line of the tools: what is taken, and that every error names the
 * flag, the value and what would have been right. Numbers, sizes, times and addresses with it.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../tools/src/common/options.h"
#include "../tools/src/common/tool.h"
#include "../tools/src/common/units.h"

/* The parser alone: no signals, no library. */
const char *tool_name(void) {
    return "test";
}
int tool_usage(const char *format, ...) {
    (void)format;
    return TOOL_USAGE;
}
int tool_end(int rc) {
    return rc;
}
#include "../tools/src/common/units.c"
#include "../tools/src/common/options.c"

static struct {
    bool all, json, size_given;
    uint64_t size, number, duration, mode, without;
    const char *device;
    const char *operands[2];
} got;
static const char *const modes[] = {"spin", "adaptive", "block", NULL};
static const struct option table[] = {
    {'a', "all", NULL, OPTION_FLAG, &got.all, NULL, 0, 0, NULL, "all"},
    {'j', "json", NULL, OPTION_FLAG, &got.json, NULL, 0, 0, NULL, "json"},
    {'s', "size", "BYTES", OPTION_SIZE, &got.size, &got.size_given, 1, 64 << 20, NULL, "size\ntwo"},
    {'n', "number", "N", OPTION_NUMBER, &got.number, NULL, 0, 1000, NULL, "number"},
    {'D', "duration", "SECONDS", OPTION_SECONDS, &got.duration, NULL, 1000000, 60000000000, NULL,
     "time"},
    {0, "mode", "MODE", OPTION_CHOICE, &got.mode, NULL, 0, 0, modes, "mode"},
    {0, "without", "LIST", OPTION_SET, &got.without, NULL, 0, 0, modes, "set"},
    {0, "device", "NAME", OPTION_TEXT, &got.device, NULL, 0, 0, NULL, "device"},
};
static struct options options = {.about = "a test",
                                 .usage = "[options]\n[options] HOST",
                                 .list = table,
                                 .count = sizeof table / sizeof table[0],
                                 .operands = got.operands,
                                 .operands_max = 2};

/* Splits at blanks; "_" stands for an empty argument. */
static enum options_result parse(const char *line) {
    static char copy[512];
    char *argv[32] = {(char *)"test"};
    int argc = 1;
    memset(&got, 0, sizeof got);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "_") == 0 ? (char *)"" : word;
    return options_parse(&options, argc, argv);
}

static void assert_wrong(const char *line, const char *flag, const char *value, const char *hint) {
    if (parse(line) != OPTIONS_WRONG)
        fail_msg("'%s' was accepted", line);
    if (strstr(options.error, flag) == NULL || strstr(options.error, value) == NULL ||
        strstr(options.error, hint) == NULL)
        fail_msg("'%s': the error names not all of %s, %s, %s: %s", line, flag, value, hint,
                 options.error);
    assert_null(strchr(options.error, '\n'));
}

TEST(every_way_to_write_a_value) {
    static const char *const lines[] = {"-s 64K",     "-s64K",  "--size 64K",
                                        "--size=64K", "-as64K", "-aj -s 65536"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_int_equal(parse(lines[i]), OPTIONS_OK);
        assert_int_equal(got.size, 65536);
        assert_true(got.size_given);
    }
    assert_int_equal(parse("-aj"), OPTIONS_OK);
    assert_true(got.all && got.json && !got.size_given);
}

TEST(operands_and_flags_in_any_order) {
    assert_int_equal(parse("host -n 5 -- -second"), OPTIONS_OK);
    assert_int_equal(options.operand_count, 2);
    assert_string_equal(got.operands[0], "host");
    assert_string_equal(got.operands[1], "-second");
    assert_int_equal(got.number, 5);
    assert_wrong("one two three", "three", "too many", "");
    assert_int_equal(parse("-"), OPTIONS_OK);
    assert_string_equal(got.operands[0], "-");
}

TEST(values_of_each_kind) {
    assert_int_equal(parse("--mode block --device soft -D 0.25 -n 0"), OPTIONS_OK);
    assert_int_equal(got.mode, 2);
    assert_string_equal(got.device, "soft");
    assert_int_equal(got.duration, 250000000);
    assert_int_equal(parse("--without block,spin"), OPTIONS_OK);
    assert_int_equal(got.without, 5);
    assert_int_equal(parse("--without=adaptive"), OPTIONS_OK);
    assert_int_equal(got.without, 2);
    assert_int_equal(parse("-n 1 -n 2"), OPTIONS_OK);
    assert_int_equal(got.number, 2);
}

TEST(help_and_version_win_where_they_stand) {
    assert_int_equal(parse("-h"), OPTIONS_HELP);
    assert_int_equal(parse("--help"), OPTIONS_HELP);
    assert_int_equal(parse("-aV"), OPTIONS_VERSION);
    assert_int_equal(parse("--version"), OPTIONS_VERSION);
    assert_int_equal(parse("--bad --help"), OPTIONS_WRONG);
}

TEST(errors_name_flag_value_and_remedy) {
    assert_wrong("--frob", "--frob", "not a flag", "");
    assert_wrong("--frob=3", "--frob", "not a flag", "");
    assert_wrong("-x", "-x", "not a flag", "");
    assert_wrong("-ax", "-x", "not a flag", "");
    assert_wrong("-s", "-s", "missing", "BYTES");
    assert_wrong("--size", "--size", "missing", "BYTES");
    assert_wrong("-s 12Q", "-s", "'12Q'", "1 to 64M");
    assert_wrong("--size=", "--size", "''", "1 to 64M");
    assert_wrong("-s 0", "-s", "0", "1 to 64M");
    assert_wrong("-s 65M", "-s", "65M", "1 to 64M");
    assert_wrong("-s --json", "-s", "'--json'", "size");
    assert_wrong("-n -5", "-n", "'-5'", "0 to 1000");
    assert_wrong("-n 1001", "-n", "1001", "0 to 1000");
    assert_wrong("-n 99999999999999999999999", "-n", "99999999999999999999999", "0 to 1000");
    assert_wrong("-n 1.5", "-n", "'1.5'", "whole number");
    assert_wrong("-D 0", "-D", "0", "0.001 to 60");
    assert_wrong("-D soon", "-D", "'soon'", "seconds");
    assert_wrong("--mode lazy", "--mode", "'lazy'", "spin, adaptive, block");
    assert_wrong("--without spin,lazy", "--without", "'lazy'", "spin, adaptive, block");
    assert_wrong("--without spin,,block", "--without", "''", "spin, adaptive, block");
    assert_wrong("--without spin,", "--without", "''", "spin, adaptive, block");
    assert_wrong("--all=yes", "--all", "'yes'", "no value");
    assert_wrong("--device _", "--device", "empty", "");
    assert_wrong("--help=me", "--help", "'me'", "no value");
}

TEST(a_long_value_does_not_flood_the_error) {
    char line[400] = "-n ";
    memset(line + 3, 'x', 390);
    assert_int_equal(parse(line), OPTIONS_WRONG);
    assert_true(strlen(options.error) < 200);
    memset(line, '-', 2);
    line[2] = 'x';
    assert_int_equal(parse(line), OPTIONS_WRONG);
    assert_true(strlen(options.error) < 200);
}

TEST(help_lists_every_option) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    options_help(&options, "test", out);
    fclose(out);
    for (size_t i = 0; i < options.count; i++)
        assert_non_null(strstr(text, table[i].name));
    assert_non_null(strstr(text, "-h, --help"));
    assert_non_null(strstr(text, "-s, --size BYTES"));
    assert_non_null(strstr(text, "test [options] HOST"));
    free(text);
}

TEST(numbers_are_all_or_nothing) {
    uint64_t v = 42;
    static const char *const bad[] = {
        "", " 1", "1 ", "+1", "-1", "0x10", "1e3", "1K", "18446744073709551616", "\xef\xbc\x91"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(units_number(bad[i], &v));
    assert_int_equal(v, 42);
    assert_true(units_number("18446744073709551615", &v));
    assert_true(v == UINT64_MAX);
}

TEST(sizes_know_their_suffixes) {
    uint64_t v = 42;
    assert_true(units_size("0", &v) && v == 0);
    assert_true(units_size("3k", &v) && v == 3072);
    assert_true(units_size("1M", &v) && v == 1 << 20);
    assert_true(units_size("16G", &v) && v == UINT64_C(16) << 30);
    v = 42;
    static const char *const bad[] = {"K", "1T", "1KB", "1 K", "17179869184G", "-1K", ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(units_size(bad[i], &v));
    assert_int_equal(v, 42);
    char text[32];
    static const uint64_t sizes[] = {0, 1, 1023, 1024, 1536, 65536, 1 << 20, UINT64_C(3) << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        units_print_size(text, sizeof text, sizes[i]);
        assert_true(units_size(text, &v) && v == sizes[i]);
    }
}

TEST(times_are_decimal_seconds) {
    uint64_t v = 42;
    assert_true(units_seconds_ns("10", &v) && v == UINT64_C(10000000000));
    assert_true(units_seconds_ns("0.000000001", &v) && v == 1);
    assert_true(units_seconds_ns("1.5", &v) && v == 1500000000);
    static const char *const bad[] = {
        "", ".5", "1.", "1.0000000001", "1s", "-1", "99999999999999", "1.5.5"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(units_seconds_ns(bad[i], &v));
}

TEST(addresses_get_their_port) {
    static const struct {
        const char *in, *out;
    } good[] = {
        {"host", "host:18515"},
        {"host:1", "host:1"},
        {"192.0.2.1:65535", "192.0.2.1:65535"},
        {"[::1]", "[::1]:18515"},
        {"[::1]:7", "[::1]:7"},
        {"::1", "[::1]:18515"},
        {"fe80::1%eth0", "[fe80::1%eth0]:18515"},
        {"sluice://host:9", "host:9"},
        {"*:0", "*:0"},
    };
    char out[ADDRESS_BYTES];
    bool had_port;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_null(units_address(good[i].in, 18515, out, &had_port));
        assert_string_equal(out, good[i].out);
        assert_int_equal(had_port, strstr(good[i].out, ":18515") == NULL);
    }
}

TEST(several_addresses_get_their_ports) {
    static const struct {
        const char *in, *out; /* NULL: it is wrong */
    } rows[] = {
        {"host", "host:18515"},
        {"host:1,[::1],10.0.0.1:3", "host:1,[::1]:18515,10.0.0.1:3"},
        {"a,b,c,d,e,f,g,h", "a:18515,b:18515,c:18515,d:18515,e:18515,f:18515,g:18515,h:18515"},
        {"a,b,c,d,e,f,g,h,i", NULL},
        {"host,", NULL},
        {",host", NULL},
        {"host,,host", NULL},
        {"host,host:0", NULL},
        {"host:0,host", NULL},
        {"host,ho st", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char out[ADDRESSES_BYTES] = "untouched";
        bool had_port;
        assert_int_equal(units_addresses(rows[i].in, 18515, out, &had_port) == NULL,
                         rows[i].out != NULL);
        assert_string_equal(out, rows[i].out ? rows[i].out : "untouched");
        assert_int_equal(rows[i].out && had_port, rows[i].out && strstr(rows[i].in, ":1,"));
    }
}

TEST(malformed_addresses_say_why) {
    static const char *const bad[] = {"",         ":1",      "host:",      "host:65536",
                                      "host:-1",  "host:1x", "[::1",       "[::1]x",
                                      "[host]:1", "a:b:c",   "::1:70000:", "ho st:1",
                                      "host/x:1", "[]:1",    "sluice://",  "[::1]:"};
    char out[ADDRESS_BYTES] = "untouched";
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (units_address(bad[i], 18515, out, NULL) == NULL)
            fail_msg("'%s' was accepted as %s", bad[i], out);
    assert_string_equal(out, "untouched");
    assert_non_null(units_address("host", -1, out, NULL));
    char longest[1024];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_non_null(units_address(longest, 1, out, NULL));
}
