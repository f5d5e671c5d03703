/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * half_open_fuzz.c - plain sockets at a listener's TCP port: any bytes in any pieces, ends and resets anywhere, while the
 * application accepts, refuses, looks away and listens anew. Whoever asks rightly afterwards is heard, and nothing is left.
 *
 * Input: acts, each of a byte (the act, and at which socket) and what it takes besides.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "soft/cm/id.h"
#include "soft/iwarp/handshake.h"
#include "soft/soft.h"

#define SOCKETS 4u
#define IDS 8u
#define ACTS 64u
#define BACKLOG 2
#define WAIT_MS 20000

enum act { DIAL, SAY, ASK, ASK_WRONG, END, RESET, ANSWER, REFUSE, DROP, LISTEN, WAIT, ACT_COUNT };

static struct {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *id[IDS];
    uint16_t port;
    unsigned sockets; /* of the internet family, when nothing goes on */
    int fd[SOCKETS];
    size_t said[SOCKETS]; /* of a right request */
} world;

/* ---- what there is ------------------------------------------------------------------------------------------- */

static unsigned count_sockets(void) {
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++) {
        int family = 0;
        socklen_t bytes = sizeof family;
        count += getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_INET;
    }
    return count;
}

static void listen_anew(void) {
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (world.listener)
        PROVE(soft_destroy_id(world.listener) == 0);
    PROVE(soft_create_id(world.channel, &world.listener, NULL, RDMA_PS_TCP) == 0);
    PROVE(soft_bind_addr(world.listener, (struct sockaddr *)&any) == 0);
    PROVE(soft_listen(world.listener, BACKLOG) == 0);
    world.port = ntohs(soft_get_src_port(world.listener));
}

static void world_open(void) {
    if (world.channel)
        return;
    setenv("SLUICE_SOFT_NET", "require", 1);
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "160", 1); /* what found no room is offered again soon */
    world.channel = soft_create_event_channel();
    PROVE(world.channel);
    for (unsigned i = 0; i < SOCKETS; i++)
        world.fd[i] = -1;
    listen_anew();
    world.sockets = count_sockets();
}

/* ---- the peer ------------------------------------------------------------------------------------------------ */

static int dial(void) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons(world.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = WAIT_MS / 1000};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PROVE(fd >= 0 && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    PROVE(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    PROVE(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    return fd;
}

static void say(int fd, const uint8_t *data, size_t bytes) {
    if (bytes > 0) /* it may have been ended over there */
        (void)!send(fd, data, bytes, MSG_NOSIGNAL);
}

static size_t right(uint8_t out[IWARP_HANDSHAKE_MAX]) {
    struct iwarp_offer own = {.crc = true, .peer_to_peer = true, .ird = 4, .ord = 4};
    struct iwarp_handshake request = iwarp_handshake_request(&own, "right", 5);
    return iwarp_handshake_put(out, &request);
}

/* So much more of a right request, of which a byte may be wrong. */
static void ask(unsigned i, size_t most, uint8_t wrong) {
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    size_t count = right(bytes), left = count - world.said[i], n = most < left ? most : left;
    uint8_t *at = bytes + world.said[i];
    if (n > 0)
        at[wrong % n] ^= wrong;
    say(world.fd[i], at, n);
    world.said[i] += n;
}

static void shut(unsigned i, bool reset) {
    struct linger now = {.l_onoff = 1};
    if (reset)
        (void)setsockopt(world.fd[i], SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(world.fd[i]);
    world.fd[i] = -1;
}

/* ---- the application ----------------------------------------------------------------------------------------- */

static bool has_event(int ms) {
    struct pollfd fd = {.fd = world.channel->fd, .events = POLLIN};
    return poll(&fd, 1, ms) == 1;
}

static void answer(struct rdma_cm_id *id, enum act how) {
    struct rdma_conn_param param = {.qp_num = 0x1234, .private_data = "yes", .private_data_len = 3};
    unsigned i = 0;
    while (i < IDS && world.id[i])
        i++;
    if (how == ANSWER && i < IDS) {
        world.id[i] = id;
        (void)soft_accept(id, &param); /* it may be gone */
        return;
    }
    if (how == REFUSE)
        (void)soft_reject(id, "no", 2);
    PROVE(soft_destroy_id(id) == 0);
}

/* The next event, if there is one. */
static void look(enum act how) {
    struct rdma_cm_event *event;
    if (!has_event(0) || soft_get_cm_event(world.channel, &event) != 0)
        return;
    enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id *id = event->id;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
        PROVE(event->listen_id == world.listener &&
              event->param.conn.private_data_len == SOFT_CM_REQ_DATA);
    else
        PROVE(id != world.listener);
    PROVE(soft_ack_cm_event(event) == 0);
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
        answer(id, how);
}

/* ---- acts ---------------------------------------------------------------------------------------------------- */

static void act(struct fuzz_input *in) {
    unsigned byte = (unsigned)fuzz_take(in, 1), i = byte / ACT_COUNT % SOCKETS;
    enum act what = (enum act)(byte % ACT_COUNT);
    size_t n;
    switch (what) {
    case ANSWER:
    case REFUSE:
    case DROP:
        look(what);
        return;
    case LISTEN:
        listen_anew();
        return;
    case WAIT:
        (void)has_event(2); /* the engine has its turn */
        return;
    default:
        break;
    }
    if (world.fd[i] < 0) {
        world.fd[i] = dial();
        world.said[i] = 0;
    }
    if (what == SAY) {
        n = (size_t)fuzz_take(in, 1) % 32;
        n = n < in->left ? n : in->left;
        say(world.fd[i], in->at, n);
        in->at += n;
        in->left -= n;
    } else if (what == ASK || what == ASK_WRONG) {
        n = (size_t)fuzz_take(in, 1);
        ask(i, n, what == ASK_WRONG ? (uint8_t)fuzz_take(in, 1) : 0);
    } else if (what == END || what == RESET) {
        shut(i, what == RESET);
    }
}

/* ---- behind them --------------------------------------------------------------------------------------------- */

static void clear(void) {
    for (unsigned i = 0; i < SOCKETS; i++)
        if (world.fd[i] >= 0)
            shut(i, false);
    for (unsigned i = 0; i < IDS; i++)
        if (world.id[i])
            PROVE(soft_destroy_id(world.id[i]) == 0);
    memset(world.id, 0, sizeof world.id);
}

/* Others may still be asking: they are dropped until it is this one's turn. */
static void a_right_one_is_heard(void) {
    uint8_t bytes[IWARP_HANDSHAKE_MAX], reply[20];
    int fd = dial();
    struct pollfd heard = {.fd = fd, .events = POLLIN};
    say(fd, bytes, right(bytes));
    for (unsigned i = 0; poll(&heard, 1, 1) == 0; i++) {
        look(REFUSE);
        PROVE(i < WAIT_MS);
    }
    PROVE(recv(fd, reply, sizeof reply, MSG_WAITALL) == sizeof reply && (reply[16] & 0x20));
    close(fd);
}

static void nothing_is_left(void) {
    for (unsigned i = 0; count_sockets() != world.sockets; i++) {
        look(DROP);
        PROVE(i < WAIT_MS);
        (void)has_event(1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    world_open();
    for (unsigned i = 0; i < ACTS && in.left > 0; i++)
        act(&in);
    clear();
    a_right_one_is_heard();
    nothing_is_left();
    return 0;
}
