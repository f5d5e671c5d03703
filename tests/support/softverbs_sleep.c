/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs_sleep.c - see softverbs_sleep.h. */
#include "support/softverbs_sleep.h"

#include <sys/epoll.h>

#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/object/cq.h"

const struct tcp_options sleep_options = {
    .o = {.channel = true, .one_cq = true}, .crc = true, .extended = true};
struct tcp_pair sleep_pair;

bool sleep_end_may(struct sv_end *e, enum sleep_way way, int *fd) {
    int fds[2];
    bool may = soft_sleep_begin(e->rcq, false, fds);
    must(!may || (fds[way] >= 0 && fds[!way] == -1));
    *fd = fds[way];
    return may;
}

bool sleep_may(enum sleep_way way, int *fd) {
    return sleep_end_may(&sleep_pair.b, way, fd);
}

bool sleep_has_bell(struct sv_end *e, const struct sv_end *other) {
    int fd;
    if (sleep_end_may(e, SLEEP_ON_BELLS, &fd))
        (void)soft_sleep_end(e->rcq);
    soft_lock();
    bool given = ld(soft_qp_of(e->qp)->bell_in) && soft_qp_of(other->qp)->bell_out;
    soft_unlock();
    return given;
}

int sleep_open(void **state) {
    must_end_process = true;
    if (*(enum sleep_way *)*state == SLEEP_ON_SOCKETS) {
        tcp_open(&sleep_pair, &sleep_options);
        return 0;
    }
    sv_pair(&sleep_pair.a, sleep_options.o, &sleep_pair.b, sleep_options.o);
    sv_wait_linked(&sleep_pair.a);
    sv_until(sleep_has_bell(&sleep_pair.b, &sleep_pair.a));
    return 0;
}

int sleep_shut(void **state) {
    if (*(enum sleep_way *)*state == SLEEP_ON_SOCKETS)
        tcp_close(&sleep_pair);
    else
        sv_unpair(&sleep_pair.a, &sleep_pair.b);
    return 0;
}

static void nap(struct sleeper *s) {
    struct epoll_event events[2];
    atomic_fetch_add(&s->naps, 1);
    int n = epoll_wait(s->epoll_fd, events, 2, 20000);
    must(n > 0);
    for (int i = 0; i < n; i++)
        if (events[i].data.ptr == s->e->channel) {
            s->told = true;
            sv_cq_event(s->e->channel);
        }
}

void sleep_until_completion(struct sleeper *s) {
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET, .data.ptr = &s->set};
    for (bool done = false; !done;) {
        int fd;
        must(sleep_end_may(s->e, s->way, &fd) && (s->set == -1 || s->set == fd));
        if (s->set < 0)
            must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &edge) == 0);
        s->set = fd;
        must(ibv_req_notify_cq(s->e->rcq, 0) == 0);
        done = ibv_poll_cq(s->e->rcq, 1, &s->wc) == 1;
        if (!done && !soft_sleep_unfinished(s->e->rcq))
            nap(s);
        (void)soft_sleep_end(s->e->rcq);
        done = done || ibv_poll_cq(s->e->rcq, 1, &s->wc) == 1;
    }
}

void sleeper_open(struct sleeper *s, struct sv_end *e, enum sleep_way way) {
    *s = (struct sleeper){.way = way, .e = e, .epoll_fd = epoll_create1(EPOLL_CLOEXEC), .set = -1};
    struct epoll_event in = {.events = EPOLLIN, .data.ptr = e->channel};
    must(epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, e->channel->fd, &in) == 0);
}

static void *sleeps_once(void *arg) {
    struct sleeper *s = arg;
    sleep_until_completion(s);
    close(s->epoll_fd);
    atomic_store(&s->over, true);
    return NULL;
}

void sleeper_start(struct sleeper *s, void **state) {
    sleeper_open(s, &sleep_pair.b, *(enum sleep_way *)*state);
    must(pthread_create(&s->thread, NULL, sleeps_once, s) == 0);
    sv_until(atomic_load(&s->naps) > 0);
}

/* The peer's end is polled meanwhile: its engine has no more work than the sleeper's. */
static bool is_over(struct sleeper *s) {
    struct ibv_wc wc;
    (void)ibv_poll_cq(sleep_pair.a.scq, 1, &wc);
    return atomic_load(&s->over);
}

void sleeper_join(struct sleeper *s) {
    sv_until(is_over(s));
    pthread_join(s->thread, NULL);
}

uint32_t sleep_armed_word(void) {
    return atomic_load(&soft_shm_page->cq[soft_cq_of(sleep_pair.b.rcq)->shm_index].armed);
}
