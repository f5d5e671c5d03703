/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* status_test.c - every status, reason and event has a text of its own; unknown ones have one. */
#include "support/test.h"

#include <string.h>

#include <sluice/sluice.h>

#include "base/env.h"

static const int statuses[] = {
#define X(name, value, text) SLUICE_##name,
    SLUICE_STATUS_LIST(X)
#undef X
};
static const int reasons[] = {
#define X(name, value, text) SLUICE_REASON_##name,
    SLUICE_REASON_LIST(X)
#undef X
};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void all_distinct(const int *values, size_t count, const char *(*text)(int)) {
    for (size_t i = 0; i < count; i++) {
        assert_non_null(text(values[i]));
        assert_true(strlen(text(values[i])) > 3);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(values[i], values[j]);
            assert_string_not_equal(text(values[i]), text(values[j]));
        }
    }
}

TEST(every_status_has_its_text) {
    all_distinct(statuses, COUNT(statuses), sluice_strerror);
    assert_string_equal(sluice_strerror(SLUICE_OK), "success");
    assert_string_equal(sluice_strerror(3), "success");
    assert_string_equal(sluice_strerror(-1000), "unknown status");
    assert_string_equal(sluice_strerror(INT32_MIN), "unknown status");
}

TEST(every_reason_has_its_text) {
    all_distinct(reasons, COUNT(reasons), sluice_reason_text);
    assert_string_equal(sluice_reason_text(-1), "unknown reason");
    assert_string_equal(sluice_reason_text(65535), "unknown reason");
}

TEST(every_event_has_its_name) {
    const int events[] = {SLUICE_UP,       SLUICE_CLOSED, SLUICE_MESSAGE, SLUICE_SENT,
                          SLUICE_WRITABLE, SLUICE_WAKE,   SLUICE_CONNECT};
    for (size_t i = 0; i < COUNT(events); i++) {
        assert_string_not_equal(sluice_event_name(events[i]), "unknown event");
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(sluice_event_name(events[i]), sluice_event_name(events[j]));
    }
    assert_string_equal(sluice_event_name(0), "unknown event");
    assert_string_equal(sluice_event_name(99), "unknown event");
}

TEST(version_and_clock) {
    assert_int_equal(sluice_version() >> 16, SLUICE_VERSION_MAJOR);
    assert_int_equal(sluice_version() >> 8 & 255, SLUICE_VERSION_MINOR);
    assert_int_equal(sluice_version() & 255, SLUICE_VERSION_PATCH);
    uint64_t first = sluice_now(), second = env_now(&env_default);
    assert_true(first > 0);
    assert_true(second >= first);
    assert_true(second - first < 60 * UINT64_C(1000000000));
}

TEST(random_bytes_differ) {
    uint8_t a[64] = {0}, b[64] = {0}, zero[64] = {0};
    env_default.random_bytes(env_default.arg, a, sizeof a);
    env_default.random_bytes(env_default.arg, b, sizeof b);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a + 48, zero, 16); /* the end was filled too */
    env_default.random_bytes(env_default.arg, zero, 0);
    assert_int_equal(zero[0], 0);
}
