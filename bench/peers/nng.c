/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* nng.c - NNG over ipc: one pair of sockets, or many REQs of one REP. */
#include "many.h"

#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <nng/protocol/reqrep0/rep.h>
#include <nng/protocol/reqrep0/req.h>
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

/* ---- many -------------------------------------------------------------------------------------- */

static nng_socket *asking;

/* Raw: a message is sent back as it came, with whom it came from in its header. */
static void serve(const char *address) {
    nng_msg *msg;
    int rc = nng_rep0_open_raw(&sock);
    if (rc == 0)
        rc = nng_listen(sock, address, NULL, 0);
    while (rc == 0 && (rc = nng_recvmsg(sock, &msg, 0)) == 0)
        rc = nng_sendmsg(sock, msg, 0);
    peer_die(nng_strerror(rc));
}

static void connect_all(const char *address, unsigned count) {
    const struct timespec pause = {.tv_nsec = 1000000};
    asking = calloc(count, sizeof *asking);
    if (!asking)
        peer_die("no memory");
    for (unsigned i = 0; i < count; i++) {
        int rc = nng_req0_open(&asking[i]);
        for (int k = 0; rc == 0 && (rc = nng_dial(asking[i], address, NULL, 0)) != 0 && k < 5000;
             k++) {
            nanosleep(&pause, NULL); /* the other process is not there yet */
            rc = 0;
        }
        if (rc != 0)
            peer_die(nng_strerror(rc));
    }
}

static void ask(unsigned i, const void *data, size_t bytes) {
    if (nng_send(asking[i], (void *)(uintptr_t)data, bytes, 0) != 0)
        peer_die("nng_send");
}

static void await(unsigned i, size_t bytes) {
    char data[MANY_BYTES];
    size_t room = sizeof data;
    if (nng_recv(asking[i], data, &room, 0) != 0 || room != bytes)
        peer_die("nng_recv");
}

int main(int argc, char **argv) {
    static const struct peer peer = {"nng", open_nng, give, take, end};
    static const struct peer_many many = {"nng", serve, connect_all, ask, await};
    return argc > 1 && strcmp(argv[1], "many") == 0 ? many_main(&many, argc, argv)
                                                    : peer_main(&peer, argc, argv);
}
