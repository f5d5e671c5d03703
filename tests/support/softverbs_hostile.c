/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* softverbs_hostile.c - see softverbs_hostile.h. */
#include "support/softverbs_hostile.h"

uint32_t hostile_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

uint32_t hostile_nasty(uint64_t *state) {
    const uint32_t edge[] = {0,  1,          2,          61,         62,
                             63, 0x7fffffff, 0x80000000, UINT32_MAX, UINT32_MAX - 61};
    uint32_t r = hostile_random(state);
    return r % 3 ? edge[r / 3 % 10] : hostile_random(state);
}

int hostile_dial_name(const char *name) {
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    must(n < sizeof sun.sun_path);
    memcpy(sun.sun_path + 1, name, n);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    must(connect(fd, (struct sockaddr *)&sun,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) == 0);
    return fd;
}

int hostile_dial(uint32_t qpn) {
    char name[64];
    snprintf(name, sizeof name, "sluice-soft.%u/q/%u", SOFT_WIRE_VERSION, qpn / SOFT_QP_BLOCK);
    return hostile_dial_name(name);
}

void hostile_say(int sock, const void *data, size_t bytes, const int *fds, unsigned count) {
    char control[CMSG_SPACE(SOFT_FOREIGN_FDS * sizeof(int))] = {0};
    struct iovec iov = {(void *)(uintptr_t)data, bytes};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count) {
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
    }
    (void)!sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT); /* it may have hung up on us */
}

int hostile_shm_file(bool sealed, size_t bytes, uint32_t magic) {
    int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    const uint32_t head[2] = {magic, SOFT_WIRE_VERSION};
    must(pwrite(fd, head, sizeof head, 0) == sizeof head || bytes < sizeof head);
    if (sealed)
        must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

int hostile_bell(int *hears) {
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    if (hears)
        *hears = pair[0];
    else
        close(pair[0]);
    return pair[1];
}

int hostile_greet(uint32_t qpn, const struct hello *hello, int shm_page) {
    int sock = hostile_dial(qpn), fds[2] = {hostile_bell(NULL), shm_page};
    hostile_say(sock, hello, sizeof *hello, fds, 2);
    close(fds[0]);
    return sock;
}

const struct hello hostile_hello = {.type = SOFT_MSG_HELLO,
                                    .bytes = sizeof(struct hello) - 8,
                                    .magic = SOFT_WIRE_MAGIC,
                                    .version = SOFT_WIRE_VERSION,
                                    .uuid = "somebody else's"};

void hostile_noise(uint32_t qpn, uint64_t *seed) {
    int good = hostile_shm_file(true, sizeof(struct soft_shm_page), SOFT_SHM_PAGE_MAGIC);
    int ring = hostile_shm_file(true, SOFT_RING_BYTES, SOFT_RING_MAGIC);
    for (unsigned round = 0; round < 40; round++) {
        int sock = round % 4 ? hostile_greet(qpn, &hostile_hello, good) : hostile_dial(qpn);
        for (unsigned i = 0; i < 60; i++) {
            uint32_t words[300];
            size_t bytes = hostile_random(seed) % (i % 10 == 9 ? sizeof words : 60);
            for (unsigned k = 0; k < 300; k++)
                words[k] = hostile_random(seed) % 4 ? hostile_nasty(seed) : qpn;
            words[0] = hostile_random(seed) % SOFT_MSG_TYPES;
            words[1] = bytes >= 8 ? (uint32_t)bytes - 8 : 0;
            if (hostile_random(seed) % 16 == 0)
                words[1] = hostile_nasty(seed);
            int fds[3] = {i % 2 ? ring : good, sock, good};
            hostile_say(sock, words, bytes, fds, hostile_random(seed) % 4);
        }
        close(sock);
    }
    close(ring);
    close(good);
}

int hostile_lingering(int *other) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0 && fd >= 0);
    must(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    must(bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 1) == 0);
    must(getsockname(listener, (struct sockaddr *)&addr, &len) == 0);
    must(connect(fd, (struct sockaddr *)&addr, len) == 0);
    *other = accept(listener, NULL, NULL);
    must(*other >= 0);
    close(listener);
    static const char data[65536];
    while (send(fd, data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        ;
    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
    return fd;
}

/* ---- honest peers, both in this process, that go on meanwhile --------------------------------------- */

struct sv_end hostile_a, hostile_b;

/* Nothing of ours is being set up any more: descriptors can be counted. */
static bool hostile_settled(void) {
    bool settled = true;
    soft_lock();
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link) {
        settled = settled && peer->greeted && peer->bell.fd >= 0 && atomic_load(&peer->keys);
        for (unsigned k = 0; k < SOFT_MAX_REGIONS; k++)
            if (soft_regions[k].addr)
                settled = settled && atomic_load(&peer->region_sent[k]) == REGION_READY;
    }
    soft_unlock();
    return settled;
}

unsigned hostile_fds(void) {
    soft_lock();
    unsigned n = sv_fds();
    soft_unlock();
    return n;
}

void hostile_pair_open(void) {
    struct sv_options o = SV_OPTIONS(.mapped = true);
    sv_pair(&hostile_a, o, &hostile_b, o);
    sv_wait_mapped(&hostile_a);
    sv_wait_mapped(&hostile_b);
    sv_wait_staged(&hostile_a); /* the process has its last descriptor */
    /* Who called before this one, to see who is there, has been answered when it is. */
    int sock = hostile_dial(hostile_b.qp->qp_num);
    char byte;
    hostile_say(sock, "nonsense", 8, NULL, 0);
    must(recv(sock, &byte, 1, 0) <= 0); /* hung up on */
    close(sock);
    sv_until(hostile_settled());
}

void hostile_still_serves(uint32_t seed) {
    struct sv_end *a = &hostile_a, *b = &hostile_b;
    sv_fill(a->buf, 30000, seed);
    must(sv_recv(b, 1, 0, 65536) == 0);
    must(sv_send(a, 2, 0, 30000, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(b->rcq).status == IBV_WC_SUCCESS);
    must(sv_poll(a->scq).status == IBV_WC_SUCCESS);
    sv_check(b->buf, 30000, seed);
}

void hostile_pair_close(void) {
    hostile_still_serves(99);
    sv_unpair(&hostile_a, &hostile_b);
}
