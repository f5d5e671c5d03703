/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * token.c - see token.h. A thread may be cancelled behind the system call, too, before the C library has disabled that again:
 * the memory that the token went to tells.
 */
#include "soft/ipc/token.h"

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

#include "common/uncancelled.h"

struct taking {
    int fd;
    volatile uint64_t token;
};

static void give_back(void *arg) {
    const struct taking *taking = arg;
    uint64_t one = 1;
    if (taking->token != 0)
        while (write(taking->fd, &one, sizeof one) < 0 && errno == EINTR)
            ;
}

bool soft_token_take(int fd, int cancel_state) {
    struct taking taking = {.fd = fd};
    ssize_t got;
    pthread_cleanup_push(give_back, &taking);
    pthread_setcancelstate(cancel_state, NULL);
    got = read(fd, (void *)(uintptr_t)&taking.token, sizeof taking.token);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    pthread_cleanup_pop(0);
    if (got >= 0 && got != (ssize_t)sizeof taking.token)
        errno = ENODATA;
    return got == (ssize_t)sizeof taking.token;
}
