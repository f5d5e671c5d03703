/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * malformed_peer - plays malformed input at a listener of iWARP, one connection after another, and says how it is taken.
 *
 *   malformed_peer [--siw] ADDRESS PORT [NAME...]
 *
 * One line for each input, or for those: "NAME: REACTION". A reaction is
 *
 *   terminate LAYER/TYPE/CODE   a Terminate, and the connection ended
 *   rejects                     a reply that rejects, and the connection ended
 *   closed, reset               it ended without a word
 *   goes on                     the input was taken: a frame behind it, of a DDP that there is not, is what was refused
 *   silent                      nothing at all, for SILENT_MS
 *   not played                  with --siw: it ends, or may, before the listener has seen a first frame
 *
 * The listener's application is rping -s -P, or another that is silent until it is spoken to, has receives shorter than
 * MALFORMED_RECEIVE, and READs what a SEND of an address, a key and a length offers. Exit status 1: a connection, or
 * the handshake before a malformed frame, failed. links: static (bytes of frames)
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/wire.h"
#include "support/malformed.h"

enum { QUIET_MS = 1000, SILENT_MS = 20000, QUESTIONS = 10, FLAG_CRC = 0x40, FLAG_REJECT = 0x20 };

/* The listener is Soft-iWARP of a little-endian machine, which swaps the halves of the first byte of a Terminate. */
static bool siw;

static const char *const dialers[] = {"", "revision 1, ", "revision 2, "};

static void fail(const char *name, const char *what) {
    printf("%s: FAILED: %s: %s\n", name, what, strerror(errno));
    exit(1);
}

/* ---- the other end --------------------------------------------------------------------------------------- */

static int dial(const char *name, const struct sockaddr_in *where) {
    const int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const void *)where, sizeof *where) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        fail(name, "connect");
    return fd;
}

static void play(int fd, const struct malformed *m) {
    const struct linger at_once = {1, 0};
    if (m->count > 0)
        (void)!send(fd, m->bytes, m->count, MSG_NOSIGNAL); /* that it is closed, the reader hears */
    if (m->end == MALFORMED_FIN)
        shutdown(fd, SHUT_WR);
    if (m->end == MALFORMED_RST)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* What it said. */
struct heard {
    int fd;
    uint8_t bytes[65536];
    size_t count;
    const char *end; /* NULL: not yet */
};

/* More of it. False: nothing in that time, or no more. */
static bool listen_on(struct heard *h, int ms) {
    struct pollfd poll_for = {.fd = h->fd, .events = POLLIN};
    if (h->end || h->count == sizeof h->bytes || poll(&poll_for, 1, ms) != 1)
        return false;
    ssize_t n = recv(h->fd, h->bytes + h->count, sizeof h->bytes - h->count, 0);
    if (n > 0)
        h->count += (size_t)n;
    else
        h->end = n == 0 ? "closed" : errno == ECONNRESET || errno == EPIPE ? "reset" : "broken";
    return n > 0;
}

/* The payload of its first frame of that opcode, an untagged one. `at`: where its frames begin. */
static const uint8_t *frame_of(const struct heard *h, size_t at, unsigned opcode, size_t *bytes) {
    while (h->count - at >= IWARP_LENGTH_BYTES + IWARP_UNTAGGED_BYTES) {
        const uint8_t *segment = h->bytes + at + IWARP_LENGTH_BYTES;
        unsigned length = iwarp_get16(h->bytes + at);
        if (h->count - at < iwarp_fpdu_bytes(length))
            break;
        if ((segment[1] & 15u) == opcode && length >= IWARP_UNTAGGED_BYTES) {
            *bytes = length - IWARP_UNTAGGED_BYTES;
            return segment + IWARP_UNTAGGED_BYTES;
        }
        at += iwarp_fpdu_bytes(length);
    }
    return NULL;
}

/* 0: it said no Terminate. */
static unsigned terminated(const struct heard *h, size_t at) {
    size_t bytes;
    struct iwarp_terminate t;
    const uint8_t *payload = frame_of(h, at, IWARP_TERMINATE, &bytes);
    if (!payload)
        return 0;
    if (siw && bytes >= 4)
        return (unsigned)IWARP_REFUSAL(payload[0] & 15u, payload[0] >> 4, payload[1]);
    iwarp_terminate_get(&t, payload, bytes);
    return t.refusal;
}

/* A whole reply; returns its bytes. 0: it ended, or said none. */
static size_t hear_reply(struct heard *h, int ms) {
    size_t bytes = IWARP_HANDSHAKE_HEAD;
    while (h->count < bytes && listen_on(h, ms))
        if (h->count >= IWARP_HANDSHAKE_HEAD)
            bytes = IWARP_HANDSHAKE_HEAD + iwarp_get16(h->bytes + 18);
    return h->count >= bytes ? bytes : 0;
}

/* Until it ends, says a Terminate or is quiet. */
static unsigned hear_frames(struct heard *h, size_t at, int ms) {
    while (terminated(h, at) == 0 && listen_on(h, ms))
        continue;
    return terminated(h, at);
}

static void say(const char *dialer, const char *name, const char *reaction) {
    printf("%s%s: %s\n", dialer, name, reaction);
    fflush(stdout);
}

/* Until it ends, too: what has said a Terminate, or rejects, may not stay. */
static void say_last(const char *dialer, const char *name, const char *reaction, struct heard *h) {
    char text[64];
    while (listen_on(h, SILENT_MS))
        continue;
    snprintf(text, sizeof text, "%s%s", reaction, h->end ? "" : ", and stays");
    say(dialer, name, text);
}

static void say_terminate(const char *dialer, const char *name, unsigned refusal, struct heard *h) {
    char text[32];
    snprintf(text, sizeof text, "terminate %u/%u/%u", iwarp_refusal_layer(refusal),
             iwarp_refusal_type(refusal), iwarp_refusal_code(refusal));
    say_last(dialer, name, text, h);
}

/* Of an input that may be taken a frame behind it tells, whose refusal is known. */
static void say_reaction(const char *dialer, const char *name, struct heard *h, size_t at,
                         enum malformed_end end) {
    unsigned refusal = hear_frames(h, at, end == MALFORMED_OPEN ? QUIET_MS : SILENT_MS);
    if (refusal == 0 && !h->end && end == MALFORMED_OPEN) {
        struct malformed probe;
        malformed_probe(&probe);
        play(h->fd, &probe);
        refusal = hear_frames(h, at, SILENT_MS);
        if (refusal == IWARP_TAGGED_VERSION) {
            say(dialer, name, "goes on");
            return;
        }
    }
    if (refusal != 0)
        say_terminate(dialer, name, refusal, h);
    else
        say(dialer, name, h->end ? h->end : "silent");
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

/* That the listener serves the next one is what can be seen of it. */
static bool is_reset(const char *dialer, const struct malformed *m) {
    if (m->end == MALFORMED_RST)
        say(dialer, m->name, "cannot be heard");
    return m->end == MALFORMED_RST;
}

static void play_request(const struct sockaddr_in *where, const struct malformed *m) {
    static struct heard h;
    h = (struct heard){.fd = dial(m->name, where)};
    play(h.fd, m);
    size_t reply = is_reset("", m) ? 0 : hear_reply(&h, SILENT_MS);
    if (reply > 0 && h.bytes[16] & FLAG_REJECT) {
        say_last("", m->name, "rejects", &h);
    } else if (reply > 0) {
        struct malformed first;
        malformed_nothing(&first);
        play(h.fd, &first);
        say_reaction("", m->name, &h, reply, m->end);
    } else if (m->end != MALFORMED_RST) {
        say("", m->name, h.end ? h.end : "silent");
    }
    close(h.fd);
}

/* Up to the reply, which is accepted with check values; returns its bytes. */
static size_t shake_hands(struct heard *h, const struct sockaddr_in *where, unsigned revision,
                          const char *name) {
    struct malformed request;
    *h = (struct heard){.fd = dial(name, where)};
    malformed_ask(revision, &request);
    play(h->fd, &request);
    size_t reply = hear_reply(h, SILENT_MS);
    if (reply == 0 || h->bytes[16] & FLAG_REJECT || !(h->bytes[16] & FLAG_CRC))
        fail(name, "the handshake");
    return reply;
}

static void play_frames(const struct sockaddr_in *where, unsigned revision,
                        const struct malformed *m) {
    static struct heard h;
    size_t reply = shake_hands(&h, where, revision, m->name);
    play(h.fd, m);
    if (!is_reset(dialers[revision], m))
        say_reaction(dialers[revision], m->name, &h, reply, m->end);
    close(h.fd);
}

/* A connection on which the listener's application asks for a READ; its reply. NULL: it ended, or is quiet. */
static const uint8_t *hear_question(struct heard *h, const struct sockaddr_in *where,
                                    const char *name, size_t *reply) {
    struct malformed offer;
    const uint8_t *request;
    size_t bytes = 0;
    *reply = shake_hands(h, where, 2, name);
    malformed_offer(&offer);
    play(h->fd, &offer);
    while (!(request = frame_of(h, *reply, IWARP_READ_REQUEST, &bytes)) && listen_on(h, SILENT_MS))
        continue;
    return bytes == IWARP_READ_BYTES ? request : NULL;
}

/*
 * The answer of that number to a READ of the listener's application. Of revision 2: 1 has no depths to agree on. rping is
 * asked again if it gives a connection up before it asked for anything, as it does now and then on Soft-iWARP.
 */
static void play_answer(const struct sockaddr_in *where, size_t number, struct malformed *m) {
    static struct heard h;
    struct iwarp_read asked;
    size_t reply;
    const uint8_t *request;
    for (unsigned tries = 1; !(request = hear_question(&h, where, m->name, &reply)); tries++) {
        if (tries == QUESTIONS)
            fail(m->name, "no READ request");
        close(h.fd);
    }
    iwarp_read_get(&asked, request);
    malformed_answer(number, &asked, m);
    play(h.fd, m);
    say_reaction(dialers[2], m->name, &h, reply, m->end);
    close(h.fd);
}

static bool is_asked_for(char *const *names, const struct malformed *m) {
    bool asked = *names == NULL;
    for (; *names && !asked; names++)
        asked = strcmp(*names, m->name) == 0;
    return asked;
}

int main(int argc, char **argv) {
    static const struct iwarp_read none = {.bytes = 0};
    static struct malformed m;
    struct sockaddr_in where = {.sin_family = AF_INET};
    siw = argc > 1 && strcmp(argv[1], "--siw") == 0;
    argc -= siw;
    argv += siw;
    if (argc < 3 || inet_pton(AF_INET, argv[1], &where.sin_addr) != 1) {
        fprintf(stderr, "usage: malformed_peer [--siw] ADDRESS PORT [NAME...]\n");
        return 2;
    }
    where.sin_port = htons((uint16_t)atoi(argv[2]));
    for (size_t i = 0; malformed_request(i, &m); i++)
        if (!is_asked_for(argv + 3, &m))
            continue;
        else if (siw && m.early)
            say("", m.name, "not played");
        else
            play_request(&where, &m);
    for (size_t i = 0; malformed_frames(i / 2, &m); i++)
        if (is_asked_for(argv + 3, &m))
            play_frames(&where, 1 + i % 2, &m);
    for (size_t i = 0; malformed_answer(i, &none, &m); i++)
        if (is_asked_for(argv + 3, &m))
            play_answer(&where, i, &m);
    return 0;
}
