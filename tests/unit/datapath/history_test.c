/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* history_test.c - the checker of histories finds what is wrong in them, and nothing where they are right. */
#include "support/history.h"
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sluice/sluice.h>

#define MOST 64

struct both {
    struct history_record given_at[MOST], other_at[MOST];
    struct history given, other;
};

#define GAVE(b, kind, number) history_add(&(b)->given, HISTORY_GIVEN, kind, number, 0)
#define TOLD(b, kind, number, status) history_add(&(b)->given, HISTORY_TOLD, kind, number, status)
#define CAME(b, kind, number) history_add(&(b)->other, HISTORY_ARRIVED, kind, number, 0)
#define EVENT(b, what) history_add(&(b)->given, what, HISTORY_MESSAGE, 0, 0)

/* Two messages, a put that was lost and what was behind it, and a request while the session was down. */
static void write_right(struct both *b) {
    memset(b, 0, sizeof *b);
    b->given = (struct history){.at = b->given_at, .most = MOST};
    b->other = (struct history){.at = b->other_at, .most = MOST};
    GAVE(b, HISTORY_MESSAGE, 0);
    GAVE(b, HISTORY_MESSAGE, 1);
    TOLD(b, HISTORY_MESSAGE, 0, SLUICE_OK);
    TOLD(b, HISTORY_MESSAGE, 1, SLUICE_OK);
    GAVE(b, HISTORY_PUT, 2);
    GAVE(b, HISTORY_MESSAGE, 3);
    EVENT(b, HISTORY_DOWN);
    GAVE(b, HISTORY_REQUEST, 4);
    EVENT(b, HISTORY_UP);
    TOLD(b, HISTORY_PUT, 2, SLUICE_EUNKNOWN);
    TOLD(b, HISTORY_MESSAGE, 3, SLUICE_EFENCED);
    TOLD(b, HISTORY_REQUEST, 4, SLUICE_OK);
    CAME(b, HISTORY_MESSAGE, 0);
    CAME(b, HISTORY_MESSAGE, 1);
    CAME(b, HISTORY_REQUEST, 4);
}

static const char *wrong(const struct both *b) {
    uint32_t number;
    return history_wrong(&b->given, &b->other, &number);
}

static void drop(struct history *h, uint32_t at) {
    memmove(&h->at[at], &h->at[at + 1], (h->count - at) * sizeof *h->at);
    h->count--;
}

static void swap(struct history_record *a, struct history_record *b) {
    struct history_record one = *a;
    *a = *b;
    *b = one;
}

TEST(a_right_history_is_right) {
    static struct both b;
    write_right(&b);
    assert_null(wrong(&b));
}

TEST(a_put_that_was_done_lets_through_what_is_behind_it) {
    static struct both b;
    write_right(&b);
    CAME(&b, HISTORY_PUT, 2);
    assert_null(wrong(&b));
}

TEST(whatever_is_left_out_is_missed) {
    for (uint32_t i = 0; i < 12; i++) {
        static struct both b;
        write_right(&b);
        bool event = b.given.at[i].what >= HISTORY_DOWN;
        drop(&b.given, i);
        if (!event)
            assert_non_null(wrong(&b));
    }
    for (uint32_t i = 0; i < 3; i++) {
        static struct both b;
        write_right(&b);
        drop(&b.other, i);
        assert_string_equal(wrong(&b), "done, and did not arrive");
    }
}

TEST(whatever_is_there_twice_is_seen) {
    static struct both b;
    write_right(&b);
    CAME(&b, HISTORY_MESSAGE, 1);
    assert_string_equal(wrong(&b), "arrived twice");
    write_right(&b);
    TOLD(&b, HISTORY_MESSAGE, 1, SLUICE_OK);
    assert_string_equal(wrong(&b), "told twice");
    write_right(&b);
    GAVE(&b, HISTORY_MESSAGE, 1);
    assert_string_equal(wrong(&b), "given without its number");
}

TEST(what_is_out_of_order_is_seen) {
    static struct both b;
    write_right(&b);
    swap(&b.other.at[0], &b.other.at[1]);
    assert_string_equal(wrong(&b), "arrived behind what was given later");
}

TEST(what_was_never_given_is_seen) {
    static struct both b;
    write_right(&b);
    CAME(&b, HISTORY_MESSAGE, 5);
    assert_string_equal(wrong(&b), "arrived without having been given");
    write_right(&b);
    b.other.at[2].kind = HISTORY_MESSAGE; /* a request as a message */
    assert_string_equal(wrong(&b), "arrived without having been given");
    write_right(&b);
    TOLD(&b, HISTORY_MESSAGE, 5, SLUICE_OK);
    assert_string_equal(wrong(&b), "told of what was not given");
}

TEST(what_was_fenced_off_must_not_arrive) {
    static struct both b;
    write_right(&b);
    swap(&b.other.at[2], &b.other.at[3]);
    b.other.count = 2;
    CAME(&b, HISTORY_MESSAGE, 3);
    CAME(&b, HISTORY_REQUEST, 4);
    assert_string_equal(wrong(&b), "fenced off, and arrived");
    b.given.at[10].status = SLUICE_OK; /* said to have arrived, though its put is not there */
    assert_string_equal(wrong(&b), "arrived before a put that it was behind was done");
    CAME(&b, HISTORY_PUT, 2);
    assert_null(wrong(&b));
}

TEST(outcomes_are_no_guesses) {
    static struct both b;
    write_right(&b);
    b.given.at[3].status = SLUICE_EUNKNOWN;
    assert_string_equal(wrong(&b), "unknown in a session that lives");
    EVENT(&b, HISTORY_CLOSED);
    assert_null(wrong(&b));
    b.given.at[3].status = SLUICE_ECLOSED;
    assert_string_equal(wrong(&b), "never left, and arrived");
    write_right(&b);
    b.given.at[3].status = SLUICE_ECLOSED;
    assert_string_equal(wrong(&b), "closed in a session that lives");
    b.given.at[3].status = SLUICE_ETIMEDOUT;
    assert_string_equal(wrong(&b), "given up, and arrived");
    b.given.at[3].status = SLUICE_EDEVICE;
    assert_string_equal(wrong(&b), "with an outcome that it cannot have");
    b.given.at[3].status = SLUICE_OK;
    b.given.at[11].status =
        SLUICE_EUNKNOWN; /* the request was executed, and its reply fenced off */
    assert_null(wrong(&b));
    drop(&b.other, 2);
    assert_string_equal(wrong(&b), "unknown to who asked, and did not arrive");
}

TEST(a_history_that_was_cut_short_is_wrong) {
    static struct both b;
    write_right(&b);
    while (b.other.count < b.other.most)
        EVENT(&b, HISTORY_UP), history_add(&b.other, HISTORY_UP, HISTORY_MESSAGE, 0, 0);
    assert_string_equal(wrong(&b), "a history that is full");
}

/* What another process has written until then. */
TEST(a_file_is_whole_at_any_moment) {
    char path[] = "/tmp/sluice-history.XXXXXX";
    struct history writer, reader;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(history_create(&writer, path, MOST));
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(history_read(&reader, path));
        assert_int_equal(reader.count, i);
        history_close(&reader);
        history_add(&writer, HISTORY_GIVEN, HISTORY_PUT, i, 0);
    }
    history_close(&writer);
    assert_int_equal(unlink(path), 0);
}
