/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softsettings_test.c - a variable of the environment that says what it does not know: a program on the drop-in, which
 * opens no node, gets no device and no event channel, and its user the reason once.
 */
#include "support/softcm.h"
#include "support/softverbs.h"

#include "support/rows.h"

struct variable {
    const char *name, *text, *sentence;
};

static const struct variable *tried;

static void open_all(int fd) {
    must(dup2(fd, 2) == 2);
    setenv(tried->name, tried->text, 1);
    for (int i = 0; i < 2; i++) {
        int count = -1;
        struct rdma_cm_id *id = NULL;
        errno = 0;
        must(!soft_get_device_list(&count) && errno == EINVAL);
        errno = 0;
        must(!soft_create_event_channel() && errno == EINVAL);
        errno = 0;
        must(soft_create_id(NULL, &id, NULL, RDMA_PS_TCP) == -1 && errno == EINVAL);
    }
    unsetenv(tried->name);
    struct ibv_device **list = soft_get_device_list(NULL);
    must(list && list[0]);
    soft_free_device_list(list);
}

static void is_refused_and_said_once(void **state) {
    tried = *state;
    struct sv_child child = sv_fork(open_all);
    char text[1024];
    size_t at = 0;
    ssize_t got;
    while ((got = read(child.fd, text + at, sizeof text - 1 - at)) > 0)
        at += (size_t)got;
    text[at] = '\0';
    assert_int_equal(sv_join(&child), 0);
    assert_string_equal(text, tried->sentence);
}

#define VARIABLE(row, ...) ROW(row, is_refused_and_said_once, variable, __VA_ARGS__)

TEST_CASES(VARIABLE(the_network, "SLUICE_SOFT_NET", "of",
                    "sluice: SLUICE_SOFT_NET: 'of' is none of off, on, require\n"),
           VARIABLE(check_values, "SLUICE_SOFT_CRC", "none",
                    "sluice: SLUICE_SOFT_CRC: 'none' is none of off, on\n"),
           VARIABLE(the_order, "SLUICE_SOFT_ORDER", "strict",
                    "sluice: SLUICE_SOFT_ORDER: 'strict' is none of off, all\n"),
           VARIABLE(a_time, "SLUICE_SOFT_CM_TIMEOUT_MS", "4s",
                    "sluice: SLUICE_SOFT_CM_TIMEOUT_MS: '4s' is no number from 10 to 600000\n"));
