/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* nng.c - NNG over ipc, one pair of sockets. */
#include "peer.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/supplemental/util/platform.h>

static nng_socket sock;

static void open_nng(bool server, const char *address) {
    const struct timespec pause = {.tv_nsec = 1000000};
    int rc = nng_pair0_open(&sock);
    if (rc == 0)
        rc = nng_socket_set_size(sock, NNG_OPT_RECVMAXSZ, 0);
    if (rc == 0 && server)
        rc = nng_listen(sock, address, NULL, 0);
    for (int i = 0; rc == 0 && !server && (rc = nng_dial(sock, address, NULL, 0)) != 0 && i < 5000;
         i++) {
        nanosleep(&pause, NULL); /* the other process is not there yet */
        rc = 0;
    }
    if (rc != 0)
        peer_die(nng_strerror(rc));
}

static void give(const void *data, size_t bytes) {
    if (nng_send(sock, (void *)(uintptr_t)data, bytes, 0) != 0)
        peer_die("nng_send");
}

static size_t take(void *data, size_t room) {
    if (nng_recv(sock, data, &room, 0) != 0)
        peer_die("nng_recv");
    return room;
}

static void end(void) {
    nng_msleep(100); /* what was sent last leaves in the background */
    nng_close(sock);
}

int main(int argc, char **argv) {
    static const struct peer peer = {"nng", open_nng, give, take, end};
    return peer_main(&peer, argc, argv);
}
