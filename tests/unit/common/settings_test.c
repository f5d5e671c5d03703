/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * settings_test.c - what a variable says in each of its ways, and what it does not know: that is refused, and read as if
 * it said nothing.
 */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "common/settings.h"
#include "support/rows.h"

#define UNSAID 4711u /* no value of any */

struct said {
    const char *name;
    enum setting which;
    const char *text;
    unsigned value;
};

static void is_taken(void **state) {
    const struct said *said = *state;
    char sentence[SETTINGS_SENTENCE];
    setenv(said->name, said->text, 1);
    assert_int_equal(setting_value(said->which, UNSAID), said->value);
    assert_false(settings_wrong(sentence, sizeof sentence));
    unsetenv(said->name);
}

static void is_refused(void **state) {
    const struct said *said = *state;
    char sentence[SETTINGS_SENTENCE];
    setenv(said->name, said->text, 1);
    assert_int_equal(setting_value(said->which, UNSAID), UNSAID);
    assert_true(settings_wrong(sentence, sizeof sentence));
    assert_non_null(strstr(sentence, said->name));
    assert_non_null(strstr(sentence, said->text));
    unsetenv(said->name);
}

TEST(a_sentence_says_what_is_allowed) {
    char sentence[SETTINGS_SENTENCE];
    setenv("SLUICE_SOFT_NET", "offf", 1);
    assert_true(settings_wrong(sentence, sizeof sentence));
    assert_string_equal(sentence, "SLUICE_SOFT_NET: 'offf' is none of off, on, require");
    unsetenv("SLUICE_SOFT_NET");
    setenv("SLUICE_SOFT_CM_TRIES", "1001", 1);
    assert_true(settings_wrong(sentence, sizeof sentence));
    assert_string_equal(sentence, "SLUICE_SOFT_CM_TRIES: '1001' is no number from 1 to 1000");
    unsetenv("SLUICE_SOFT_CM_TRIES");
}

TEST(a_long_word_is_cut) {
    char sentence[SETTINGS_SENTENCE], text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    setenv("SLUICE_SOFT_NET", text, 1);
    assert_true(settings_wrong(sentence, sizeof sentence));
    assert_non_null(strstr(sentence, "x' is none of off, on, require"));
    unsetenv("SLUICE_SOFT_NET");
}

#define WORD(name, variable, text, value)                                                          \
    ROW(name, is_taken, said, "SLUICE_" #variable, SETTING_##variable, text, value)
#define NO_WORD(name, variable, text)                                                              \
    ROW(name, is_refused, said, "SLUICE_" #variable, SETTING_##variable, text, 0)

TEST_CASES(WORD(a_word, SOFT_NET, "require", SETTING_NET_REQUIRE),
           WORD(a_word_in_capitals, SOFT_NET, "Require", SETTING_NET_REQUIRE),
           WORD(on, SOFT_NET, "ON", SETTING_NET_ON), WORD(one_is_on, SOFT_NET, "1", SETTING_NET_ON),
           WORD(yes_is_on, SOFT_CRC, "Yes", SETTING_ON),
           WORD(true_is_on, SOFT_CRC, "TRUE", SETTING_ON),
           WORD(zero_is_off, SOFT_CRC, "0", SETTING_OFF),
           WORD(no_is_off, SOFT_CRC, "no", SETTING_OFF),
           WORD(false_is_off, POOL_DEBUG, "False", SETTING_OFF),
           WORD(off_is_off, POOL_DEBUG, "off", SETTING_OFF),
           WORD(off_is_no, HUGE_PAGES, "off", SETTING_HUGE_NO),
           WORD(pages_in_small_letters, HUGE_PAGES, "2m", SETTING_HUGE_2M),
           WORD(all, SOFT_ORDER, "ALL", SETTING_ORDER_ALL), WORD(nothing, SOFT_NET, "", UNSAID),
           WORD(no_number, SOFT_CM_TRIES, "", UNSAID), WORD(the_least, SOFT_CM_TRIES, "1", 1),
           WORD(the_most, SOFT_CM_TRIES, "1000", 1000), NO_WORD(another_word, SOFT_NET, "offf"),
           NO_WORD(a_space_behind, SOFT_NET, "off "), NO_WORD(another_number, SOFT_NET, "2"),
           NO_WORD(two_of_a_switch, SOFT_CRC, "2"), NO_WORD(disabled, SOFT_CRC, "disabled"),
           NO_WORD(on_of_what_has_no_on, SOFT_ORDER, "on"),
           NO_WORD(yes_of_what_has_no_on, HUGE_PAGES, "yes"),
           NO_WORD(less_than_the_least, SOFT_CM_TRIES, "0"),
           NO_WORD(more_than_the_most, SOFT_CM_TRIES, "1001"),
           NO_WORD(less_than_nothing, SOFT_CM_TRIES, "-1"), NO_WORD(a_unit, SOFT_MPA_MS, "20ms"),
           NO_WORD(a_space_in_front, SOFT_MPA_MS, " 20"), NO_WORD(a_power, SOFT_MPA_MS, "1e3"),
           NO_WORD(another_base, SOFT_MPA_MS, "0x20"),
           NO_WORD(more_than_a_number_holds, SOFT_MPA_MS, "18446744073709551626"));
