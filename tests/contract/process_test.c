/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * process_test.c - what the survivor is told when the process at the other end dies, in every state
 * of a connection. The other end is this program, started again with a role; it says when it has
 * come to its state, and is then killed.
 */
#include "contract/contract.h"

#include <signal.h>
#include <sys/wait.h>

/* ---- the other end ----------------------------------------------------------------------------------------- */

static void say(unsigned value) {
    char line[16];
    int n = snprintf(line, sizeof line, "%u\n", value);
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(3);
}

static _Noreturn void wait_for_the_end(void) {
    for (;;)
        pause(); /* the watchdog's alarm is the limit */
}

static _Noreturn void as_client(const char *role, uint16_t port) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_connect(channel, port);
    if (!strcmp(role, "asks"))
        say(1);
    assert_true(ct_readable(channel, facts.wait_ms));
    if (!strcmp(role, "has-reply"))
        say(1);
    if (!strcmp(role, "connects") || !strcmp(role, "closes-channel")) {
        ct_take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
        assert_int_equal(rdma_establish(id), 0);
        say(1);
    }
    if (!strcmp(role, "closes-channel"))
        rdma_destroy_event_channel(channel); /* and its id with it, as far as the peer sees */
    wait_for_the_end();
}

static _Noreturn void as_server(const char *role) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *listener = ct_id(channel);
    say(ct_listen(listener, 4));
    assert_true(ct_readable(channel, facts.wait_ms));
    if (!strcmp(role, "hears")) {
        say(1);
        wait_for_the_end();
    }
    struct rdma_cm_id *id = ct_request(channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    if (!strcmp(role, "accepts"))
        assert_int_equal(rdma_accept(id, &param), 0);
    say(1); /* "fetches": that is all */
    wait_for_the_end();
}

/* ---- this end ------------------------------------------------------------------------------------------------ */

struct peer {
    pid_t pid;
    int fd;
};

/* The next number that the peer says. */
static unsigned heard(struct peer *peer) {
    char line[16] = "";
    struct pollfd fd = {.fd = peer->fd, .events = POLLIN};
    for (size_t at = 0; at < sizeof line - 1 && !strchr(line, '\n'); at++) {
        assert_int_equal(poll(&fd, 1, facts.wait_ms), 1);
        assert_int_equal(read(peer->fd, line + at, 1), 1);
    }
    return (unsigned)strtoul(line, NULL, 10);
}

static void start(struct peer *peer, const char *role, uint16_t port) {
    int fds[2];
    char number[8];
    snprintf(number, sizeof number, "%u", port);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fflush(NULL);
    peer->pid = fork();
    assert_true(peer->pid >= 0);
    if (!peer->pid) {
        dup2(fds[1], STDOUT_FILENO);
        execl("/proc/self/exe", "peer", role, number, NULL);
        _exit(127);
    }
    close(fds[1]);
    peer->fd = fds[0];
}

static void end(struct peer *peer) {
    int status;
    kill(peer->pid, SIGKILL);
    assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
    assert_true(WIFSIGNALED(status)); /* it did not fail on its own */
    close(peer->fd);
}

/* ---- the client dies --------------------------------------------------------------------------------------------- */

CT_WITH(ct_listening, a_connected_client_dies) {
    struct ct_pair *pair = *state;
    struct peer peer;
    start(&peer, "connects", pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    assert_int_equal(heard(&peer), 1);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    end(&peer);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

/* Closing the channel ends what is left on it. */
CT_WITH(ct_listening, a_connected_client_closes_its_channel) {
    struct ct_pair *pair = *state;
    struct peer peer;
    start(&peer, "closes-channel", pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    end(&peer);
}

/* Before accept nothing is told. */
CT_WITH(ct_listening, a_client_dies_with_its_request) {
    struct ct_pair *pair = *state;
    struct peer peer;
    start(&peer, "asks", pair->port);
    assert_int_equal(heard(&peer), 1);
    pair->passive = ct_request(pair->passive_channel);
    end(&peer);
    ct_silent(pair->passive_channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(rdma_accept(pair->passive, &param), EINVAL);
    ct_silent(pair->passive_channel);
}

CT_WITH(ct_listening, a_client_dies_with_the_reply) {
    struct ct_pair *pair = *state;
    struct peer peer;
    start(&peer, "has-reply", pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    assert_int_equal(heard(&peer), 1);
    end(&peer);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_REJECTED),
                     facts.reject_of_dead_client);
}

/* ---- the server dies --------------------------------------------------------------------------------------------- */

static void server_dies(const char *role, enum rdma_cm_event_type last, int status, int or_status) {
    struct rdma_event_channel *channel = ct_channel();
    struct peer peer;
    start(&peer, role, 0);
    struct rdma_cm_id *id = ct_connect(channel, (uint16_t)heard(&peer));
    assert_int_equal(heard(&peer), 1);
    if (!strcmp(role, "accepts")) {
        ct_take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
        if (last == RDMA_CM_EVENT_DISCONNECTED)
            assert_int_equal(rdma_establish(id), 0);
    }
    if (last == RDMA_CM_EVENT_DISCONNECTED) /* its kernel or engine has heard of it */
        ct_silent(channel);
    end(&peer);
    int got = ct_take(channel, last);
    if (got != or_status)
        assert_int_equal(got, status);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

TEST(a_server_dies_with_the_request_not_fetched) {
    server_dies("hears", RDMA_CM_EVENT_REJECTED, 28, facts.reject_of_lost_request);
}

TEST(a_server_dies_with_the_request_fetched) {
    server_dies("fetches", RDMA_CM_EVENT_REJECTED, 28, facts.reject_of_lost_request);
}

TEST(a_server_dies_after_its_reply) {
    server_dies("accepts", RDMA_CM_EVENT_REJECTED, 28, 28);
}

TEST(a_connected_server_dies) {
    server_dies("accepts", RDMA_CM_EVENT_DISCONNECTED, 0, 0);
}

/* The port is free again as soon as its process is gone. */
TEST(a_dead_servers_port_is_free) {
    struct rdma_event_channel *channel = ct_channel();
    struct peer peer;
    start(&peer, "hears", 0);
    uint16_t port = (uint16_t)heard(&peer);
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in addr = ct_address(port);
    assert_fails(rdma_bind_addr(id, (struct sockaddr *)&addr), EADDRINUSE);
    end(&peer);
    assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&addr), 0);
    assert_int_equal(rdma_listen(id, 1), 0);
    ct_destroy(id);
    rdma_destroy_event_channel(channel);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[0], "peer")) {
        uint16_t port = (uint16_t)strtoul(argv[2], NULL, 10);
        ct_start();
        if (port)
            as_client(argv[1], port);
        as_server(argv[1]);
    }
    return ct_run();
}
