/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* teller.c - a process made by hand: messages of its control connection. */
#define _GNU_SOURCE
#include "teller.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "soft/ipc/peer.h"
#include "soft/ipc/shm_layout.h"
#include "soft/ipc/shm_page.h"
#include "soft/object/ring.h"
#include "soft/ud/ud.h"

#define REGION_BYTES 8192u

enum file {
    FILE_BOARD,
    FILE_RING,
    FILE_UD_RING,
    FILE_REGION,
    FILE_KEYS,
    FILE_OPEN,
    FILE_BELL,
    FILE_ODD,
    FILES
};

static int files[FILES];

static int make_file(size_t bytes, bool sealed) {
    int fd = memfd_create("told", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    PROVE(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    PROVE(!sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

int teller_file(size_t bytes) {
    return make_file(bytes, true);
}

void teller_prepare(void) {
    static const size_t sizes[FILES] = {[FILE_BOARD] = sizeof(struct soft_shm_page),
                                        [FILE_RING] = SOFT_RING_BYTES,
                                        [FILE_UD_RING] = SOFT_UD_RING_BYTES,
                                        [FILE_REGION] = REGION_BYTES,
                                        [FILE_KEYS] = SOFT_KEYS_BYTES,
                                        [FILE_OPEN] = SOFT_RING_BYTES};
    for (unsigned i = 0; i < FILE_BELL; i++)
        files[i] = make_file(sizes[i], i != FILE_OPEN);
    int pair[2]; /* the end that hears stays open */
    PROVE(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    files[FILE_BELL] = pair[1];
    files[FILE_ODD] = eventfd(0, EFD_CLOEXEC);
    const uint32_t board[2] = {SOFT_SHM_PAGE_MAGIC, SOFT_WIRE_VERSION};
    PROVE(pwrite(files[FILE_BOARD], board, sizeof board, 0) == sizeof board);
}

void teller_connect(struct teller *t) {
    int pair[2];
    PROVE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    const struct cds_list_head *before = soft_peers.next;
    soft_peer_accepted(pair[0]);
    PROVE(soft_peers.next != before);
    t->peer = soft_peer_hold(cds_list_entry(soft_peers.next, struct soft_peer, link));
    t->peer->blocks[t->peer->block_count++] = TELLER_BLOCK;
    t->sock = pair[1];
    t->ring = -1;
}

void teller_leave(struct teller *t) {
    soft_peer_drop(t->peer);
    soft_peer_release(t->peer);
    close(t->sock);
    t->sock = -1;
    if (t->ring >= 0)
        close(t->ring);
    t->ring = -1;
    t->talks = 0;
}

/* ---- hearing --------------------------------------------------------------------------------- */

static struct teller_talk *talk_of(struct teller *t, uint64_t mine) {
    for (uint32_t i = 0; i < t->talks; i++)
        if (t->talk[i].mine == mine)
            return &t->talk[i];
    struct teller_talk *talk = &t->talk[t->talks < TELLER_TALKS ? t->talks++ : TELLER_TALKS - 1];
    *talk = (struct teller_talk){.mine = mine};
    return talk;
}

static void hear(struct teller *t, uint32_t type, const uint8_t *body, size_t bytes) {
    struct soft_cm_wire_head head;
    uint32_t from;
    t->heard++;
    if (type >= SOFT_MSG_CM_FIRST && type <= SOFT_MSG_CM_LAST) {
        PROVE(bytes >= sizeof head);
        memcpy(&head, body, sizeof head);
        if (head.from != 0)
            talk_of(t, head.to ? head.to : 0x1000 + ++t->next_id)->theirs = head.from;
    } else if ((type == SOFT_MSG_LINK || type == SOFT_MSG_UD_RING) && t->qpns < TELLER_NUMBERS) {
        memcpy(&from, body, sizeof from);
        t->qpn[t->qpns++] = from;
    }
}

static void take_files(struct teller *t, struct msghdr *msg, bool ring) {
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c))
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd = ((int *)(void *)CMSG_DATA(c))[i];
            if (ring && t->ring < 0)
                t->ring = fd;
            else
                close(fd);
        }
}

void teller_hear(struct teller *t) {
    uint8_t buf[sizeof(struct soft_wire) + SOFT_MSG_BYTES_MAX];
    char control[CMSG_SPACE(8 * sizeof(int))];
    for (;;) {
        struct iovec iov = {buf, sizeof buf};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
        ssize_t got = recvmsg(t->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got <= 0)
            return;
        struct soft_wire wire;
        PROVE((size_t)got >= sizeof wire);
        memcpy(&wire, buf, sizeof wire);
        take_files(t, &msg, wire.type == SOFT_MSG_LINK);
        PROVE(wire.bytes == (size_t)got - sizeof wire); /* this side tells no nonsense */
        hear(t, wire.type, buf + sizeof wire, wire.bytes);
    }
}

/* ---- telling --------------------------------------------------------------------------------- */

struct tale {
    uint32_t type;
    size_t bytes;
    uint32_t body[SOFT_MSG_BYTES_MAX / 4];
    int fd[3];
    unsigned fds;
};

static void send_tale(const struct teller *t, const struct tale *tale, uint32_t said_bytes) {
    struct soft_wire wire = {tale->type, said_bytes};
    char control[CMSG_SPACE(3 * sizeof(int))] = {0};
    struct iovec iov[2] = {{&wire, sizeof wire}, {(void *)(uintptr_t)tale->body, tale->bytes}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    if (tale->fds) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(tale->fds * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(tale->fds * sizeof(int));
        memcpy(CMSG_DATA(cmsg), tale->fd, tale->fds * sizeof(int));
    }
    (void)!sendmsg(t->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (t->peer->alive)
        t->peer->socket.fn(&t->peer->socket, 1 /* EPOLLIN */);
}

void teller_say(struct teller *t, uint32_t type, const void *body, size_t bytes, int fd) {
    struct tale tale = {.type = type, .bytes = bytes, .fd = {fd}, .fds = fd >= 0};
    memcpy(tale.body, body, bytes);
    send_tale(t, &tale, (uint32_t)bytes);
    teller_hear(t);
}

static int bell(void) {
    int pair[2];
    PROVE(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    close(pair[0]);
    return pair[1];
}

static void compose_hello(struct tale *tale) {
    const uint32_t words[] = {SOFT_WIRE_MAGIC, SOFT_WIRE_VERSION, 1, 2, 3, 4, 1, 0};
    memcpy(tale->body, words, sizeof words);
    tale->bytes = sizeof words;
    tale->fd[0] = bell();
    tale->fd[1] = files[FILE_BOARD];
    tale->fds = 2;
}

void teller_greet(struct teller *t) {
    struct tale tale = {.type = SOFT_MSG_HELLO};
    compose_hello(&tale);
    send_tale(t, &tale, (uint32_t)tale.bytes);
    close(tale.fd[0]);
    teller_hear(t);
    PROVE(t->peer->greeted);
}

static uint32_t a_qpn(const struct teller *t, uint64_t choice) {
    return t->qpns ? t->qpn[choice % t->qpns] : 0;
}

/* A ring that names these two, in a file of its own: it may be mapped for long. */
static void add_ring(struct tale *tale, const uint32_t fixed[4], size_t bytes) {
    int fd = make_file(bytes, true);
    PROVE(pwrite(fd, fixed, 4 * sizeof *fixed, 0) == 4 * sizeof *fixed);
    tale->fd[tale->fds++] = fd;
}

static void compose_ring(struct teller *t, struct tale *tale, uint64_t how) {
    uint32_t from = TELLER_QPN(1 + (how & 3)), to = a_qpn(t, how >> 2);
    bool link = tale->type == SOFT_MSG_LINK;
    const uint32_t words[] = {from, to, 1, 1, 1, (uint32_t)(how >> 7)};
    memcpy(tale->body, words, sizeof words);
    if (!link)
        tale->body[3] = 0;
    tale->bytes = link ? 24 : 16;
    const uint32_t ring[4] = {SOFT_RING_MAGIC, SOFT_RING_SLOTS, from, to};
    const uint32_t datagrams[4] = {SOFT_UD_MAGIC, SOFT_UD_SLOTS, from, to};
    if (link)
        add_ring(tale, ring, SOFT_RING_BYTES);
    else if (tale->type == SOFT_MSG_UD_RING)
        add_ring(tale, datagrams, SOFT_UD_RING_BYTES);
    else /* an answer names them the other way round */
        tale->body[0] = to, tale->body[1] = from;
}

static void compose_region(struct tale *tale, uint64_t how) {
    const uint32_t words[] = {
        (uint32_t)how & 3, (uint32_t)how >> 6, REGION_BYTES, 0, (uint32_t)how >> 4 & 1, 0};
    memcpy(tale->body, words, sizeof words);
    tale->bytes = sizeof words;
    if (tale->type == SOFT_MSG_REGION)
        tale->fd[tale->fds++] = files[FILE_REGION];
}

static void compose_bell(struct teller *t, struct tale *tale, uint64_t how) {
    tale->body[0] = TELLER_QPN(1 + (how & 3));
    tale->body[1] = a_qpn(t, how >> 2);
    tale->bytes = 8;
    tale->fd[tale->fds++] = files[FILE_BELL];
}

static void compose_group(struct teller *t, struct tale *tale, uint64_t how) {
    uint8_t gid[16] = {0xff, 0x12, [15] = (uint8_t)(how & 3)};
    memcpy(tale->body, gid, sizeof gid);
    tale->body[4] = TELLER_QPN((uint32_t)how >> 2);
    tale->body[5] = ++t->next_id;
    tale->bytes = 24;
}

static void address(struct soft_cm_wire_addr *to, uint16_t port) {
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    soft_cm_wire_addr_set(to, (struct sockaddr *)&in);
}

static void compose_cm(struct teller *t, struct tale *tale, uint64_t how) {
    static const size_t sizes[] = {
        sizeof(struct soft_cm_wire_req),     sizeof(struct soft_cm_wire_head),
        sizeof(struct soft_cm_wire_rep),     sizeof(struct soft_cm_wire_head),
        sizeof(struct soft_cm_wire_rej),     sizeof(struct soft_cm_wire_head),
        sizeof(struct soft_cm_wire_head),    sizeof(struct soft_cm_wire_sidr_req),
        sizeof(struct soft_cm_wire_sidr_rep)};
    union soft_cm_wire_any msg;
    memset(&msg, 0, sizeof msg);
    bool sidr = tale->type == SOFT_CM_WIRE_SIDR_REQ;
    if (tale->type == SOFT_CM_WIRE_REQ || sidr) {
        msg.head.from = how & 128 && t->talks ? t->talk[0].mine : 0x1000 + ++t->next_id;
        talk_of(t, msg.head.from);
        address(&msg.req.src, 1); /* at the same place in both */
        address(&msg.req.dst, sidr ? t->ud_port : t->port);
        if (sidr) {
            msg.sidr_req.ps = RDMA_PS_UDP;
        } else {
            msg.req.ps = RDMA_PS_TCP;
            msg.req.qp_num = TELLER_QPN(1);
        }
    } else {
        if (how & 64) /* of others, who are connected with each other */
            msg.head = (struct soft_cm_wire_head){t->other[how & 1], t->other[!(how & 1)]};
        else if (t->talks)
            msg.head = (struct soft_cm_wire_head){t->talk[how % t->talks].theirs,
                                                  t->talk[how % t->talks].mine};
        if (tale->type == SOFT_CM_WIRE_REP)
            msg.rep.qp_num = TELLER_QPN(1);
        else if (tale->type == SOFT_CM_WIRE_REJ)
            msg.rej.reason = how & 32 ? 28 : 8;
    }
    tale->bytes = sizes[tale->type - SOFT_CM_WIRE_REQ];
    memcpy(tale->body, &msg, tale->bytes);
}

static void compose(struct teller *t, struct tale *tale, uint64_t how) {
    if (tale->type >= SOFT_CM_WIRE_REQ && tale->type <= SOFT_CM_WIRE_SIDR_REP)
        compose_cm(t, tale, how);
    else if (tale->type == SOFT_MSG_HELLO)
        compose_hello(tale);
    else if (tale->type == SOFT_MSG_LINK ||
             (tale->type >= SOFT_MSG_UD_RING && tale->type <= SOFT_MSG_UD_CLOSE))
        compose_ring(t, tale, how);
    else if (tale->type >= SOFT_MSG_REGION && tale->type <= SOFT_MSG_REGION_DROP)
        compose_region(tale, how);
    else if (tale->type >= SOFT_MSG_GROUP_ASK && tale->type <= SOFT_MSG_GROUP_OK)
        compose_group(t, tale, how);
    else if (tale->type == SOFT_MSG_CQ_BELL)
        compose_bell(t, tale, how);
    else if (tale->type == SOFT_MSG_KEYS)
        tale->bytes = 8, tale->fd[tale->fds++] = files[FILE_KEYS];
}

/* A word, a length or a descriptor other than it should be. Returns the length that the head tells. */
static uint32_t change(struct tale *tale, struct fuzz_input *in) {
    uint64_t which = fuzz_take(in, 1), value = fuzz_take(in, 4);
    uint32_t told = (uint32_t)tale->bytes;
    if (which < 192)
        tale->body[which % 80] = (uint32_t)value;
    else if (which < 208)
        told = (uint32_t)value;
    else if (which < 224)
        told = (uint32_t)(tale->bytes = value % (SOFT_MSG_BYTES_MAX + 1));
    else if (tale->fds < 3)
        tale->fd[tale->fds++] = files[value % FILES];
    else
        tale->fds = 0;
    return told;
}

void teller_tell(struct teller *t, struct fuzz_input *in) {
    static const uint8_t types[] = {SOFT_MSG_LINK,
                                    SOFT_MSG_UNLINK,
                                    SOFT_MSG_REGION,
                                    SOFT_MSG_REGION_OK,
                                    SOFT_MSG_REGION_DROP,
                                    SOFT_MSG_KEYS,
                                    SOFT_MSG_UD_RING,
                                    SOFT_MSG_UD_OK,
                                    SOFT_MSG_UD_REFUSE,
                                    SOFT_MSG_UD_CLOSE,
                                    SOFT_MSG_GROUP_ASK,
                                    SOFT_MSG_GROUP_JOIN,
                                    SOFT_MSG_GROUP_LEAVE,
                                    SOFT_MSG_GROUP_OK,
                                    SOFT_MSG_FENCE,
                                    SOFT_MSG_FENCE_OK,
                                    SOFT_CM_WIRE_REQ,
                                    SOFT_CM_WIRE_REQ,
                                    SOFT_CM_WIRE_MRA,
                                    SOFT_CM_WIRE_REP,
                                    SOFT_CM_WIRE_REP,
                                    SOFT_CM_WIRE_RTU,
                                    SOFT_CM_WIRE_REJ,
                                    SOFT_CM_WIRE_DREQ,
                                    SOFT_CM_WIRE_DREP,
                                    SOFT_CM_WIRE_SIDR_REQ,
                                    SOFT_CM_WIRE_SIDR_REP,
                                    SOFT_MSG_HELLO,
                                    0,
                                    SOFT_MSG_CQ_BELL,
                                    SOFT_CM_WIRE_MPA_REQ,
                                    255};
    uint64_t how = fuzz_take(in, 2);
    struct tale tale = {.type = types[(how & 255) % sizeof types]};
    compose(t, &tale, how >> 8);
    unsigned made = tale.fds;
    bool own =
        tale.type == SOFT_MSG_HELLO || tale.type == SOFT_MSG_LINK || tale.type == SOFT_MSG_UD_RING;
    int first = made ? tale.fd[0] : -1;
    uint32_t told = (uint32_t)tale.bytes;
    for (uint64_t changes = fuzz_take(in, 1); changes >= 208 && in->left > 0; changes -= 16)
        told = change(&tale, in);
    send_tale(t, &tale, told);
    if (own && made)
        close(first);
    teller_hear(t);
}
