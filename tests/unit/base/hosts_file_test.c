/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * hosts_file_test.c - what a file like /etc/hosts has for a name: hosts(5), and what a file may have that is no line of it.
 */
#include "support/test.h"
#include "support/rows.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/address.h"
#include "base/hosts_file.h"

enum { FOUND_MAX = 3 };

struct hosts {
    const char *text;
    size_t comment; /* a comment of so many bytes in front of a text that is in its last bytes */
    const char *host;
    const char *found[FOUND_MAX + 1];
};

static void is_found(void **state) {
    const struct hosts *row = *state;
    struct sockaddr_storage found[FOUND_MAX];
    char path[] = "/tmp/sluice-hosts-XXXXXX", text[64];
    unsigned count = 99, expected = 0;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    FILE *file = fdopen(fd, "w");
    assert_non_null(file);
    if (row->comment)
        fprintf(file, "#%*s", (int)row->comment, "");
    assert_true(fputs(row->text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    int status = hosts_file_find(path, row->host, found, FOUND_MAX, &count);
    assert_int_equal(unlink(path), 0);
    for (; row->found[expected]; expected++) {
        if (expected >= count)
            fail_msg("%s is missing", row->found[expected]);
        address_format((const struct sockaddr *)(const void *)&found[expected], text);
        assert_string_equal(text, row->found[expected]);
    }
    assert_int_equal(count, expected);
    assert_int_equal(status, expected ? 0 : EAI_NONAME);
}

TEST(a_file_that_cannot_be_read_says_why) {
    struct sockaddr_storage found[FOUND_MAX];
    unsigned count = 99;
    assert_int_equal(hosts_file_find("/nowhere/hosts", "a", found, FOUND_MAX, &count), EAI_SYSTEM);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(count, 0);
}

#define HOSTS(name, ...) ROW(name, is_found, hosts, __VA_ARGS__)

TEST_CASES(HOSTS(a_name_is_found, .text = "192.0.2.1 one\n192.0.2.2 two\n", .host = "two",
                 .found = {"192.0.2.2:0"}),
           HOSTS(an_alias_is_found, .text = "192.0.2.1\tone uno \t eins\n", .host = "eins",
                 .found = {"192.0.2.1:0"}),
           HOSTS(in_any_case_of_letters, .text = "192.0.2.1 One.Example\n", .host = "oNE.exAMPLE",
                 .found = {"192.0.2.1:0"}),
           HOSTS(not_a_part_of_a_name, .text = "192.0.2.1 one.example\n", .host = "one"),
           HOSTS(not_an_address, .text = "192.0.2.1 one\n", .host = "192.0.2.1"),
           HOSTS(all_lines_in_their_order, .text = "::1 a\n192.0.2.1 b\n192.0.2.2 a\n", .host = "a",
                 .found = {"[::1]:0", "192.0.2.2:0"}),
           HOSTS(as_many_as_there_is_room_for, .text = "::1 a\n::2 a\n::3 a\n::4 a\n", .host = "a",
                 .found = {"[::1]:0", "[::2]:0", "[::3]:0"}),
           HOSTS(an_interface_of_an_address, .text = "fe80::1%lo a\n", .host = "a",
                 .found = {"[fe80::1%lo]:0"}),
           HOSTS(no_interface_no_address, .text = "fe80::1%none-such a\n::1 a\n", .host = "a",
                 .found = {"[::1]:0"}),
           HOSTS(comments_are_none, .text = "# 192.0.2.1 a\n192.0.2.2 b # a\n192.0.2.3#a\n",
                 .host = "a"),
           HOSTS(what_is_no_address_is_passed_over,
                 .text = "a a\n\n \n192.0.2.1\n192.0.2 a\n::2 a\n", .host = "a",
                 .found = {"[::2]:0"}),
           HOSTS(spaces_in_front_and_other_ends, .text = "  192.0.2.1 a\r\n\t192.0.2.2 a",
                 .host = "a", .found = {"192.0.2.1:0", "192.0.2.2:0"}),
           HOSTS(a_line_that_is_too_long_is_passed_over, .comment = 5000, .text = "\n192.0.2.1 a\n",
                 .host = "a", .found = {"192.0.2.1:0"}),
           HOSTS(no_part_of_it_is_a_line, .comment = 4094, .text = "192.0.2.1 a\n192.0.2.2 a\n",
                 .host = "a", .found = {"192.0.2.2:0"}));
