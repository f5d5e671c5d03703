/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* zmq.c - libzmq over ipc: one pair of sockets, or many DEALERs of one ROUTER. */
#include "many.h"

#include <zmq.h>

static void *context, *sock;

static void zmq_open(bool server, const char *address) {
    const int linger = 1000;
    context = zmq_ctx_new();
    sock = context ? zmq_socket(context, ZMQ_PAIR) : NULL;
    if (!sock || zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        (server ? zmq_bind(sock, address) : zmq_connect(sock, address)) != 0)
        peer_die("libzmq cannot be opened");
}

static void zmq_give(const void *data, size_t bytes) {
    if (zmq_send(sock, data, bytes, 0) < 0)
        peer_die("zmq_send");
}

static size_t zmq_take(void *data, size_t room) {
    int n = zmq_recv(sock, data, room, 0);
    if (n < 0)
        peer_die("zmq_recv");
    return (size_t)n;
}

static void zmq_end(void) {
    zmq_close(sock);
    zmq_ctx_term(context);
}

/* ---- many -------------------------------------------------------------------------------------- */

#define IDENTITY_MAX 256

static void **dealer;

static void serve(const char *address) {
    char who[IDENTITY_MAX], data[MANY_BYTES];
    context = zmq_ctx_new();
    sock = context ? zmq_socket(context, ZMQ_ROUTER) : NULL;
    if (!sock || zmq_bind(sock, address) != 0)
        peer_die("libzmq cannot be opened");
    for (;;) {
        int from = zmq_recv(sock, who, sizeof who, 0), n = zmq_recv(sock, data, sizeof data, 0);
        if (from < 0 || n < 0 || zmq_send(sock, who, (size_t)from, ZMQ_SNDMORE) < 0 ||
            zmq_send(sock, data, (size_t)n, 0) < 0)
            peer_die("libzmq: a message is not sent back");
    }
}

static void connect_dealers(const char *address, unsigned count) {
    context = zmq_ctx_new();
    dealer = calloc(count, sizeof *dealer);
    if (!context || !dealer || zmq_ctx_set(context, ZMQ_MAX_SOCKETS, (int)count + 16) != 0)
        peer_die("libzmq cannot be opened");
    for (unsigned i = 0; i < count; i++) {
        dealer[i] = zmq_socket(context, ZMQ_DEALER);
        if (!dealer[i] || zmq_connect(dealer[i], address) != 0)
            peer_die("libzmq: no further socket");
    }
}

static void ask(unsigned i, const void *data, size_t bytes) {
    if (zmq_send(dealer[i], data, bytes, 0) < 0)
        peer_die("zmq_send");
}

static void await(unsigned i, size_t bytes) {
    char data[MANY_BYTES];
    if (zmq_recv(dealer[i], data, sizeof data, 0) != (int)bytes)
        peer_die("zmq_recv");
}

int main(int argc, char **argv) {
    static const struct peer peer = {"zmq", zmq_open, zmq_give, zmq_take, zmq_end};
    static const struct peer_many many = {"zmq", serve, connect_dealers, ask, await};
    return argc > 1 && strcmp(argv[1], "many") == 0 ? many_main(&many, argc, argv)
                                                    : peer_main(&peer, argc, argv);
}
