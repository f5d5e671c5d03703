/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* zmq.c - libzmq over ipc, one pair of sockets. */
#include "peer.h"

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

int main(int argc, char **argv) {
    static const struct peer peer = {"zmq", zmq_open, zmq_give, zmq_take, zmq_end};
    return peer_main(&peer, argc, argv);
}
