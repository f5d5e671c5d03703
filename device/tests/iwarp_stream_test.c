/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_stream_test.c - frames through sockets: over TCP within this host and over a socket pair, with buffers that
 * take a part only; and the end of a connection, which the peer hears.
 */
#include "support/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/stream.h"
#include "soft/iwarp/tx.h"
#include "support/iwarp.h"
#include "support/pattern.h"
#include "support/rows.h"

#define WAIT_MS 20000 /* only ends what hangs */
#define LARGE 60000u

static uint8_t data[LARGE];

/* Connected and prepared; *fd[0] sends to fd[1]. */
static void connect_two(int fd[2], bool tcp) {
    if (!tcp) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    } else {
        struct sockaddr_in addr = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof addr;
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(listener >= 0);
        assert_int_equal(bind(listener, (struct sockaddr *)&addr, sizeof addr), 0);
        assert_int_equal(listen(listener, 1), 0);
        assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &bytes), 0);
        fd[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd[0], (struct sockaddr *)&addr, sizeof addr), 0);
        fd[1] = accept(listener, NULL, NULL);
        assert_true(fd[1] >= 0);
        close(listener);
    }
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(iwarp_stream_prepare(fd[i]), 0);
    pattern_fill(data, 0, sizeof data, 3);
}

static void wait_for(int fd, short events) {
    struct pollfd p = {.fd = fd, .events = events};
    assert_int_equal(poll(&p, 1, WAIT_MS), 1);
}

static struct iwarp_tx *sender_of(int fd, bool crc) {
    struct iwarp_tx *tx = malloc(sizeof *tx);
    assert_non_null(tx);
    iwarp_tx_init(tx, crc, iwarp_stream_mulpdu(fd));
    return tx;
}

static struct iwarp_tx *sender(int fd) {
    return sender_of(fd, true);
}

struct through {
    bool tcp;
    int buffer;   /* of both sockets; 0: as they are */
    size_t inbox; /* bytes */
    bool late;    /* receives come when they are waited for */
    bool crc;
};

static void begin(struct iwarp_tx *tx, uint8_t opcode, size_t bytes) {
    struct iovec piece[] = {{data, bytes / 2}, {data + bytes / 2, bytes - bytes / 2}};
    struct iwarp_tx_message message = {.opcode = opcode,
                                       .stag = IWARP_END_STAG,
                                       .offset = IWARP_END_BASE,
                                       .piece = piece,
                                       .pieces = 2};
    uint64_t end;
    if (opcode == IWARP_SEND)
        message.stag = 0;
    assert_int_equal(iwarp_tx_begin(tx, &message, &end), 0);
}

/* One turn of the receiver: what there is. */
static void receive(int fd, struct iwarp_end *end, struct iwarp_inbox *inbox, bool late) {
    size_t moved;
    int error = iwarp_stream_receive(fd, &end->rx, inbox, SIZE_MAX, &moved);
    if (end->rx.status == IWARP_RX_WAITING) {
        assert_true(late && error == 0);
        end->receives++;
        return;
    }
    assert_int_equal(error, EAGAIN);
    assert_int_equal(end->rx.status, IWARP_RX_OPEN);
}

static void messages_arrive(void **state) {
    const struct through *t = *state;
    static const size_t sizes[] = {0, 6, 1000, 4096, 4000, 1, 4095, 64};
    uint8_t bytes[65536];
    struct iwarp_inbox inbox = {.bytes = bytes, .size = t->inbox};
    int fd[2];
    connect_two(fd, t->tcp);
    for (unsigned i = 0; t->buffer && i < 2; i++) {
        setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &t->buffer, sizeof t->buffer);
        setsockopt(fd[i], SOL_SOCKET, SO_RCVBUF, &t->buffer, sizeof t->buffer);
    }
    struct iwarp_tx *tx = sender_of(fd[0], t->crc);
    struct iwarp_end *end = iwarp_end(t->late ? 0 : 8, t->crc, false);
    for (unsigned begun = 0; begun < 9 || tx->sent < tx->framed || tx->open ||
                             end->rx.frames == 0 || end->delivered < 8;) {
        if (begun < 9 && !tx->open && tx->frames == 0) {
            if (begun == 0)
                begin(tx, IWARP_WRITE, LARGE);
            else
                begin(tx, IWARP_SEND, sizes[begun - 1]);
            begun++;
        }
        int error = iwarp_stream_send(fd[0], tx, SIZE_MAX);
        assert_true(error == 0 || error == EAGAIN);
        receive(fd[1], end, &inbox, t->late);
    }
    assert_memory_equal(end->window, data, LARGE);
    for (unsigned i = 0; i < 8; i++)
        assert_memory_equal(end->receive[i], data, sizes[i]);
    assert_false(iwarp_rx_inside(&end->rx));
    free(end);
    free(tx);
    close(fd[0]);
    close(fd[1]);
}

/* Who waits for it would wait for a system call that brings nothing, too: here one that would find the end. */
TEST(a_message_does_not_wait_for_what_comes_behind_it) {
    uint8_t bytes[256];
    struct iwarp_inbox inbox = {.bytes = bytes, .size = sizeof bytes};
    int fd[2];
    size_t moved;
    connect_two(fd, false);
    struct iwarp_tx *tx = sender(fd[0]);
    struct iwarp_end *end = iwarp_end(1, true, false);
    begin(tx, IWARP_SEND, 64);
    assert_int_equal(iwarp_stream_send(fd[0], tx, SIZE_MAX), 0);
    close(fd[0]);
    assert_int_equal(iwarp_stream_receive(fd[1], &end->rx, &inbox, SIZE_MAX, &moved), EAGAIN);
    assert_int_equal(end->delivered, 1);
    assert_int_equal(iwarp_stream_receive(fd[1], &end->rx, &inbox, SIZE_MAX, &moved), ENODATA);
    free(end);
    free(tx);
    close(fd[1]);
}

TEST(a_turn_has_its_bound) {
    uint8_t bytes[256];
    struct iwarp_inbox inbox = {.bytes = bytes, .size = sizeof bytes};
    int fd[2];
    size_t moved;
    connect_two(fd, false);
    struct iwarp_tx *tx = sender(fd[0]);
    struct iwarp_end *end = iwarp_end(8, true, false);
    for (unsigned i = 0; i < 8; i++)
        begin(tx, IWARP_SEND, 1000);
    assert_int_equal(iwarp_stream_send(fd[0], tx, SIZE_MAX), 0);
    assert_int_equal(iwarp_stream_receive(fd[1], &end->rx, &inbox, 1000, &moved), 0);
    assert_true(moved >= 1000 && moved < 1000 + sizeof bytes);
    assert_int_equal(iwarp_stream_receive(fd[1], &end->rx, &inbox, SIZE_MAX, &moved), EAGAIN);
    assert_int_equal(end->delivered, 8);
    close(fd[0]);
    assert_int_equal(iwarp_stream_receive(fd[1], &end->rx, &inbox, SIZE_MAX, &moved), ENODATA);
    free(end);
    free(tx);
    close(fd[1]);
}

/* The peer's word is read although it came with bytes that nobody reads on the way. */
TEST(the_last_word_is_heard_before_the_end) {
    uint8_t bytes[512];
    struct iwarp_inbox inbox = {.bytes = bytes, .size = sizeof bytes};
    int fd[2];
    size_t moved;
    connect_two(fd, true);
    struct iwarp_tx *us = sender(fd[0]), *peer = sender(fd[1]);
    struct iwarp_end *end = iwarp_end(0, true, false);
    begin(peer, IWARP_WRITE, LARGE); /* that we do not read */
    assert_int_equal(iwarp_stream_send(fd[1], peer, SIZE_MAX), 0);
    wait_for(fd[0], POLLIN);
    iwarp_tx_terminate(us, &(struct iwarp_terminate){.refusal = IWARP_UNTAGGED_MSN});
    assert_int_equal(iwarp_stream_send(fd[0], us, SIZE_MAX), 0);
    iwarp_stream_finish(fd[0]);
    assert_false(iwarp_stream_finished(fd[0])); /* the peer may still send */
    wait_for(fd[1], POLLIN);
    assert_int_equal(iwarp_stream_receive(fd[1], &end->rx, &inbox, SIZE_MAX, &moved), 0);
    assert_int_equal(end->rx.status, IWARP_RX_TERMINATED);
    assert_string_equal(end->log, "terminated 11203, 0 bytes of a header\n");
    iwarp_stream_finish(fd[1]);
    while (!iwarp_stream_finished(fd[0]))
        wait_for(fd[0], POLLIN);
    assert_true(iwarp_stream_finished(fd[1]));
    close(fd[0]);
    int error = 0;
    socklen_t n = sizeof error;
    assert_int_equal(getsockopt(fd[1], SOL_SOCKET, SO_ERROR, &error, &n), 0);
    assert_int_equal(error, 0); /* no reset */
    close(fd[1]);
    free(end);
    free(us);
    free(peer);
}

TEST(sending_to_nobody_is_an_error_and_no_signal) {
    int fd[2];
    connect_two(fd, false);
    struct iwarp_tx *tx = sender(fd[0]);
    close(fd[1]);
    begin(tx, IWARP_SEND, 1000);
    assert_int_equal(iwarp_stream_send(fd[0], tx, SIZE_MAX), EPIPE);
    assert_true(iwarp_stream_finished(fd[0]));
    free(tx);
    close(fd[0]);
}

TEST(a_prepared_socket_waits_for_nothing) {
    int fd[2], delay = 0;
    socklen_t n = sizeof delay;
    connect_two(fd, true);
    assert_int_equal(getsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &delay, &n), 0);
    assert_true(delay);
    assert_true(fcntl(fd[0], F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd[0], F_GETFD) & FD_CLOEXEC);
    assert_true(iwarp_stream_mulpdu(fd[0]) >= IWARP_MULPDU_MIN);
    close(fd[0]);
    close(fd[1]);
    assert_int_equal(iwarp_stream_prepare(-1), EBADF);
    assert_int_equal(iwarp_stream_mulpdu(-1), 1454);
}

#define THROUGH(name, ...) ROW(messages_arrive__##name, messages_arrive, through, __VA_ARGS__)

TEST_CASES(THROUGH(through_tcp, true, 0, 65536, false, true),
           THROUGH(through_tcp_with_late_receives, true, 0, 65536, true, true),
           THROUGH(through_tcp_with_little_room, true, 4096, 64, true, true),
           THROUGH(through_tcp_into_its_place, true, 0, 65536, false, false),
           THROUGH(through_a_pair, false, 0, 65536, false, true),
           THROUGH(through_a_pair_with_little_room, false, 2048, 100, true, true),
           THROUGH(through_a_pair_into_its_place, false, 2048, 100, true, false));
