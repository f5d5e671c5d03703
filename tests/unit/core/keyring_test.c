/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keyring_test.c - what keys a link may be given, how they are found, and that they are wiped.
 */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/auth/keyring.h"
#include "support/wipes.h"
#include "support/emulated.h"

#define KEY(number) ((sluice_key){(number), WIPES_MARK_BYTES, WIPES_MARK})

static uint32_t no_hook(uint32_t key_id, void *secret, void *arg) {
    (void)secret, (void)arg;
    fail_msg("the hook was asked for key %u", key_id);
    return 0;
}

static struct keyring *make(const sluice_link_options *o, bool dialing) {
    struct keyring *ring = NULL;
    sluice_error e = {0};
    if (keyring_make(&ring, o, dialing, &e) != SLUICE_OK)
        fail_msg("%s", e.text);
    return ring;
}

/* ---- making ---------------------------------------------------------------------------------- */

TEST(without_keys_there_is_no_ring) {
    int anything;
    uint8_t secret[SLUICE_SECRET_MAX];
    assert_null(make(SLUICE_LINK(.arg = &anything), false));
    assert_null(make(SLUICE_LINK(.key_lookup_arg = &anything), true));
    keyring_hold(NULL);
    keyring_drop(NULL);
    assert_int_equal(keyring_find(NULL, 1, secret), 0);
    assert_int_equal(keyring_dial_id(NULL), 0);
}

static void assert_refused(const sluice_link_options *o, bool dialing, const char *text) {
    struct keyring *ring = (struct keyring *)(uintptr_t)1;
    sluice_error e = {0};
    assert_int_equal(keyring_make(&ring, o, dialing, &e), SLUICE_EINVAL);
    assert_null(ring);
    assert_int_equal(e.status, SLUICE_EINVAL);
    if (!strstr(e.text, text))
        fail_msg("'%s' does not say '%s'", e.text, text);
    assert_int_equal(keyring_make(&ring, o, dialing, NULL), SLUICE_EINVAL);
}

TEST(keys_that_cannot_be_right_are_refused) {
    static sluice_key many[KEYRING_KEYS_MAX + 1];
    for (uint32_t i = 0; i <= KEYRING_KEYS_MAX; i++)
        many[i] = KEY(i + 1);
    assert_refused(SLUICE_LINK(.keys = many, .key_count = KEYRING_KEYS_MAX + 1), false, "1025");
    assert_refused(SLUICE_LINK(.keys = many, .key_count = UINT32_MAX), false, "1024");
    assert_refused(SLUICE_LINK(.key_count = 2), false, "no keys");
    assert_refused(SLUICE_LINK(.keys = many), false, "key_count is 0");
    assert_refused(SLUICE_LINK(.keys = many, .key_lookup = no_hook), false, "key_count is 0");
    static const struct {
        sluice_key key;
        const char *text;
    } wrong[] = {
        {{0, WIPES_MARK_BYTES, WIPES_MARK}, "id is 0"},
        {{7, WIPES_MARK_BYTES, NULL}, "no secret"},
        {{7, 0, WIPES_MARK}, "0 bytes"},
        {{7, SLUICE_SECRET_MIN - 1, WIPES_MARK}, "15 bytes"},
        {{7, SLUICE_SECRET_MAX + 1, WIPES_MARK}, "65 bytes"},
        {{7, UINT32_MAX, WIPES_MARK}, "4294967295 bytes"},
        {{9001, WIPES_MARK_BYTES, WIPES_MARK}, "9001"}, /* twice */
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sluice_key keys[] = {KEY(9001), wrong[i].key, KEY(3)};
        assert_refused(SLUICE_LINK(.keys = keys, .key_count = 3), false, wrong[i].text);
        assert_refused(SLUICE_LINK(.keys = keys, .key_count = 3), false, "key 1 of the array");
        if (i < 6)
            assert_refused(SLUICE_LINK(.keys = keys + 1, .key_count = 1), true, wrong[i].text);
    }
    /* of both lengths at the edges */
    char long_secret[SLUICE_SECRET_MAX] = "x";
    sluice_key edges[] = {{1, SLUICE_SECRET_MIN, long_secret}, {2, SLUICE_SECRET_MAX, long_secret}};
    keyring_drop(make(SLUICE_LINK(.keys = edges, .key_count = 2), false));
    keyring_drop(make(SLUICE_LINK(.keys = many, .key_count = KEYRING_KEYS_MAX), false));
}

TEST(dialing_takes_one_key_and_no_hook) {
    sluice_key keys[] = {KEY(5), KEY(6)};
    assert_refused(SLUICE_LINK(.keys = keys, .key_count = 2), true, "one key, not 2");
    assert_refused(SLUICE_LINK(.keys = keys, .key_count = 1, .key_lookup = no_hook), true,
                   "key_lookup");
    assert_refused(SLUICE_LINK(.key_lookup = no_hook), true, "key_lookup");
    struct keyring *ring = make(SLUICE_LINK(.keys = keys, .key_count = 1), true);
    assert_int_equal(keyring_dial_id(ring), 5);
    keyring_drop(ring);
}

/* ---- finding --------------------------------------------------------------------------------- */

TEST(every_key_is_found_in_whatever_order_they_came) {
    static sluice_key keys[KEYRING_KEYS_MAX];
    static uint8_t secrets[KEYRING_KEYS_MAX][SLUICE_SECRET_MAX];
    uint8_t secret[SLUICE_SECRET_MAX], zero[SLUICE_SECRET_MAX] = {0};
    for (uint32_t i = 0; i < KEYRING_KEYS_MAX; i++) {
        uint32_t bytes = SLUICE_SECRET_MIN + i % 49;
        memset(secrets[i], (int)(i % 255 + 1), bytes);
        memcpy(secrets[i], &i, sizeof i);
        keys[i] = (sluice_key){(i * 389 % KEYRING_KEYS_MAX + 1) * 4000000, bytes, secrets[i]};
    }
    struct keyring *ring = make(SLUICE_LINK(.keys = keys, .key_count = KEYRING_KEYS_MAX), false);
    static sluice_key before[KEYRING_KEYS_MAX];
    static uint8_t secrets_before[KEYRING_KEYS_MAX][SLUICE_SECRET_MAX];
    memcpy(before, keys, sizeof keys);
    memcpy(secrets_before, secrets, sizeof secrets);
    memset(keys, 0xff, sizeof keys); /* it keeps copies */
    memset(secrets, 0xff, sizeof secrets);
    for (uint32_t i = 0; i < KEYRING_KEYS_MAX; i++) {
        memset(secret, 0xee, sizeof secret);
        assert_int_equal(keyring_find(ring, before[i].id, secret), before[i].bytes);
        assert_memory_equal(secret, secrets_before[i], sizeof secret); /* zero behind its end */
        assert_int_equal(keyring_find(ring, before[i].id + 1, secret), 0);
        assert_memory_equal(secret, zero, sizeof zero);
        assert_int_equal(keyring_find(ring, before[i].id - 1, secret), 0);
    }
    assert_int_equal(keyring_find(ring, 0, secret), 0);
    assert_int_equal(keyring_find(ring, UINT32_MAX, secret), 0);
    keyring_drop(ring);
}

struct hook {
    uint32_t asked, id, bytes;
};

static uint32_t answer(uint32_t key_id, void *secret, void *arg) {
    struct hook *hook = arg;
    hook->asked++;
    hook->id = key_id;
    memset(secret, 0x5a, SLUICE_SECRET_MAX);
    return hook->bytes;
}

TEST(keys_are_looked_at_first_and_the_hook_asked_then) {
    struct hook hook = {.bytes = 20};
    sluice_key keys[] = {KEY(5), KEY(3)};
    uint8_t secret[SLUICE_SECRET_MAX];
    struct keyring *ring = make(
        SLUICE_LINK(.keys = keys, .key_count = 2, .key_lookup = answer, .key_lookup_arg = &hook),
        false);
    assert_int_equal(keyring_find(ring, 3, secret), WIPES_MARK_BYTES);
    assert_memory_equal(secret, WIPES_MARK, WIPES_MARK_BYTES);
    assert_int_equal(keyring_find(ring, 5, secret), WIPES_MARK_BYTES);
    assert_int_equal(keyring_find(ring, 0, secret), 0); /* no key has it: nobody is asked */
    assert_int_equal(hook.asked, 0);
    assert_int_equal(keyring_find(ring, 4, secret), 20);
    assert_int_equal(secret[19], 0x5a);
    assert_int_equal(hook.asked, 1);
    assert_int_equal(hook.id, 4);
    keyring_drop(ring);
    /* a hook alone is enough */
    ring = make(SLUICE_LINK(.key_lookup = answer, .key_lookup_arg = &hook), false);
    assert_int_equal(keyring_find(ring, UINT32_MAX, secret), 20);
    assert_int_equal(hook.id, UINT32_MAX);
    keyring_drop(ring);
}

TEST(a_hook_that_answers_a_wrong_length_has_no_key) {
    static const struct {
        uint32_t says, counts;
    } lengths[] = {{0, 0},   {1, 0},  {15, 0},  {16, 16},        {40, 40},
                   {64, 64}, {65, 0}, {256, 0}, {UINT32_MAX, 0}, {0x80000010u, 0}};
    uint8_t secret[SLUICE_SECRET_MAX], zero[SLUICE_SECRET_MAX] = {0};
    struct hook hook = {0};
    struct keyring *ring = make(SLUICE_LINK(.key_lookup = answer, .key_lookup_arg = &hook), false);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        hook.bytes = lengths[i].says;
        assert_int_equal(keyring_find(ring, 7, secret), lengths[i].counts);
        if (lengths[i].counts == 0)
            assert_memory_equal(secret, zero, sizeof zero);
    }
    keyring_drop(ring);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* What the kernel says of the mapping that this lies in; false: that it goes into a core file. */
static bool is_left_out_of_core_files(const void *at) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[512];
    unsigned long start, end;
    bool within = false, left_out = false, known = false;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            within = start <= (uintptr_t)at && (uintptr_t)at < end;
        else if (within && strncmp(line, "VmFlags:", 8) == 0) {
            known = true;
            left_out = strstr(line, " dd") != NULL;
        }
    }
    fclose(maps);
    assert_true(known);
    return left_out;
}

TEST(secrets_are_left_out_of_core_files) {
    skip_emulated("SHOWS NO FLAGS OF MAPPINGS");
    sluice_key key = KEY(7);
    struct keyring *ring = make(&(sluice_link_options){.keys = &key, .key_count = 1}, true);
    assert_true(is_left_out_of_core_files(ring));
    assert_false(is_left_out_of_core_files(&key)); /* the application's own are its own affair */
    keyring_drop(ring);
}

TEST(whoever_drops_the_last_reference_wipes_every_secret) {
    sluice_key keys[] = {KEY(5), KEY(3), KEY(8)};
    uint8_t secret[SLUICE_SECRET_MAX];
    struct keyring *ring = make(SLUICE_LINK(.keys = keys, .key_count = 3), false);
    keyring_hold(ring);
    keyring_hold(ring);
    atomic_store(&wipes, 0);
    keyring_drop(ring);
    keyring_drop(ring);
    assert_int_equal(atomic_load(&wipes), 0);
    assert_int_equal(keyring_find(ring, 8, secret), WIPES_MARK_BYTES);
    keyring_drop(ring);
    assert_int_equal(atomic_load(&wipes), 1);
    assert_int_equal(atomic_load(&wipes_secrets), 3);
    /* and so are those in front of one that is refused */
    keys[2].id = 0;
    assert_int_equal(keyring_make(&ring, SLUICE_LINK(.keys = keys, .key_count = 3), false, NULL),
                     SLUICE_EINVAL);
    assert_int_equal(atomic_load(&wipes), 2);
    assert_int_equal(atomic_load(&wipes_secrets), 2);
}

static void *hold_and_drop(void *arg) {
    struct keyring *ring = arg;
    uint8_t secret[SLUICE_SECRET_MAX];
    uint32_t found = 0;
    for (unsigned i = 0; i < 2000; i++) {
        keyring_hold(ring);
        found += keyring_find(ring, 5, secret) == WIPES_MARK_BYTES;
        keyring_drop(ring);
    }
    keyring_drop(ring);
    return (void *)(uintptr_t)found;
}

TEST(threads_share_a_ring) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    sluice_key key = KEY(5);
    struct keyring *ring = make(SLUICE_LINK(.keys = &key, .key_count = 1), false);
    atomic_store(&wipes, 0);
    for (int i = 0; i < THREADS; i++) {
        keyring_hold(ring);
        assert_int_equal(pthread_create(&threads[i], NULL, hold_and_drop, ring), 0);
    }
    keyring_drop(ring);
    for (int i = 0; i < THREADS; i++) {
        void *found;
        pthread_join(threads[i], &found);
        assert_int_equal((uintptr_t)found, 2000);
    }
    assert_int_equal(atomic_load(&wipes), 1);
}
