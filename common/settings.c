/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* settings.c - see settings.h. Constant. */
#define _GNU_SOURCE /* secure_getenv */
#include "common/settings.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WORDS_MOST 3
#define DIGITS_MOST 9
#define SHOWN "%.60s"

struct entry {
    const char *name;
    const char *words[WORDS_MOST]; /* none: a number */
    unsigned least, most;
};

static const struct entry entries[SETTINGS] = {
    [SETTING_HUGE_PAGES] = {"SLUICE_HUGE_PAGES", {"no", "2M", "1G"}, 0, 0},
    [SETTING_POOL_DEBUG] = {"SLUICE_POOL_DEBUG", {"off", "on"}, 0, 0},
    [SETTING_SOFT_NET] = {"SLUICE_SOFT_NET", {"off", "on", "require"}, 0, 0},
    [SETTING_SOFT_CRC] = {"SLUICE_SOFT_CRC", {"off", "on"}, 0, 0},
    [SETTING_SOFT_ORDER] = {"SLUICE_SOFT_ORDER", {"off", "all"}, 0, 0},
    [SETTING_SOFT_CM_TIMEOUT_MS] = {"SLUICE_SOFT_CM_TIMEOUT_MS", {0}, 10, 600000},
    [SETTING_SOFT_CM_TRIES] = {"SLUICE_SOFT_CM_TRIES", {0}, 1, 1000},
    [SETTING_SOFT_CM_WAIT_MS] = {"SLUICE_SOFT_CM_WAIT_MS", {0}, 10, 600000},
    [SETTING_SOFT_CM_REFUSE_MS] = {"SLUICE_SOFT_CM_REFUSE_MS", {0}, 0, 600000},
    [SETTING_SOFT_CM_END_MS] = {"SLUICE_SOFT_CM_END_MS", {0}, 0, 600000},
    [SETTING_SOFT_MPA_MS] = {"SLUICE_SOFT_MPA_MS", {0}, 10, 600000},
    [SETTING_SOFT_TIMEWAIT_MS] = {"SLUICE_SOFT_TIMEWAIT_MS", {0}, 1, 600000},
};

static bool is_one_of(const char *text, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcasecmp(text, words[i]) == 0)
            return true;
    }
    return false;
}

/* Whether they are two words for the same of on and off. */
static bool same_switch(const char *a, const char *b) {
    static const char *const on[] = {"on", "yes", "true", "1"};
    static const char *const off[] = {"off", "no", "false", "0"};
    return (is_one_of(a, on, 4) && is_one_of(b, on, 4)) ||
           (is_one_of(a, off, 4) && is_one_of(b, off, 4));
}

static bool read_word(const struct entry *entry, const char *text, unsigned *value) {
    for (unsigned i = 0; i < WORDS_MOST && entry->words[i]; i++) {
        if (strcasecmp(text, entry->words[i]) == 0 || same_switch(text, entry->words[i])) {
            *value = i;
            return true;
        }
    }
    return false;
}

static bool read_number(const struct entry *entry, const char *text, unsigned *value) {
    size_t digits = strspn(text, "0123456789");
    if (text[digits] || digits > DIGITS_MOST)
        return false;
    unsigned long number = strtoul(text, NULL, 10);
    *value = (unsigned)number;
    return number >= entry->least && number <= entry->most;
}

static const char *text_of(const struct entry *entry) {
    const char *text = secure_getenv(entry->name);
    return text && *text ? text : NULL;
}

static bool read_text(const struct entry *entry, const char *text, unsigned *value) {
    return entry->words[0] ? read_word(entry, text, value) : read_number(entry, text, value);
}

unsigned setting_value(enum setting which, unsigned fallback) {
    const struct entry *entry = &entries[which];
    const char *text = text_of(entry);
    unsigned value;
    return text && read_text(entry, text, &value) ? value : fallback;
}

static void say(const struct entry *entry, const char *text, char *sentence, size_t bytes) {
    if (!entry->words[0])
        snprintf(sentence, bytes, "%s: '" SHOWN "' is no number from %u to %u", entry->name, text,
                 entry->least, entry->most);
    else
        snprintf(sentence, bytes, "%s: '" SHOWN "' is none of %s, %s%s%s", entry->name, text,
                 entry->words[0], entry->words[1], entry->words[2] ? ", " : "",
                 entry->words[2] ? entry->words[2] : "");
}

bool settings_wrong(char *sentence, size_t bytes) {
    for (unsigned i = 0; i < SETTINGS; i++) {
        const char *text = text_of(&entries[i]);
        unsigned value;
        if (!text || read_text(&entries[i], text, &value))
            continue;
        say(&entries[i], text, sentence, bytes);
        return true;
    }
    return false;
}

bool settings_refused(void) {
    static atomic_bool told;
    char sentence[SETTINGS_SENTENCE];
    if (!settings_wrong(sentence, sizeof sentence))
        return false;
    if (!atomic_exchange(&told, true))
        fprintf(stderr, "sluice: %s\n", sentence);
    errno = EINVAL;
    return true;
}
