/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net_test.c - whoever can reach the victim's TCP port, with plain sockets: an honest pair, over TCP too, measures its worst round
 * trip while the strangers do their worst, and afterwards the victim's descriptors, threads and memory are what they were.
 *
 * The strangers are a thread of this process, with an address of their own, so that what is held against an address is not
 * held against the honest.
 */
#include "support/side.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>

#include "core/wire/private_data.h"
#include "hostile/victim.h"
#include "soft/iwarp/ddp.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rdmap.h"
#include "support/iwarp.h"
#include "support/usage.h"

#define ROUNDS 400
#define MANY 96u /* sockets at a time; a listener has 64 without a request */
#define STRANGER 0x7f000002u
/* A sanitizer keeps what was freed for a while, or several bytes about each byte that was ever touched. */
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
#define MEMORY_MOST ((size_t)512 << 20)
#else
#define MEMORY_MOST ((size_t)64 << 20)
#endif

static _Atomic bool stop;
static _Atomic uint64_t turns;    /* of the stranger's */
static _Atomic uint64_t accepted; /* of those as a node */

/* ---- plain sockets, which take what they get ----------------------------------------------------------------- */

/* Connected from the strangers' address; -1: not now. */
static int dial(void) {
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(STRANGER)},
                       to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)victim_port()),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_usec = 200000};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    must(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    must(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0);
    must(bind(fd, (struct sockaddr *)&from, sizeof from) == 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool say(int fd, const void *data, size_t bytes) {
    return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}

static void shut(int fd) {
    struct linger now = {.l_onoff = 1}; /* its port is free at once */
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(fd);
}

/* A request with what a node says of itself. */
static size_t request(uint8_t out[IWARP_HANDSHAKE_MAX]) {
    static uint8_t count;
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    count++;
    struct iwarp_offer own = {.crc = true, .peer_to_peer = true, .ird = 4, .ord = 4};
    struct private_data_req req = {.version_min = PRIVATE_DATA_VERSION_MIN,
                                   .version_max = PRIVATE_DATA_VERSION_MAX,
                                   .features = PRIVATE_DATA_FEATURE_HANDSHAKE,
                                   .eager_log2 = 12,
                                   .message_log2 = 20,
                                   .depth_in = 4,
                                   .depth_out = 4,
                                   .credits = 4,
                                   .session_id = {count},
                                   .nonce = {count}};
    private_data_req_encode(&req, data);
    struct iwarp_handshake handshake = iwarp_handshake_request(&own, data, sizeof data);
    return iwarp_handshake_put(out, &handshake);
}

/* Up to the listener's reply. -1: it is not accepted, or not now. */
static int connect_as_a_node(void) {
    uint8_t bytes[IWARP_HANDSHAKE_MAX], reply[512];
    int fd = dial();
    if (fd >= 0 && say(fd, bytes, request(bytes)) && recv(fd, reply, 20, MSG_WAITALL) == 20 &&
        !(reply[16] & 0x20) && recv(fd, reply + 20, sizeof reply - 20, 0) > 0) {
        atomic_fetch_add(&accepted, 1);
        return fd;
    }
    if (fd >= 0)
        shut(fd);
    return -1;
}

/* Until its end, or for a while. */
static void read_away(int fd) {
    uint8_t bytes[4096];
    while (recv(fd, bytes, sizeof bytes, 0) > 0)
        continue;
}

/* ---- what they do; each call is a turn ----------------------------------------------------------------------- */

static int held[MANY];
static unsigned next_held;

static void hold(int fd) {
    if (held[next_held] >= 0)
        shut(held[next_held]);
    held[next_held] = fd;
    next_held = (next_held + 1) % MANY;
}

static void say_nothing(void) {
    hold(dial());
}

/* Each socket has its next byte in turn. */
static void say_a_byte(void) {
    static size_t said[MANY];
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    size_t count = request(bytes);
    for (unsigned i = 0; i < MANY; i++) {
        if (held[i] < 0) {
            held[i] = dial();
            said[i] = 0;
        } else if (said[i] + 1 >= count || !say(held[i], bytes + said[i], 1)) {
            shut(held[i]);
            held[i] = -1;
        } else {
            said[i]++;
        }
    }
}

/* And stay to be read away. */
static void ask_for_markers(void) {
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    size_t count = request(bytes);
    int fd = dial();
    bytes[16] |= 0x80;
    if (fd >= 0)
        (void)say(fd, bytes, count);
    hold(fd);
}

static void ask_and_go(void) {
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    int fd = dial();
    if (fd < 0)
        return;
    (void)say(fd, bytes, request(bytes));
    shut(fd);
}

static void guess(void) {
    static uint32_t key = 0x1000;
    uint8_t frame[256];
    struct iwarp_ddp write = {.opcode = IWARP_WRITE, .last = true, .stag = key += 0x101};
    int fd = connect_as_a_node();
    if (fd < 0)
        return;
    (void)say(fd, frame, iwarp_frame(frame, &write, "guessed!", 8));
    read_away(fd);
    shut(fd);
}

/* READs of nothing and of something, more than were agreed on, whose answers nobody reads. */
static void ask_to_read(void) {
    static uint8_t frames[200 * 64];
    uint8_t payload[IWARP_READ_BYTES];
    size_t bytes = 0;
    int fd = connect_as_a_node();
    if (fd < 0)
        return;
    for (uint32_t msn = 1; msn <= 200; msn++) {
        struct iwarp_ddp ask = {.opcode = IWARP_READ_REQUEST, .last = true, .queue = 1, .msn = msn};
        iwarp_read_put(payload, &(struct iwarp_read){.bytes = 0});
        bytes += iwarp_frame(frames + bytes, &ask, payload, sizeof payload);
    }
    for (unsigned i = 0; i < 10 && say(fd, frames, bytes); i++)
        continue;
    hold(fd);
}

/* The beginning of a frame, and nothing more of it. */
static void stop_inside(void) {
    uint8_t frame[256];
    struct iwarp_ddp send = {.opcode = IWARP_SEND, .last = true, .msn = 1};
    int fd = connect_as_a_node();
    if (fd >= 0)
        (void)say(fd, frame, iwarp_frame(frame, &send, "half of it", 10) / 2);
    hold(fd);
}

/* Anything, for as long as it is listened to. */
static void babble(void) {
    static uint32_t seed = 1;
    uint8_t bytes[1024];
    int fd = connect_as_a_node();
    if (fd < 0)
        return;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)iwarp_random(&seed);
    (void)say(fd, bytes, sizeof bytes);
    shut(fd);
}

/* ---- the test ------------------------------------------------------------------------------------------------ */

static void *go_on(void *turn) {
    while (!atomic_load(&stop)) {
        ((void (*)(void))turn)();
        atomic_fetch_add(&turns, 1);
    }
    for (unsigned i = 0; i < MANY; i++) {
        if (held[i] >= 0)
            shut(held[i]);
        held[i] = -1;
    }
    return NULL;
}

static const struct {
    const char *name;
    void (*turn)(void);
    unsigned turns, accepted; /* at least */
} attacks[] = {
    {"sockets that say nothing", say_nothing, 500, 0},
    {"requests of single bytes", say_a_byte, 200, 0},
    {"requests for markers", ask_for_markers, 300, 0},
    {"requests that nobody waits for", ask_and_go, 300, 0},
    {"READs whose answers nobody reads", ask_to_read, 20, 10},
    {"frames that do not go on", stop_inside, 20, 10},
    {"noise", babble, 20, 10},
    {"wrong keys", guess, 20, 16}, /* the last: from then on few of theirs are taken */
};

static void begin(pthread_t *stranger, unsigned i) {
    atomic_store(&stop, false);
    atomic_store(&turns, 0);
    atomic_store(&accepted, 0);
    for (unsigned h = 0; h < MANY; h++)
        held[h] = -1;
    must(pthread_create(stranger, NULL, go_on, (void *)attacks[i].turn) == 0);
}

static bool withstands(unsigned i) {
    pthread_t stranger;
    size_t resident = usage_resident();
    uint64_t until = sluice_now() + LIMIT_NS;
    victim_forget();
    victim_begin();
    (void)victim_take();
    begin(&stranger, i);
    victim_go_on(ROUNDS);
    for (unsigned seen = 0, now; (now = atomic_load(&turns)) < attacks[i].turns ||
                                 atomic_load(&accepted) < attacks[i].accepted;
         seen = now) {
        if (now != seen)
            until = sluice_now() + LIMIT_NS; /* of a turn */
        must(sluice_now() < until);
        sched_yield();
    }
    struct victim_worst worst = victim_take();
    must(usage_resident() < resident + MEMORY_MOST);
    atomic_store(&stop, true);
    must(pthread_join(stranger, NULL) == 0);
    victim_end();
    victim_tell(attacks[i].name, 0, &worst);
    return victim_withstood(&worst);
}

TEST(strangers_at_the_port_delay_nobody) {
    victim_open();
    for (unsigned i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        unsigned tries = 1;
        while (!withstands(i) && tries < VICTIM_TRIES)
            tries++;
        assert_in_range(tries, 1, VICTIM_TRIES - 1);
    }
    victim_close();
}

int main(void) {
    must_end_process = true; /* the honest pair has a thread of its own */
    setenv("SLUICE_SOFT_NET", "require", 1);
    return tests_run(NULL, NULL);
}
