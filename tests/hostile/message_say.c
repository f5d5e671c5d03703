/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* message_say.c - the ways of message_form.h. One thread; leaves no descriptor behind. */
#include "support/softverbs_hostile.h"

#include <poll.h>
#include <sys/eventfd.h>

#include "hostile/message_form.h"
#include "soft/ud/ud.h"

const char *const message_way_names[MESSAGE_WAYS] = {
    [MESSAGE_UNGREETED] = "before a greeting",
    [MESSAGE_LENGTHS] = "of every length",
    [MESSAGE_TOO_LONG] = "longer than any",
    [MESSAGE_LIES] = "with a length that lies",
    [MESSAGE_CUT] = "shorter than its head",
    [MESSAGE_VALUES] = "of what is not there or somebody else's",
    [MESSAGE_REPEATED] = "many times",
    [MESSAGE_SURPLUS] = "with more descriptors or none",
    [MESSAGE_OTHERS] = "with descriptors of other kinds",
    [MESSAGE_RIGHT] = "with memory that is right",
};

#define WORDS 300u
#define HEAD 8u /* bytes: type and length */

static uint32_t number = 4711; /* of what was asked to see whether it is answered */

static const struct message_form *now_form;
static enum message_way now_way;

/* What was expected of the other side. */
static void expected(bool good, const char *what) {
    if (!good)
        fprintf(stderr, "%s %s: %s expected\n", now_form->name, message_way_names[now_way], what);
    must(good);
}

static void close_all(struct soft_untrusted_fd_fds *fds) {
    for (unsigned i = 0; i < fds->count; i++)
        close(fds->fd[i]);
}

/* What is said until then is taken, and thrown away. Words of the message, or 0: it hung up. */
static size_t hear(int sock, uint32_t *words) {
    struct soft_untrusted_fd_fds fds = {0};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    bool cut;
    expected(poll(&p, 1, 20000) == 1, "a word, or an end");
    ssize_t got = soft_untrusted_fd_recv(sock, (uint8_t *)words, WORDS * sizeof *words, &fds, &cut);
    if (got >= 0)
        close_all(&fds);
    return got > 0 ? (size_t)got / sizeof *words : 0;
}

static void it_hung_up(int sock) {
    uint32_t words[WORDS];
    while (hear(sock, words) > 0)
        ;
    close(sock);
}

/* It answers, so everything before was looked at and was no reason to hang up. */
static void it_goes_on(int sock) {
    uint32_t words[WORDS] = {SOFT_MSG_GROUP_ASK, 24};
    const uint32_t ask[8] = {SOFT_MSG_GROUP_ASK, 24, 0, 0, 0, 0, 0, ++number};
    (void)!send(sock, ask, sizeof ask, MSG_NOSIGNAL); /* waits for room */
    do
        expected(hear(sock, words) > 0, "an answer");
    while (words[0] != SOFT_MSG_GROUP_OK || words[7] != number);
    close(sock);
}

static int greeted(uint32_t qpn) {
    int board = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    int sock = hostile_greet(qpn, &hostile_hello, board);
    close(board);
    return sock;
}

static size_t make(uint32_t *words, const struct message_form *form, size_t bytes, uint32_t word) {
    for (unsigned i = 2; i < WORDS; i++)
        words[i] = word;
    words[0] = form->type;
    words[1] = (uint32_t)bytes;
    return HEAD + bytes;
}

/* A second greeting is none, however it looks. */
static void expect(int sock, const struct message_form *form) {
    if (form->type == SOFT_MSG_HELLO)
        it_hung_up(sock);
    else
        it_goes_on(sock);
}

static void lengths(const struct message_form *form, uint32_t qpn) {
    uint32_t words[WORDS];
    int sock = greeted(qpn);
    for (size_t bytes = 0; bytes <= SOFT_MSG_BYTES_MAX; bytes += bytes < form->bytes + 16 ? 1 : 61)
        if (bytes != form->bytes)
            hostile_say(sock, words, make(words, form, bytes, 0), NULL, 0);
    expect(sock, form);
}

static void values(const struct message_form *form, uint32_t qpn) {
    const uint32_t all[] = {0, 1, qpn, qpn + 1, SOFT_MAX_REGIONS, INT32_MAX, UINT32_MAX};
    uint32_t words[WORDS];
    int sock = greeted(qpn);
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        size_t bytes = make(words, form, form->bytes, all[i]);
        hostile_say(sock, words, bytes, NULL, 0);
        for (unsigned k = 2; k < HEAD / 4 + form->bytes / 4; k += 3) /* one of them another */
            words[k] = all[(i + k) % (sizeof all / sizeof all[0])];
        hostile_say(sock, words, bytes, NULL, 0);
    }
    expect(sock, form);
}

static void repeated(const struct message_form *form, uint32_t qpn) {
    uint32_t words[WORDS];
    int sock = greeted(qpn);
    size_t bytes = make(words, form, form->bytes, 3);
    for (unsigned i = 0; i < 50; i++)
        hostile_say(sock, words, bytes, NULL, 0);
    expect(sock, form);
}

static void surplus(const struct message_form *form, uint32_t qpn) {
    uint32_t words[WORDS];
    int sock = greeted(qpn), file = hostile_shm_file(true, SOFT_RING_BYTES, SOFT_RING_MAGIC);
    int fds[SOFT_FOREIGN_FDS];
    size_t bytes = make(words, form, form->bytes, qpn);
    for (unsigned i = 0; i < SOFT_FOREIGN_FDS; i++)
        fds[i] = file;
    for (unsigned count = 0; count <= 3; count++)
        if (count != form->fds)
            hostile_say(sock, words, bytes, fds, count);
    hostile_say(sock, words, bytes, fds, SOFT_FOREIGN_FDS);
    expect(sock, form);
    close(file);
}

static void others(const struct message_form *form, uint32_t qpn) {
    uint32_t words[WORDS];
    int ends[2], pair[2], sock = greeted(qpn);
    must(pipe2(ends, O_CLOEXEC) == 0);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    const int fds[] = {ends[0],
                       ends[1],
                       pair[0],
                       pair[1],
                       eventfd(0, EFD_CLOEXEC),
                       open("/dev/null", O_RDWR | O_CLOEXEC),
                       open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                       hostile_shm_file(false, SOFT_RING_BYTES, SOFT_RING_MAGIC),
                       hostile_shm_file(true, 4096, SOFT_RING_MAGIC),
                       hostile_shm_file(true, SOFT_RING_BYTES, 0),
                       hostile_shm_file(true, (size_t)1 << 40, SOFT_RING_MAGIC)};
    size_t bytes = make(words, form, form->bytes, qpn);
    for (unsigned i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        hostile_say(sock, words, bytes, &fds[i], 1);
        close(fds[i]);
    }
    expect(sock, form);
}

/* As large and as sealed as it should be, and with the words that it begins with. */
static int right_file(uint32_t type, uint32_t from, uint32_t to) {
    const uint32_t ring[4] = {SOFT_RING_MAGIC, SOFT_RING_SLOTS, from, to};
    const uint32_t datagrams[4] = {SOFT_UD_MAGIC, SOFT_UD_SLOTS, from, to};
    size_t bytes = type == SOFT_MSG_KEYS      ? SOFT_KEYS_BYTES
                   : type == SOFT_MSG_UD_RING ? SOFT_UD_RING_BYTES
                                              : SOFT_RING_BYTES;
    int fd = hostile_shm_file(true, bytes, 0);
    const uint32_t *head = type == SOFT_MSG_UD_RING ? datagrams : ring;
    must(pwrite(fd, head, sizeof ring, 0) == sizeof ring);
    return fd;
}

static void greets_twice(uint32_t qpn) {
    int sock = greeted(qpn);
    const int fds[2] = {hostile_bell(NULL),
                        hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC)};
    hostile_say(sock, &hostile_hello, sizeof hostile_hello, fds, 2);
    close(fds[0]);
    close(fds[1]);
    it_hung_up(sock);
}

static void right(const struct message_form *form, uint32_t qpn) {
    uint32_t words[WORDS];
    if (form->type == SOFT_MSG_HELLO) {
        greets_twice(qpn);
        return;
    }
    int sock = greeted(qpn);
    for (unsigned i = 0; i < 12; i++) { /* more than a queue pair keeps for later */
        uint32_t from = i % 2 ? qpn + i : SOFT_QP_BLOCK * 7 + i;
        size_t bytes = make(words, form, form->bytes, 0);
        int fd = right_file(form->type, from, qpn + i % 3);
        words[2] = form->type == SOFT_MSG_REGION ? i : from; /* index, or a number */
        words[3] = qpn + i % 3;
        if (form->type == SOFT_MSG_REGION)
            words[4] = SOFT_RING_BYTES, words[5] = 0, words[6] = i % 2;
        hostile_say(sock, words, bytes, &fd, 1);
        close(fd);
    }
    expect(sock, form);
}

void message_say(enum message_way way, const struct message_form *form, uint32_t qpn) {
    uint32_t words[WORDS];
    int sock;
    must_end_process = true;
    now_form = form;
    now_way = way;
    switch (way) {
    case MESSAGE_UNGREETED:
        sock = hostile_dial(qpn);
        hostile_say(sock, words, make(words, form, form->bytes, 0), NULL, 0);
        it_hung_up(sock);
        break;
    case MESSAGE_LENGTHS:
        lengths(form, qpn);
        break;
    case MESSAGE_TOO_LONG:
        sock = greeted(qpn);
        hostile_say(sock, words, make(words, form, SOFT_MSG_BYTES_MAX + 4, 0), NULL, 0);
        it_hung_up(sock);
        break;
    case MESSAGE_LIES:
        for (unsigned i = 0; i < 3; i++) {
            const uint32_t lies[] = {form->bytes + 1, form->bytes - 1, UINT32_MAX};
            size_t bytes = make(words, form, form->bytes, 0);
            words[1] = lies[i];
            sock = greeted(qpn);
            hostile_say(sock, words, bytes, NULL, 0);
            it_hung_up(sock);
        }
        break;
    case MESSAGE_CUT:
        sock = greeted(qpn);
        (void)make(words, form, 0, 0);
        hostile_say(sock, words, HEAD - 1, NULL, 0);
        it_hung_up(sock);
        break;
    case MESSAGE_VALUES:
        values(form, qpn);
        break;
    case MESSAGE_REPEATED:
        repeated(form, qpn);
        break;
    case MESSAGE_SURPLUS:
        surplus(form, qpn);
        break;
    case MESSAGE_OTHERS:
        others(form, qpn);
        break;
    case MESSAGE_RIGHT:
        right(form, qpn);
        break;
    case MESSAGE_WAYS:
        break;
    }
}
