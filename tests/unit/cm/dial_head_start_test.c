/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_head_start_test.c - an address whose host answers nothing delays a dial by 250 ms, not by its share of the time;
 * one whose host answers has its share, because a listener may have the request. Over TCP; the dialer's clock is the
 * test's. Beside the listener at 127.0.0.1 its port is taken at other addresses by plain sockets: with a full
 * queue the kernel swallows what comes, with room in it TCP answers, and no program reads.
 */
#include "support/race.h"

static const uint64_t second = 1000000000, head_start = 250000000;

/* ---- sockets in a listener's place --------------------------------------------------------------------------- */

struct silent {
    int listener, fill[2];
};

static socklen_t address_of(struct pair *p, const char *host, union address *out) {
    uint16_t port = htons((uint16_t)sluice_listener_port(p->listener));
    bool six = strchr(host, ':') != NULL;
    memset(out, 0, sizeof *out);
    out->any.sa_family = six ? AF_INET6 : AF_INET;
    out->v4.sin_port = port; /* the same place in both families */
    assert_int_equal(inet_pton(out->any.sa_family, host,
                               six ? (void *)&out->v6.sin6_addr : (void *)&out->v4.sin_addr),
                     1);
    return six ? sizeof out->v6 : sizeof out->v4;
}

static int stream(const union address *at, int flags) {
    int one = 1, fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    return fd;
}

static void silent_open(struct silent *s, struct pair *p, const char *host, bool swallows) {
    union address at;
    socklen_t bytes = address_of(p, host, &at);
    *s = (struct silent){.fill = {-1, -1}};
    s->listener = stream(&at, SOCK_NONBLOCK);
    assert_int_equal(bind(s->listener, &at.any, bytes), 0);
    assert_int_equal(listen(s->listener, swallows ? 0 : 8), 0);
    for (unsigned i = 0; swallows && i < 2; i++) { /* the first is in the queue, and it is full */
        s->fill[i] = stream(&at, i ? SOCK_NONBLOCK : 0);
        int rc = connect(s->fill[i], &at.any, bytes);
        assert_int_equal(rc, i ? -1 : 0);
    }
}

static void silent_close(struct silent *s) {
    close(s->listener);
    for (unsigned i = 0; i < 2; i++)
        if (s->fill[i] >= 0)
            close(s->fill[i]);
}

/* How many connections came, each of which is ended. */
static unsigned silent_count(struct silent *s) {
    unsigned count = 0;
    for (int fd; (fd = accept(s->listener, NULL, NULL)) >= 0; count++)
        close(fd);
    return count;
}

/* ---- the dialer ---------------------------------------------------------------------------------------------- */

/* So many tries were begun, and the last has until `until` before the next one begins. */
static void await_head_start(struct pair *p, unsigned tries, uint64_t until) {
    struct cm_conn *conn = race_conn(p);
    pair_await(p, dialer.tries == tries && conn->owner.state == CM_RESOLVING_ROUTE);
    assert_int_equal(conn->step_ns, until);
    dialer.now_ns = until - 1;
    pair_expect_nothing(p, &p->b);
    assert_int_equal(dialer.tries, tries);
    assert_int_equal(dialer.connects, 0);
    dialer.now_ns = until;
}

static void swallows(struct pair *p, const char *host) {
    struct silent silent;
    silent_open(&silent, p, host, true);
    dialer_names((const char *[]){host, "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 8 * second));
    await_head_start(p, 1, dialer.now_ns + head_start);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    race_expect_one_session(p);
    assert_int_equal(silent_count(&silent), 1); /* its own: the first try left nothing */
    silent_close(&silent);
}

PAIR_WITH(race_opened, an_address_that_swallows_its_syn_delays_a_dial_by_a_quarter_of_a_second) {
    swallows(*state, "127.0.0.2");
}

PAIR_WITH(race_opened, also_one_of_ipv6) {
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        close(fd);
    if (!has)
        skip(); /* a host without IPv6 */
    swallows(*state, "::1");
}

PAIR_WITH(race_opened, two_that_swallow_delay_it_by_two_quarters) {
    struct pair *p = *state;
    struct silent silent[2];
    silent_open(&silent[0], p, "127.0.0.2", true);
    silent_open(&silent[1], p, "127.0.0.3", true);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", "127.0.0.1", NULL});
    uint64_t start = dialer.now_ns;
    pair_dial_name(p, "three.test", PAIR_LINK(.timeout_ns = 8 * second));
    await_head_start(p, 1, start + head_start);
    await_head_start(p, 2, start + 2 * head_start);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 3);
    race_expect_one_session(p);
    silent_close(&silent[0]);
    silent_close(&silent[1]);
}

/* Its host has answered, so the listener may have the request: a second one would be a second session. */
PAIR_WITH(race_opened, a_host_that_answers_has_its_share_of_the_time) {
    struct pair *p = *state;
    struct silent silent;
    silent_open(&silent, p, "127.0.0.2", false);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    uint64_t start = dialer.now_ns;
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 8 * second));
    struct cm_conn *conn = race_conn(p);
    pair_await(p, conn->owner.state == CM_CONNECTING);
    assert_int_equal(conn->step_ns, start + 4 * second);
    dialer.now_ns = start + 4 * second - 1;
    pair_expect_nothing(p, &p->b);
    assert_int_equal(dialer.tries, 1);
    dialer.now_ns++;
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_int_equal(dialer.connects, 2);
    silent_close(&silent);
}

/* A refusal is an answer: the next address is tried at once. */
PAIR_WITH(race_opened, a_refusal_makes_the_next_address_begin_at_once) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 8 * second));
    pair_expect(p, &p->b, SLUICE_UP); /* the clock stands still */
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_int_equal(dialer.connects, 1); /* there was no listener to send a request to */
}

/* Also one that has less than that in all. */
PAIR_WITH(race_opened, a_short_time_is_shared) {
    struct pair *p = *state;
    struct silent silent;
    silent_open(&silent, p, "127.0.0.2", true);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = second / 5));
    await_head_start(p, 1, dialer.now_ns + second / 10);
    pair_expect(p, &p->b, SLUICE_UP);
    silent_close(&silent);
}
