/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_head_start_test.c - an address whose host answers nothing delays a dial by 250 ms, not by its share of the time;
 * one whose host answers has its share, because a listener may have the request. Over TCP; the dialer's clock is the
 * test's. Beside the listener at 127.0.0.1 its port is taken at other addresses by plain sockets: with a full
 * queue the kernel swallows what comes, with room in it TCP answers, and no program reads.
 */
#include "support/dial.h"

#include <unistd.h>

static const uint64_t second = 1000000000, head_start = 250000000;

/* ---- sockets in a listener's place --------------------------------------------------------------------------- */

struct silent {
    int listener, fill[2];
};

static void address_of(struct pair *p, const char *host, struct sockaddr_in *out) {
    *out = (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)sluice_listener_port(p->listener))};
    assert_int_equal(inet_pton(AF_INET, host, &out->sin_addr), 1);
}

static void silent_open(struct silent *s, struct pair *p, const char *host, bool swallows) {
    struct sockaddr_in at;
    int one = 1;
    address_of(p, host, &at);
    *s = (struct silent){.fill = {-1, -1}};
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(s->listener >= 0);
    assert_int_equal(setsockopt(s->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(s->listener, swallows ? 0 : 8), 0);
    for (unsigned i = 0; swallows && i < 2; i++) { /* the first is in the queue, and it is full */
        s->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (i ? SOCK_NONBLOCK : 0), 0);
        assert_true(s->fill[i] >= 0);
        int rc = connect(s->fill[i], (struct sockaddr *)&at, sizeof at);
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

static int over_tcp(void **state) {
    static struct pair of_test;
    *state = &of_test;
    dialer_open(*state, PAIR_NODE(.soft_net = SLUICE_SOFT_NET_REQUIRE), PAIR_LINK());
    return 0;
}

/* Its request is on its way, and it has until `until`. */
static struct cm_conn *await_try(struct pair *p, unsigned tries, uint64_t until) {
    struct cm_conn *conn = &pair_session(&p->b)->connection.cm;
    pair_await(p, dialer.connects == tries && conn->owner.state == CM_CONNECTING);
    assert_int_equal(conn->step_ns, until);
    dialer.now_ns = until - 1;
    pair_expect_nothing(p, &p->b);
    assert_int_equal(dialer.connects, tries);
    dialer.now_ns = until;
    return conn;
}

PAIR_WITH(over_tcp, an_address_that_swallows_its_syn_delays_a_dial_by_a_quarter_of_a_second) {
    struct pair *p = *state;
    struct silent silent;
    silent_open(&silent, p, "127.0.0.2", true);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 8 * second));
    struct cm_conn *conn = await_try(p, 1, dialer.now_ns + head_start);
    pair_expect(p, &p->b, SLUICE_UP);
    pair_expect(p, &p->a, SLUICE_UP);
    /* That ended it, not the device, which waits for some seconds. */
    assert_non_null(strstr(conn->last.text, "no answer in its share of the time"));
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_string_equal(pair_info(p->b.session).peer, p->address);
    assert_int_equal(silent_count(&silent), 1); /* its own: the first try left nothing */
    pair_expect_nothing(p, &p->a);              /* and one dial is one session */
    silent_close(&silent);
}

/* It is slow, not silent: the listener may have the request, and a second one would be a second session. */
PAIR_WITH(over_tcp, a_host_that_answers_has_its_share_of_the_time) {
    struct pair *p = *state;
    struct silent silent;
    silent_open(&silent, p, "127.0.0.2", false);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    uint64_t start = dialer.now_ns;
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 8 * second));
    struct cm_conn *conn = &pair_session(&p->b)->connection.cm;
    pair_await(p, conn->owner.state == CM_CONNECTING && !soft_cm_request_unsent(conn->owner.id));
    await_try(p, 1, start + head_start);
    pair_await(p, conn->step_ns == start + 4 * second);
    await_try(p, 1, start + 4 * second);
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    silent_close(&silent);
}

/* A host may be farther away than a quarter of a second. */
PAIR_WITH(over_tcp, each_round_gives_a_silent_address_twice_the_time) {
    struct pair *p = *state;
    struct silent silent[2];
    silent_open(&silent[0], p, "127.0.0.2", true);
    silent_open(&silent[1], p, "127.0.0.3", true);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.3", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = SLUICE_OFF));
    unsigned tries = 0;
    for (unsigned round = 0; round < 3; round++) {
        struct cm_conn *conn;
        for (unsigned i = 0; i < 2; i++)
            conn = await_try(p, ++tries, dialer.now_ns + (head_start << round));
        pair_await(p, conn->owner.state == CM_BACKOFF);
        dialer.now_ns = conn->step_ns;
    }
    silent_close(&silent[0]);
    silent_close(&silent[1]);
}

/* A refusal is an answer: the next address is tried at once. */
PAIR_WITH(over_tcp, a_refusal_makes_the_next_address_begin_at_once) {
    struct pair *p = *state;
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
    pair_dial_name(p, "two.test", PAIR_LINK(.timeout_ns = 8 * second));
    pair_expect(p, &p->b, SLUICE_UP); /* the clock stands still */
    assert_int_equal(pair_info(p->b.session).tries, 2);
}
