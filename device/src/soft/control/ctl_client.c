/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* ctl_client.c - see soft/control.h. */
#define _GNU_SOURCE
#include "soft/control.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "soft/control/ctl.h"
#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/name_list.h"
#include "soft/ipc/own_user.h"
#include "soft/ipc/untrusted_fd.h"

struct search {
    pid_t pid;
    struct ucred *who;
    int result;
};

static bool look(const struct soft_listed_name *name, void *arg) {
    struct search *search = arg;
    int fd = soft_name_reach(name->text, search->who);
    if (fd < 0) {
        if (fd != -ECONNREFUSED) /* the listener is not known: it may be the one */
            search->result = fd;
        return true;
    }
    if (search->who->pid == search->pid) {
        search->result = fd;
        return false;
    }
    soft_untrusted_fd_close_socket(fd);
    return true;
}

/*
 * A process serves few clients at a time, and each look takes the place of one. So the other sockets are looked at only
 * where no name begins with that PID.
 */
int soft_ctl_connect(pid_t pid, struct ucred *who) {
    struct search search = {.pid = pid, .who = who, .result = -ECONNREFUSED};
    char likely[64];
    snprintf(likely, sizeof likely, SOFT_CTL_PREFIX "%d-", (int)pid);
    int rc = soft_name_scan(likely, look, &search);
    if (rc == 0 && search.result < 0) /* or a stranger's socket of such a name takes no more */
        rc = soft_name_scan(SOFT_CTL_PREFIX, look, &search);
    return rc != 0 ? rc : search.result;
}

bool soft_ctl_is_own(const struct ucred *who) {
    return soft_own_user(who->uid, who->pid);
}
