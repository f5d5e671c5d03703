/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * options.c - the parser behind options.h.
 */
#include "options.h"

#include <string.h>

#include "tool.h"
#include "units.h"

#define WRONG(o, ...) (snprintf((o)->error, sizeof(o)->error, __VA_ARGS__), OPTIONS_WRONG)

static const struct option builtin[] = {
    {.letter = 'h', .name = "help", .kind = OPTION_FLAG, .help = "print this and exit"},
    {.letter = 'V', .name = "version", .kind = OPTION_FLAG, .help = "print the version and exit"},
};

static const struct option *at_index(const struct options *o, size_t i) {
    return i < o->count ? &o->list[i] : &builtin[i - o->count];
}

static const struct option *find_letter(const struct options *o, char letter) {
    for (size_t i = 0; i < o->count + 2; i++)
        if (at_index(o, i)->letter == letter)
            return at_index(o, i);
    return NULL;
}

static const struct option *find_name(const struct options *o, const char *name, size_t length) {
    for (size_t i = 0; i < o->count + 2; i++)
        if (strlen(at_index(o, i)->name) == length &&
            strncmp(at_index(o, i)->name, name, length) == 0)
            return at_index(o, i);
    return NULL;
}

static void print_limit(char *out, size_t out_bytes, const struct option *option, uint64_t limit) {
    if (option->kind == OPTION_SIZE)
        units_print_size(out, out_bytes, limit);
    else if (option->kind == OPTION_SECONDS)
        snprintf(out, out_bytes, "%g", (double)limit / 1e9);
    else
        snprintf(out, out_bytes, "%llu", (unsigned long long)limit);
}

static enum options_result take_number(struct options *o, const struct option *option,
                                       const char *flag, const char *text) {
    uint64_t value;
    bool ok;
    const char *what;
    if (option->kind == OPTION_SIZE) {
        ok = units_size(text, &value);
        what = "a size in bytes (K, M, G allowed)";
    } else if (option->kind == OPTION_SECONDS) {
        ok = units_seconds_ns(text, &value);
        what = "a time in seconds";
    } else {
        ok = units_number(text, &value);
        what = "a whole number";
    }
    char min[32], max[32];
    print_limit(min, sizeof min, option, option->min);
    print_limit(max, sizeof max, option, option->max);
    if (!ok)
        return WRONG(o, "%s: '%.60s' is not %s from %s to %s", flag, text, what, min, max);
    if (value < option->min || value > option->max)
        return WRONG(o, "%s: %.60s is out of range: %s to %s is allowed", flag, text, min, max);
    *(uint64_t *)option->out = value;
    return OPTIONS_OK;
}

static enum options_result take_choice(struct options *o, const struct option *option,
                                       const char *flag, const char *text) {
    char list[128] = "";
    for (uint64_t i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *(uint64_t *)option->out = i;
            return OPTIONS_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i == 0 ? "" : ", ", option->choices[i]);
    }
    return WRONG(o, "%s: '%.60s' is none of %s", flag, text, list);
}

static enum options_result take_set(struct options *o, const struct option *option,
                                    const char *flag, const char *text) {
    uint64_t bits = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char one[64];
        uint64_t index;
        struct option choice = *option;
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ","), at);
        choice.out = &index;
        enum options_result result = take_choice(o, &choice, flag, one);
        if (result != OPTIONS_OK)
            return result;
        bits |= UINT64_C(1) << index;
    }
    *(uint64_t *)option->out = bits;
    return OPTIONS_OK;
}

static enum options_result take_value(struct options *o, const struct option *option,
                                      const char *flag, const char *text) {
    if (option->given != NULL)
        *option->given = true;
    switch (option->kind) {
    case OPTION_FLAG:
        if (option->out != NULL)
            *(bool *)option->out = true;
        return OPTIONS_OK;
    case OPTION_NUMBER:
    case OPTION_SIZE:
    case OPTION_SECONDS:
        return take_number(o, option, flag, text);
    case OPTION_CHOICE:
        return take_choice(o, option, flag, text);
    case OPTION_SET:
        return take_set(o, option, flag, text);
    case OPTION_TEXT:
        if (*text == '\0')
            return WRONG(o, "%s: the value is empty", flag);
        *(const char **)option->out = text;
        return OPTIONS_OK;
    }
    return OPTIONS_OK;
}

static enum options_result builtin_result(const struct option *option) {
    if (option == &builtin[0])
        return OPTIONS_HELP;
    if (option == &builtin[1])
        return OPTIONS_VERSION;
    return OPTIONS_OK;
}

static enum options_result missing(struct options *o, const struct option *option,
                                   const char *flag) {
    return WRONG(o, "%s: a value is missing: %s %s", flag, flag, option->value);
}

/* argv[*at] begins with "--" and is longer. */
static enum options_result parse_long(struct options *o, int argc, char **argv, int *at) {
    const char *text = argv[*at];
    const char *equals = strchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : strlen(text);
    const struct option *option = find_name(o, text + 2, length - 2);
    if (option == NULL)
        return WRONG(o, "'%.*s' is not a flag of this tool", (int)(length > 60 ? 60 : length),
                     text);
    if (builtin_result(option) != OPTIONS_OK && equals == NULL)
        return builtin_result(option);
    char flag[64];
    snprintf(flag, sizeof flag, "--%s", option->name);
    if (option->value == NULL) {
        if (equals != NULL)
            return WRONG(o, "%s takes no value, '%.60s' is one too many", flag, equals + 1);
        return take_value(o, option, flag, NULL);
    }
    if (equals != NULL)
        return take_value(o, option, flag, equals + 1);
    if (*at + 1 >= argc)
        return missing(o, option, flag);
    return take_value(o, option, flag, argv[++*at]);
}

/* argv[*at] is "-x...", grouped flags, the last of which may have a value. */
static enum options_result parse_short(struct options *o, int argc, char **argv, int *at) {
    for (const char *letter = argv[*at] + 1; *letter != '\0'; letter++) {
        const struct option *option = find_letter(o, *letter);
        if (option == NULL)
            return WRONG(o, "'-%c' is not a flag of this tool", *letter);
        if (builtin_result(option) != OPTIONS_OK)
            return builtin_result(option);
        char flag[3] = {'-', *letter, '\0'};
        if (option->value == NULL) {
            take_value(o, option, flag, NULL);
            continue;
        }
        if (letter[1] != '\0')
            return take_value(o, option, flag, letter + 1);
        if (*at + 1 >= argc)
            return missing(o, option, flag);
        return take_value(o, option, flag, argv[++*at]);
    }
    return OPTIONS_OK;
}

enum options_result options_parse(struct options *o, int argc, char **argv) {
    bool flags_ended = false;
    o->operand_count = 0;
    o->error[0] = '\0';
    for (int at = 1; at < argc; at++) {
        const char *text = argv[at];
        enum options_result result = OPTIONS_OK;
        if (!flags_ended && strcmp(text, "--") == 0) {
            flags_ended = true;
        } else if (!flags_ended && strncmp(text, "--", 2) == 0) {
            result = parse_long(o, argc, argv, &at);
        } else if (!flags_ended && text[0] == '-' && text[1] != '\0') {
            result = parse_short(o, argc, argv, &at);
        } else if (o->operand_count < o->operands_max) {
            o->operands[o->operand_count++] = text;
        } else {
            result = WRONG(o, "'%.60s' is one argument too many", text);
        }
        if (result != OPTIONS_OK)
            return result;
    }
    return OPTIONS_OK;
}

/* "  -s, --size BYTES     text", the lines of the text below each other. */
static void help_line(const struct option *option, FILE *out) {
    char left[64];
    char letter[8] = "   ";
    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c,", option->letter);
    snprintf(left, sizeof left, "  %s --%s%s%s", letter, option->name,
             option->value != NULL ? " " : "", option->value != NULL ? option->value : "");
    const char *text = option->help;
    do {
        size_t length = strcspn(text, "\n");
        fprintf(out, "%-26s %.*s\n", left, (int)length, text);
        left[0] = '\0';
        text += length + (text[length] == '\n');
    } while (*text != '\0');
}

void options_help(const struct options *o, const char *tool, FILE *out) {
    fprintf(out, "%s - %s\n\nusage:\n", tool, o->about);
    for (const char *line = o->usage; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "  %s %.*s\n", tool, (int)length, line);
        line += length + (line[length] == '\n');
    }
    fprintf(out, "\noptions:\n");
    for (size_t i = 0; i < o->count + 2; i++)
        help_line(at_index(o, i), out);
    if (o->notes != NULL)
        fprintf(out, "\n%s", o->notes);
}

int options_main(struct options *o, int argc, char **argv) {
    switch (options_parse(o, argc, argv)) {
    case OPTIONS_OK:
        return -1;
    case OPTIONS_HELP:
        options_help(o, tool_name(), stdout);
        return tool_end(0);
    case OPTIONS_VERSION: {
        uint32_t version = sluice_version();
        printf("%s %u.%u.%u\n", tool_name(), version >> 16, version >> 8 & 255, version & 255);
        return tool_end(0);
    }
    case OPTIONS_WRONG:
        break;
    }
    return tool_usage("%s", o->error);
}
