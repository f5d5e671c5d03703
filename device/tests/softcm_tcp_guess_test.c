/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_tcp_guess_test.c - who guesses keys over TCP is slowed down, from however many addresses, and keeps nobody else
 * out. Most tests play hours of guessing on a clock of their own; each begins days after the one before, when all is
 * forgotten.
 */
#include "support/softcm_tcp.h"

#include <arpa/inet.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/tcp_guess.h"
#include "support/iwarp.h"
#include "support/rows.h"

#define SECOND 1000000000ull
#define WAIT_MOST (4 * SECOND)

/* ---- on a clock of their own --------------------------------------------------------------------------------- */

static uint64_t now;

static int days_later(void **state) {
    (void)state;
    now = (now > 0 ? now : soft_now_ns()) + 200000 * SECOND;
    return 0;
}

static struct soft_cm_tcp_origin four(uint32_t address) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
    return soft_cm_tcp_origin((struct sockaddr *)&in);
}

/* Of 2001:db8::/32: that /48, that /64 of it. */
static struct soft_cm_tcp_origin six(uint16_t prefix, uint16_t subnet) {
    struct sockaddr_in6 in = {.sin6_family = AF_INET6,
                              .sin6_addr.s6_addr = {0x20, 1, 0xd, 0xb8, (uint8_t)(prefix >> 8),
                                                    (uint8_t)prefix, (uint8_t)(subnet >> 8),
                                                    (uint8_t)subnet}};
    return soft_cm_tcp_origin((struct sockaddr *)&in);
}

static void guess_from(struct soft_cm_tcp_origin from, unsigned times) {
    for (unsigned i = 0; i < times; i++)
        soft_cm_tcp_guessed(from, now);
}

static bool waits(struct soft_cm_tcp_origin from) {
    uint64_t wait;
    return !soft_cm_tcp_guess_wait(from, now, &wait) || wait > 0;
}

struct crowd {
    bool ipv6;
    unsigned prefixes, addresses; /* of each */
    unsigned first;               /* guesses that are free */
    unsigned second;              /* then so many a second at most */
    unsigned waiting;             /* that honest dialers may wait for, in seconds */
};

static struct soft_cm_tcp_origin member(const struct crowd *c, unsigned i) {
    unsigned prefix = i % c->prefixes, address = i / c->prefixes % c->addresses;
    return c->ipv6 ? six((uint16_t)prefix, (uint16_t)address)
                   : four((uint32_t)(10u << 24) + (prefix << 8) + address);
}

/* An hour of dials, ten a second, each with a wrong key as soon as it is taken. */
static void has_so_many_guesses(void **state) {
    const struct crowd *c = *state;
    enum { HOUR = 3600, WAITING = 4 }; /* in seconds; what waits counts as taken */
    unsigned taken = 0;
    for (unsigned i = 0; i < 10 * HOUR; i++, now += SECOND / 10) {
        uint64_t wait;
        if (!soft_cm_tcp_guess_wait(member(c, i), now, &wait))
            continue;
        assert_true(wait <= WAIT_MOST);
        soft_cm_tcp_guessed(member(c, i), now);
        taken++;
    }
    assert_in_range(taken, c->first, c->first + c->second * (HOUR + WAITING));
}

/* Each second an honest dialer, from a prefix of which no wrong key came, or from one of theirs; when theirs are all known. */
static void is_in_nobodys_way(void **state) {
    const struct crowd *c = *state;
    for (unsigned i = 0; i < 10 * 600; i++, now += SECOND / 10) {
        uint64_t wait;
        if (soft_cm_tcp_guess_wait(member(c, i), now, &wait))
            soft_cm_tcp_guessed(member(c, i), now);
        if (i % 10 != 0 || i < 10 * 60)
            continue;
        struct soft_cm_tcp_origin honest =
            c->waiting == 0 ? four(0xc0000200u + i / 10 * 256) : four((10u << 24) + 254);
        assert_true(soft_cm_tcp_guess_wait(honest, now, &wait));
        assert_true(wait <= c->waiting * SECOND);
    }
}

/* ---- what is counted, and for how long ----------------------------------------------------------------------- */

#define LATER(name) TEST_WITH(days_later, NULL, name)

LATER(one_address_slows_itself_and_not_its_neighbours) {
    guess_from(four(0x0a000001), 15);
    assert_false(waits(four(0x0a000001)));
    guess_from(four(0x0a000001), 10000);
    assert_false(waits(four(0x0a000001))); /* the first of a second */
    assert_true(waits(four(0x0a000001)));
    for (unsigned i = 0; i < 100; i++)
        assert_false(waits(four(0x0a000002)));
}

LATER(one_prefix_slows_itself_and_not_the_rest) {
    for (uint16_t i = 0; i < 1000; i++)
        guess_from(six(1, i), 1);
    assert_false(waits(six(1, 5000)));
    assert_true(waits(six(1, 5001)));
    for (unsigned i = 0; i < 100; i++)
        assert_false(waits(six(2, 5000)));
}

LATER(who_guessed_does_not_delay_neighbours_who_did_not) {
    for (uint16_t i = 0; i < 40; i++)
        guess_from(six(1, i), 1);
    for (unsigned i = 0; i < 100; i++)
        (void)waits(six(1, 1));
    assert_false(waits(six(1, 5000)));
}

LATER(sixteen_strangers_come_at_once_beside_a_thousand_who_guess) {
    for (uint16_t i = 0; i < 1000; i++)
        guess_from(six(i, 0), 1);
    for (uint16_t i = 0; i < 16; i++)
        assert_false(waits(six((uint16_t)(2000 + i), 0)));
    assert_true(waits(six(3000, 0)));
}

/* Ten minutes, or a second for each. */
LATER(many_wrong_keys_are_remembered_for_as_many_seconds) {
    for (uint16_t i = 0; i < 1000; i++)
        guess_from(six(i, 0), 10);
    now += 9999 * SECOND;
    for (unsigned i = 0; i < 16; i++)
        assert_false(waits(six(2000, 0)));
    assert_true(waits(six(2000, 0)));
    now += 2 * SECOND;
    for (unsigned i = 0; i < 100; i++)
        assert_false(waits(six(2000, 0)));
}

LATER(few_wrong_keys_are_remembered_for_ten_minutes) {
    guess_from(four(0x0a000001), 16);
    now += 599 * SECOND;
    assert_false(waits(four(0x0a000001)));
    assert_true(waits(four(0x0a000001)));
    now += 2 * SECOND;
    assert_false(waits(four(0x0a000001)));
    assert_false(waits(four(0x0a000001)));
}

/* ---- over sockets -------------------------------------------------------------------------------------------- */

struct server {
    struct ct_pair cm;
    struct sv_end end;
};

static int dial(const struct server *s, const char *from) {
    uint8_t request[IWARP_HANDSHAKE_MAX];
    int fd = plain_dial_from(from, s->cm.port);
    (void)!send(fd, request, plain_request(request, true), MSG_NOSIGNAL);
    return fd;
}

static unsigned
    guesses; /* in all tests over sockets, each from an address with less than sixteen */

struct guess {
    const char *from;
    size_t bytes; /* of a frame of 60; then the stream ends. 0: all */
};

/* A connection, from the request to a WRITE with a key that nobody has, which ends it. */
static void guess(struct server *s, const struct guess *g) {
    static const uint8_t payload[40];
    struct iwarp_handshake_parser parser;
    struct iwarp_ddp ddp = {.opcode = IWARP_WRITE, .last = true, .stag = 0x12345600 + ++guesses};
    uint8_t frame[256];
    int error, fd = dial(s, g->from);
    softcm_tcp_open(&s->end);
    struct rdma_cm_id *id = ct_request(s->cm.passive_channel);
    softcm_tcp_move(id, &s->end);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.qp_num = s->end.qp->qp_num;
    assert_int_equal(soft_accept(id, &param), 0);
    (void)plain_handshake(fd, true, &parser);
    size_t bytes = iwarp_frame(frame, &ddp, payload, sizeof payload);
    plain_send(fd, frame, g->bytes ? g->bytes : bytes, 0);
    if (g->bytes)
        shutdown(fd, SHUT_WR);
    while (plain_receive(fd, frame, 1, &error) == 1)
        continue;
    assert_int_equal(soft_destroy_id(id), 0);
    sv_close(&s->end);
    close(fd);
}

/* Its request is heard, after so many nanoseconds since then at least. */
static void expect_heard(const struct server *s, uint64_t begun, uint64_t after) {
    struct rdma_cm_id *id = ct_request(s->cm.passive_channel);
    assert_true(soft_now_ns() - begun >= after);
    assert_int_equal(soft_destroy_id(id), 0);
}

/* After sixteen wrong keys connections from there are taken one a second, and only a few may wait. */
static void who_guesses_keys_is_slowed_down(void **state) {
    enum { MORE = 9 };
    const struct guess *g = *state;
    struct server s;
    int fd[MORE];
    ct_pair_listen(&s.cm);
    for (uint32_t i = 0; i < 16; i++)
        guess(&s, g);
    uint64_t begun = soft_now_ns();
    for (unsigned i = 0; i < MORE; i++)
        fd[i] = dial(&s, g->from);
    plain_expect_end(fd[MORE - 1]);
    expect_heard(&s, begun, 0);
    expect_heard(&s, begun, SECOND);
    for (unsigned i = 0; i < MORE; i++)
        close(fd[i]);
    ct_pair_free(&s.cm);
}

/* Each address guesses once. Then those of them wait for each other, and who comes from elsewhere does not. */
static void who_guesses_keys_from_many_addresses_is_slowed_down(void **state) {
    enum { MORE = 6 };
    struct server s;
    char from[MORE][20];
    int fd[MORE];
    (void)state;
    ct_pair_listen(&s.cm);
    for (unsigned i = 0; i < MORE || guesses < 64; i++) {
        char address[20];
        snprintf(address, sizeof address, "127.2.%u.1", i);
        if (i < MORE)
            snprintf(from[i], sizeof from[i], "%s", address);
        guess(&s, &(struct guess){.from = address});
    }
    uint64_t begun = soft_now_ns();
    for (unsigned i = 0; i < MORE; i++)
        fd[i] = dial(&s, from[i]);
    plain_expect_end(fd[MORE - 1]); /* one at once, four that wait */
    int honest = dial(&s, "127.3.0.1");
    expect_heard(&s, begun, 0);
    expect_heard(&s, begun, 0);
    expect_heard(&s, begun, SECOND);
    close(honest);
    for (unsigned i = 0; i < MORE; i++)
        close(fd[i]);
    ct_pair_free(&s.cm);
}

#define CROWD(name, fn, ...) ROW_WITH(days_later, NULL, name, fn, crowd, __VA_ARGS__)
#define GUESSES(name, ...) CROWD(name, has_so_many_guesses, __VA_ARGS__)
#define SLOWED(name, ...) ROW(name, who_guesses_keys_is_slowed_down, guess, __VA_ARGS__)
#define BESIDE(name, ...) CROWD(name, is_in_nobodys_way, __VA_ARGS__)

TEST_CASES(GUESSES(one_address, false, 1, 1, .first = 16, .second = 1),
           GUESSES(a_prefix, false, 1, 256, .first = 32, .second = 2),
           GUESSES(a_prefix_of_ipv6, true, 1, 65535, .first = 32, .second = 2),
           GUESSES(a_hundred_prefixes, false, 100, 1, .first = 64, .second = 4),
           GUESSES(thousands_of_addresses, false, 100, 100, .first = 64, .second = 4),
           GUESSES(more_than_have_a_place, true, 60000, 1, .first = 80, .second = 4),
           GUESSES(more_than_have_a_place_in_ipv4, false, 60000, 250, .first = 80, .second = 4),
           BESIDE(one_address_beside_honest_ones, false, 1, 1, .waiting = 0),
           BESIDE(a_prefix_beside_honest_ones, false, 1, 250, .waiting = 0),
           BESIDE(many_prefixes_beside_honest_ones, false, 100, 100, .waiting = 0),
           BESIDE(a_prefix_beside_its_own_honest_ones, false, 1, 16, .waiting = 4),
           SLOWED(with_a_whole_frame, .from = "127.1.1.1"),
           SLOWED(with_a_part_of_a_frame, .from = "127.1.3.1", .bytes = 40),
           {"with_many_addresses", who_guesses_keys_from_many_addresses_is_slowed_down, NULL, NULL,
            NULL});

int main(void) {
    return tests_run(softcm_tcp_setup, NULL);
}
