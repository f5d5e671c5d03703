/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_disputed_test.c - a process of another user that takes names which a listener's address includes, or is included
 * by: it gets none of the connections of its listener's own user, and keeps none of the others from the listener. Needs
 * root to become other users; says so loudly and skips where it cannot.
 */
#define _GNU_SOURCE
#include "support/softcm.h"
#include "support/softverbs.h"
#include "support/network.h"
#include "support/rows.h"
#include "support/skip.h"
#include "support/squatter.h"

#include <stddef.h>
#include <sys/un.h>

#include "soft/cm/addr.h"
#include "soft/cm/port_name.h"
#include "soft/ipc/abstract_socket.h"
#include "soft/ipc/peer.h"

#define STRANGER_UID 65534
#define LISTENER_UID 65533
#define THIRD_UID 65532

static bool own_namespace;

static void needs_other_users(void) {
    if (!own_namespace)
        skip_with("needs root to run processes of other users, and a network namespace of its own");
}

/* ---- the stranger ----------------------------------------------------------------------------------- */

enum conduct {
    SILENT,   /* takes connections, and says nothing in them */
    HANGS_UP, /* as soon as it is greeted */
    REFUSES,  /* answers as a process does that does not listen */
    FULL,     /* takes no connection */
};

static struct squat {
    uid_t uid;
    const char *address; /* NULL: the wildcard of both families */
    enum conduct conduct;
    bool ud;
    uint16_t port;
} squat;

static void squat_name(char text[SOFT_CM_NAME_BYTES]) {
    struct soft_cm_port_name name = {.ps = squat.ud ? RDMA_PS_UDP : RDMA_PS_TCP,
                                     .port = squat.port,
                                     .afonly = squat.address != NULL};
    soft_cm_addr_any(&name.addr, squat.address ? AF_INET : AF_INET6);
    if (squat.address)
        must(inet_pton(AF_INET, squat.address, &((struct sockaddr_in *)&name.addr)->sin_addr) == 1);
    soft_cm_port_name_format(&name, 0, text);
}

/* The device itself answers for the name, and knows of no listener. */
static void refuse_all(int fd, const char *text) {
    static struct soft_abstract_socket name;
    must(soft_create_event_channel());
    soft_lock();
    must(soft_abstract_socket_bind(&name, text, soft_peer_accepted) == 0);
    soft_unlock();
    sv_tell(fd, 1);
    (void)sv_hear(fd);
    sv_tell(fd, 0);
}

static void fill(const char *text) {
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    memcpy(sun.sun_path + 1, text, strlen(text));
    for (unsigned i = 0; i < 64; i++) {
        int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        must(sock >= 0);
        if (connect(sock, (struct sockaddr *)&sun,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text))) != 0) {
            must(errno == EAGAIN);
            return;
        }
    }
    must(false);
}

/* Says at the end how often somebody has said something to it: who only looks whose the name is says nothing. */
static void hear_all(int fd, int sock) {
    uint32_t heard = 0;
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = sock, .events = POLLIN}};
    char byte;
    for (;;) {
        must(poll(fds, 2, -1) > 0);
        if (fds[0].revents)
            break;
        int one = accept(sock, NULL, NULL);
        must(one >= 0);
        bool said = recv(one, &byte, 1, 0) > 0;
        heard += said;
        if (!said || squat.conduct == HANGS_UP)
            close(one);
    }
    (void)sv_hear(fd);
    sv_tell(fd, heard);
}

static void stranger(int fd) {
    char text[SOFT_CM_NAME_BYTES];
    squatter_become(squat.uid);
    squat_name(text);
    if (squat.conduct == REFUSES) {
        refuse_all(fd, text);
        return;
    }
    int sock = squatter_take(text, true);
    if (squat.conduct == FULL)
        fill(text);
    sv_tell(fd, 1);
    if (squat.conduct != FULL) {
        hear_all(fd, sock);
        return;
    }
    (void)sv_hear(fd);
    sv_tell(fd, 0);
}

static struct sv_child stranger_begin(struct squat how) {
    squat = how;
    struct sv_child child = sv_fork(stranger);
    must(sv_hear(child.fd) == 1);
    return child;
}

/* How often it was asked. */
static uint32_t stranger_end(struct sv_child *child) {
    sv_tell(child->fd, 0);
    uint32_t heard = sv_hear(child->fd);
    must(sv_join(child) == 0);
    return heard;
}

/* ---- of the listener's own user --------------------------------------------------------------------- */

TEST(a_more_exact_name_of_another_user_gets_nothing) {
    needs_other_users();
    struct ct_pair pair = {.active_channel = soft_create_event_channel(),
                           .passive_channel = soft_create_event_channel()};
    pair.listener = ct_id(pair.passive_channel);
    struct sockaddr_in any = softcm_in("0.0.0.0", 0);
    assert_int_equal(soft_bind_addr(pair.listener, (struct sockaddr *)&any), 0);
    assert_int_equal(soft_listen(pair.listener, 8), 0);
    pair.port = ntohs(soft_get_src_port(pair.listener));
    struct sv_child child = stranger_begin(
        (struct squat){.uid = STRANGER_UID, .address = "127.0.0.1", .port = pair.port});
    pair.active = ct_connect(pair.active_channel, pair.port);
    pair.passive = ct_request(pair.passive_channel);
    assert_non_null(pair.passive);
    ct_pair_free(&pair);
    assert_int_equal(stranger_end(&child), 0);
}

/* Its queue may be full for a moment: nobody else gets what is for it meanwhile. */
TEST(a_full_queue_of_our_own_user_is_waited_for) {
    needs_other_users();
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    uint16_t port = ct_listen(id, 8);
    assert_int_equal(soft_destroy_id(id), 0); /* the port is free */
    struct sv_child own = stranger_begin(
        (struct squat){.uid = geteuid(), .address = "127.0.0.1", .conduct = FULL, .port = port});
    struct sv_child other =
        stranger_begin((struct squat){.uid = STRANGER_UID, .address = "0.0.0.0", .port = port});
    id = ct_connect(channel, port);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    ct_destroy(id);
    soft_destroy_event_channel(channel);
    assert_int_equal(stranger_end(&other), 0);
    (void)stranger_end(&own);
}

/* ---- of a third user -------------------------------------------------------------------------------- */

static const struct disputed_row {
    const char *listens, *squats; /* NULL: at the wildcard of both families */
    enum conduct conduct;
    bool ud;
    bool asked; /* the stranger is */
} * row;

static struct rdma_cm_id *next_event(struct rdma_event_channel *channel,
                                     enum rdma_cm_event_type type) {
    struct rdma_cm_event *event;
    must(soft_get_cm_event(channel, &event) == 0);
    must(event->event == type);
    struct rdma_cm_id *id = event->id;
    must(soft_ack_cm_event(event) == 0);
    return id;
}

static void listener(int fd) {
    struct rdma_cm_id *listening, *id;
    squatter_become(LISTENER_UID);
    struct sockaddr_storage addr;
    soft_cm_addr_any(&addr, row->listens ? AF_INET : AF_INET6);
    if (row->listens)
        must(inet_pton(AF_INET, row->listens, &((struct sockaddr_in *)&addr)->sin_addr) == 1);
    struct rdma_event_channel *channel = soft_create_event_channel();
    must(channel);
    must(soft_create_id(channel, &listening, NULL, row->ud ? RDMA_PS_UDP : RDMA_PS_TCP) == 0);
    must(soft_bind_addr(listening, (struct sockaddr *)&addr) == 0);
    must(soft_listen(listening, 8) == 0);
    sv_tell(fd, ntohs(soft_get_src_port(listening)));
    id = next_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_conn_param param = ct_param(NULL, 0);
    must(soft_accept(id, &param) == 0);
    if (!row->ud)
        must(next_event(channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    (void)sv_hear(fd);
    must(soft_destroy_id(id) == 0 && soft_destroy_id(listening) == 0);
    soft_destroy_event_channel(channel);
}

static void reaches_the_listener(void **state) {
    needs_other_users();
    row = *state;
    struct sv_child server = sv_fork(listener);
    uint16_t port = (uint16_t)sv_hear(server.fd);
    struct sv_child child = stranger_begin((struct squat){.uid = STRANGER_UID,
                                                          .address = row->squats,
                                                          .conduct = row->conduct,
                                                          .ud = row->ud,
                                                          .port = port});
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = row->ud ? ct_ud_id(channel) : ct_id(channel);
    ct_resolve(id, port);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(soft_connect(id, &param), 0);
    if (row->ud) {
        assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    } else {
        assert_int_equal(ct_take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
        assert_int_equal(soft_establish(id), 0);
    }
    uint32_t heard = stranger_end(&child);
    assert_int_equal(heard > 0, row->asked);
    sv_tell(server.fd, 0);
    must(sv_join(&server) == 0);
    ct_destroy(id);
    soft_destroy_event_channel(channel);
}

#define REACHES(name, ...) ROW(name, reaches_the_listener, disputed_row, __VA_ARGS__)

/* Who has said to that dial that there is no listener, or nothing at all. */
static const struct nobody_row {
    enum conduct conduct;
    int event, status;
} * nobody;

/* Of this process nothing is left, and no thread, when it returns: processes may be forked. */
static uint16_t free_port(void) {
    struct rdma_event_channel *channel = ct_channel();
    struct rdma_cm_id *id = ct_id(channel);
    uint16_t port = ct_listen(id, 8);
    ct_destroy(id);
    soft_destroy_event_channel(channel);
    return port;
}

static void nobody_serves(void **state) {
    needs_other_users();
    nobody = *state;
    struct ct_pair pair = {.port = free_port()};
    struct sv_child one = stranger_begin((struct squat){.uid = STRANGER_UID,
                                                        .address = "127.0.0.1",
                                                        .conduct = nobody->conduct,
                                                        .port = pair.port});
    struct sv_child two = stranger_begin((struct squat){
        .uid = THIRD_UID, .address = "0.0.0.0", .conduct = nobody->conduct, .port = pair.port});
    pair.active_channel = ct_channel();
    pair.passive_channel = ct_channel();
    pair.active = ct_connect(pair.active_channel, pair.port);
    assert_int_equal(ct_take(pair.active_channel, nobody->event), nobody->status);
    ct_pair_free(&pair);
    (void)stranger_end(&one);
    (void)stranger_end(&two);
}

/* ---- ports that the system chooses ------------------------------------------------------------------ */

#define FIRST_PORT 40000
#define PORTS 64
#define FREE_PORT (FIRST_PORT + 41)

static void has_all_ports_but_one(int fd) {
    char text[SOFT_CM_NAME_BYTES];
    squatter_become(STRANGER_UID);
    squat = (struct squat){.address = "127.0.0.99"};
    for (unsigned i = 0; i < PORTS; i++) {
        squat.port = (uint16_t)(FIRST_PORT + i);
        squat_name(text);
        if (squat.port != FREE_PORT)
            (void)squatter_take(text, true);
    }
    sv_tell(fd, 1);
    (void)sv_hear(fd);
}

static void choose_from(unsigned first, unsigned last) {
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "we");
    must(file && fprintf(file, "%u %u\n", first, last) > 0 && fclose(file) == 0);
}

TEST(the_only_port_that_strangers_leave_is_found) {
    needs_other_users();
    choose_from(FIRST_PORT, FIRST_PORT + PORTS - 1); /* of this network namespace */
    struct sv_child child = sv_fork(has_all_ports_but_one);
    must(sv_hear(child.fd) == 1);
    for (unsigned i = 0; i < 8; i++) {
        struct rdma_event_channel *channel = ct_channel();
        struct rdma_cm_id *id = ct_id(channel), *other = ct_id(channel);
        struct sockaddr_in addr = ct_address(0);
        assert_int_equal(ct_listen(id, 8), FREE_PORT);
        assert_fails(soft_bind_addr(other, (struct sockaddr *)&addr), EADDRNOTAVAIL);
        ct_destroy(id);
        ct_destroy(other);
        soft_destroy_event_channel(channel);
    }
    sv_tell(child.fd, 0);
    must(sv_join(&child) == 0);
    choose_from(32768, 60999);
}

#define NOBODY(name, ...) ROW(name, nobody_serves, nobody_row, __VA_ARGS__)

TEST_CASES(REACHES(a_narrower_name_gets_nothing, .listens = "0.0.0.0", .squats = "127.0.0.1"),
           REACHES(nor_does_one_below_the_wildcard_of_both_families, .squats = "0.0.0.0"),
           REACHES(a_wider_name_that_is_silent_is_passed_over, .listens = "127.0.0.1",
                   .squats = "0.0.0.0", .asked = true),
           REACHES(so_is_one_that_hangs_up, .listens = "127.0.0.1", .squats = "0.0.0.0",
                   .conduct = HANGS_UP, .asked = true),
           REACHES(so_is_one_that_refuses, .listens = "127.0.0.1", .conduct = REFUSES),
           REACHES(so_is_one_that_takes_nobody, .listens = "127.0.0.1", .squats = "0.0.0.0",
                   .conduct = FULL),
           REACHES(a_datagram_service_is_found_behind_one_that_refuses, .listens = "127.0.0.1",
                   .squats = "0.0.0.0", .conduct = REFUSES, .ud = true),
           NOBODY(a_port_whose_holders_all_refuse_is_refused, .conduct = REFUSES,
                  .event = RDMA_CM_EVENT_REJECTED, .status = SOFT_CM_REJECT_NO_LISTENER),
           NOBODY(a_port_whose_holders_are_all_silent_is_given_up, .conduct = SILENT,
                  .event = RDMA_CM_EVENT_UNREACHABLE, .status = -ETIMEDOUT));

int main(void) {
    own_namespace = network_separate();
    softcm_start();
    return tests_run(NULL, NULL);
}
