/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_tcp_crowd_test.c - how many connections a listener's TCP port has before it knows what they are: those that say
 * nothing, and those whose request has no room. They are bounded, and the bound meets who makes many.
 */
#include "support/softcm_tcp.h"

#include <arpa/inet.h>

#include "soft/iwarp/tcp_guess.h"
#include "support/must.h"
#include "support/rows.h"
#include "support/usage.h"

#define MOST 64u /* of each kind, of one listener */
#define OTHER "127.0.0.2"

static void ask(int fd) {
    uint8_t request[IWARP_HANDSHAKE_MAX];
    plain_send(fd, request, plain_request(request, true), 0);
}

/* The first of these to end. */
static unsigned first_end(const int *fd, unsigned count) {
    struct pollfd all[MOST + 2];
    must(count <= MOST + 2);
    for (unsigned i = 0; i < count; i++)
        all[i] = (struct pollfd){.fd = fd[i], .events = POLLIN};
    assert_true(poll(all, count, SOFTCM_WAIT_MS) > 0);
    unsigned i = 0;
    while (all[i].revents == 0)
        i++;
    return i;
}

/*
 * The one that came first is of another address, and stays: with one more than there may be, the oldest of the address that has
 * most goes, long before its time for a request is over.
 */
TEST(of_too_many_that_say_nothing_the_oldest_of_the_address_that_has_most_goes) {
    struct ct_pair pair;
    int fd[MOST + 1];
    ct_pair_listen(&pair);
    fd[0] = plain_dial_from(OTHER, pair.port);
    for (unsigned i = 1; i < MOST + 1; i++)
        fd[i] = plain_dial(pair.port);
    assert_int_equal(first_end(fd, MOST + 1), 1);
    plain_expect_end(fd[1]);
    ask(fd[0]);
    assert_int_equal(soft_destroy_id(ct_request(pair.passive_channel)), 0);
    for (unsigned i = 0; i < MOST + 1; i++)
        close(fd[i]);
    ct_pair_free(&pair);
}

/*
 * The engine is told of one too many first, and then of the oldest one's request, which is there by then: that one is taken, and
 * so there is room.
 */
TEST(one_whose_request_has_come_does_not_go) {
    struct ct_pair pair;
    struct pollfd all[MOST + 1];
    ct_pair_listen(&pair);
    unsigned before = usage_entries("/proc/self/fd");
    for (unsigned i = 0; i < MOST; i++)
        all[i] = (struct pollfd){.fd = plain_dial(pair.port), .events = POLLIN};
    softcm_until(usage_entries("/proc/self/fd") == before + 2 * MOST); /* both ends */
    soft_lock();
    all[MOST] = (struct pollfd){.fd = plain_dial(pair.port), .events = POLLIN};
    ask(all[0].fd);
    soft_unlock();
    struct rdma_cm_id *id = ct_request(pair.passive_channel);
    assert_int_equal(poll(all, MOST + 1, 0), 0); /* none has ended */
    assert_int_equal(soft_destroy_id(id), 0);
    for (unsigned i = 0; i < MOST + 1; i++)
        close(all[i].fd);
    ct_pair_free(&pair);
}

/* No more than may be are there, and one that says nothing for five seconds goes for that alone. */
TEST(who_says_nothing_has_five_seconds) {
    struct ct_pair pair;
    ct_pair_listen(&pair);
    uint64_t begun = soft_now_ns();
    int fd = plain_dial(pair.port);
    plain_expect_end(fd); /* in twenty, or recv() fails otherwise */
    assert_true(soft_now_ns() - begun >= 5000000000u);
    close(fd);
    ct_pair_free(&pair);
}

/* The engine has had its turn, and several more: another listener's dialer was heard. */
static void engine_turns(const struct ct_pair *other) {
    for (unsigned i = 0; i < 100; i++) {
        int fd = plain_dial(other->port);
        ask(fd);
        assert_int_equal(soft_destroy_id(ct_request(other->passive_channel)), 0);
        close(fd);
    }
}

/*
 * Requests that find no room in the backlog wait: so many of them, and as many that were taken before all of these were
 * read. What is dialed besides is not taken: it has no descriptor here. When there is room all of them come.
 */
TEST(of_those_that_wait_for_room_no_more_are_taken_than_may_be) {
    enum { BACKLOG = 2, MORE = 2 * MOST, ALL = BACKLOG + MOST + MORE };
    struct ct_pair other;
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *listener = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", 0);
    int fd[ALL];
    ct_pair_listen(&other);
    assert_int_equal(soft_bind_addr(listener, (struct sockaddr *)&addr), 0);
    assert_int_equal(soft_listen(listener, BACKLOG), 0);
    uint16_t port = ntohs(soft_get_src_port(listener));
    unsigned before = usage_entries("/proc/self/fd");
    for (unsigned i = 0; i < ALL; i++) {
        fd[i] = plain_dial(port);
        ask(fd[i]);
    }
    softcm_until(usage_entries("/proc/self/fd") >= before + ALL + MOST);
    engine_turns(&other);
    assert_in_range(usage_entries("/proc/self/fd") - before - ALL, MOST, BACKLOG + 2 * MOST);
    for (unsigned i = 0; i < ALL; i++)
        assert_int_equal(soft_destroy_id(ct_request(channel)), 0);
    for (unsigned i = 0; i < ALL; i++)
        close(fd[i]);
    assert_int_equal(soft_destroy_id(listener), 0);
    soft_destroy_event_channel(channel);
    ct_pair_free(&other);
}

struct two {
    int family;
    const char *one, *other;
    bool same;
};

/* Which addresses count as one: one host may have all those of IPv6 that begin alike. */
static void are_told_apart(void **state) {
    const struct two *two = *state;
    struct sockaddr_storage addr[2] = {{0}};
    const char *text[] = {two->one, two->other};
    for (unsigned i = 0; i < 2; i++) {
        addr[i].ss_family = (sa_family_t)two->family;
        void *at = two->family == AF_INET
                       ? (void *)&((struct sockaddr_in *)(void *)&addr[i])->sin_addr
                       : (void *)&((struct sockaddr_in6 *)(void *)&addr[i])->sin6_addr;
        assert_int_equal(inet_pton(two->family, text[i], at), 1);
    }
    assert_int_equal(soft_cm_tcp_same_origin(soft_cm_tcp_origin((struct sockaddr *)&addr[0]),
                                             soft_cm_tcp_origin((struct sockaddr *)&addr[1])),
                     two->same);
}

#define TWO(name, ...) ROW(name, are_told_apart, two, __VA_ARGS__)

TEST_CASES(TWO(addresses_of_ipv4, AF_INET, "192.0.2.1", "192.0.2.2", false),
           TWO(one_of_ipv6_by_its_first_half, AF_INET6, "2001:db8::1", "2001:db8::ffff:2", true),
           TWO(and_by_no_less, AF_INET6, "2001:db8::1", "2001:db8:0:1::1", false));

int main(void) {
    return tests_run(softcm_tcp_setup, NULL);
}
