/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_process_test.c - the two ends in two processes: names, conflicts, death, fork.
 *
 * The other process is this program again, started with a role. It reports over a pipe, one line a
 * step, and then waits for its end: a test always knows where the other side is when it kills it.
 */
#include "support/child.h"
#include "support/softcm.h"
#include "support/rows.h"

#include <sys/wait.h>

#include "soft/cm/port_cache.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/peer_internal.h"
#include "soft/ipc/peer_queue.h"

/* ---- roles of the other process ------------------------------------------------------------------ */

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("failed %s: %s\n", #condition, strerror(errno));                                \
            fflush(stdout);                                                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void say(const char *word, int value) {
    printf("%s %d\n", word, value);
    fflush(stdout);
}

/* Ends with the parent, which holds the other end of standard input. */
static void wait_for_the_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    _exit(0);
}

static struct rdma_cm_event *next(struct rdma_event_channel *channel, int type) {
    struct rdma_cm_event *event;
    must(!soft_get_cm_event(channel, &event));
    if ((int)event->event != type)
        say(soft_event_str(event->event), event->status);
    must((int)event->event == type);
    return event;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel) {
    struct rdma_cm_id *id;
    must(!soft_create_id(channel, &id, NULL, RDMA_PS_TCP));
    return id;
}

static void bind_to(struct rdma_cm_id *id, const char *host, int port) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    must(inet_pton(AF_INET, host, &addr.sin_addr) == 1);
    must(!soft_bind_addr(id, (struct sockaddr *)&addr));
}

/* server STEP: listens, and goes on up to the step. */
static void role_server(const char *step, const char *host) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    must(channel);
    struct rdma_cm_id *listener = new_id(channel);
    bind_to(listener, host, 0);
    if (strcmp(step, "bind"))
        must(!soft_listen(listener, 8));
    say("port", ntohs(soft_get_src_port(listener)));
    if (!strcmp(step, "bind") || !strcmp(step, "listen"))
        wait_for_the_end();
    struct rdma_cm_event *request = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    struct rdma_cm_id *id = request->id;
    say("requested", 0);
    if (!strcmp(step, "request"))
        wait_for_the_end();
    struct rdma_conn_param param = ct_param("served", 6);
    must(!soft_accept(id, &param));
    if (!strcmp(step, "accept")) {
        say("accepted", 0);
        wait_for_the_end();
    }
    soft_ack_cm_event(next(channel, RDMA_CM_EVENT_ESTABLISHED));
    if (!strcmp(step, "move")) { /* gives the port up and lives on */
        soft_ack_cm_event(next(channel, RDMA_CM_EVENT_DISCONNECTED));
        soft_ack_cm_event(request);
        must(!soft_destroy_id(id) && !soft_destroy_id(listener));
        say("given", 0);
        wait_for_the_end();
    }
    if (!strcmp(step, "fork")) {
        pid_t child = fork();
        must(child >= 0);
        if (!child)
            for (;;)
                pause(); /* holds copies of every descriptor; killed by the test */
        say("child", (int)child);
    }
    say("established", 0);
    wait_for_the_end();
}

/* client STEP PORT */
static void role_client(const char *step, int port) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    must(channel);
    struct rdma_cm_id *id = new_id(channel);
    struct sockaddr_in dst = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    must(!soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000));
    soft_ack_cm_event(next(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
    must(!soft_resolve_route(id, 1000));
    soft_ack_cm_event(next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
    struct rdma_conn_param param = ct_param("asked", 5);
    must(!soft_connect(id, &param));
    say("asked", 0);
    if (!strcmp(step, "ask"))
        wait_for_the_end();
    soft_ack_cm_event(next(channel, RDMA_CM_EVENT_CONNECT_RESPONSE));
    if (!strcmp(step, "response")) {
        say("answered", 0);
        wait_for_the_end();
    }
    must(!soft_establish(id));
    say("established", 0);
    wait_for_the_end();
}

/* ---- the tests' side ------------------------------------------------------------------------------ */

struct other {
    pid_t pid;
    int in;
    FILE *out;
};

static void start(struct other *other, const char *role, const char *step, const char *arg) {
    int in[2], out[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    fcntl(in[1], F_SETFD, FD_CLOEXEC);
    fcntl(out[0], F_SETFD, FD_CLOEXEC);
    other->pid = child_fork();
    assert_true(other->pid >= 0);
    if (!other->pid) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]);
        close(out[1]);
        execl("/proc/self/exe", "softcm_process_test", role, step, arg, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    other->in = in[1];
    other->out = fdopen(out[0], "r");
    assert_non_null(other->out);
}

/* The value of the next line, which must be this word's. */
static int hear(struct other *other, const char *word) {
    char line[200] = "", got[200] = "";
    int value = -1;
    if (!fgets(line, sizeof line, other->out) || sscanf(line, "%199s %d", got, &value) != 2 ||
        strcmp(got, word))
        fail_msg("\"%s\" instead of %s", line, word);
    return value;
}

static void finish(struct other *other, int signal) {
    int status;
    if (signal)
        kill(other->pid, signal);
    close(other->in);
    assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
    fclose(other->out);
    if (!signal)
        assert_int_equal(status, 0);
}

struct local {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
};

static void local_open(struct local *local) {
    local->channel = soft_create_event_channel();
    assert_non_null(local->channel);
    local->id = NULL;
}

static void local_close(struct local *local) {
    if (local->id)
        soft_destroy_id(local->id);
    soft_destroy_event_channel(local->channel);
}

/* Connects to the other process and takes the connection up. */
static void local_connect_up(struct local *local, uint16_t port) {
    local_open(local);
    local->id = ct_connect(local->channel, port);
    struct rdma_cm_event *event = ct_expect(local->channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    assert_memory_equal(event->param.conn.private_data, "served", 7);
    soft_ack_cm_event(event);
    assert_int_equal(soft_establish(local->id), 0);
}

TEST(connection_between_processes) {
    struct other server;
    struct local local;
    start(&server, "server", "establish", "127.0.0.1");
    local_connect_up(&local, (uint16_t)hear(&server, "port"));
    hear(&server, "requested");
    hear(&server, "established");
    finish(&server, 0); /* it just exits */
    assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(soft_disconnect(local.id), 0);
    assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_TIMEWAIT_EXIT), 0);
    local_close(&local);
}

TEST(kill_of_a_listener_frees_its_port) {
    struct other server;
    struct local local;
    start(&server, "server", "listen", "127.0.0.1");
    uint16_t port = (uint16_t)hear(&server, "port");
    finish(&server, SIGKILL);
    local_open(&local);
    struct rdma_cm_id *refused = ct_connect(local.channel, port);
    assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_REJECTED), 8);
    soft_destroy_id(refused);
    local.id = ct_id(local.channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(local.id, (struct sockaddr *)&addr), 0);
    local_close(&local);
}

static bool has_been_told_to_wait(struct rdma_cm_id *id) {
    soft_lock();
    bool waiting = soft_cm_id_of(id)->conn.waiting;
    soft_unlock();
    return waiting;
}

/* When the request of this id will be sent again; and how often at most. */
static uint64_t next_try_ns(struct rdma_cm_id *id, unsigned *left) {
    soft_lock();
    const struct soft_cm_conn *conn = &soft_cm_id_of(id)->conn;
    uint64_t due_ns = conn->timer.due_ns;
    *left = conn->tries_left;
    bool unsent = conn->unsent > 0 && conn->state == SOFT_CM_CONN_REQ_SENT;
    soft_unlock();
    assert_true(unsent);
    return due_ns;
}

/* From now on no message that is repeated finds room on its way to the server. Returns how many messages wait. */
static unsigned stand_still(struct other *server, struct rdma_cm_id *id) {
    assert_int_equal(kill(server->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(server->pid, NULL, WUNTRACED), server->pid);
    soft_lock();
    struct soft_peer *peer = soft_cm_id_of(id)->conn.peer;
    unsigned count = 0;
    while (soft_peer_send_repeated(peer, SOFT_MSG_GROUP_ASK, NULL, 0) == 0 &&
           count < 4 * SOFT_PEER_QUEUE)
        count++;
    unsigned waiting = peer->doomed ? SOFT_PEER_QUEUE : peer->out_count;
    soft_unlock();
    return waiting;
}

static unsigned messages_waiting(pid_t pid) {
    unsigned count = 0;
    struct soft_peer *peer;
    soft_lock();
    cds_list_for_each_entry(peer, &soft_peers, link)
        count += soft_peer_pid(peer) == pid ? peer->out_count : 0;
    soft_unlock();
    return count;
}

/* A process that dials by the thousand, and one that answers slowly: neither takes the other for dead. */
TEST(requests_by_the_thousand_to_a_process_that_stands_still_end_nothing) {
    struct other server;
    struct local local;
    start(&server, "server", "listen", "127.0.0.1");
    uint16_t port = (uint16_t)hear(&server, "port");
    local_open(&local);
    local.id = ct_connect(local.channel, port);
    softcm_until(has_been_told_to_wait(local.id));
    assert_true(stand_still(&server, local.id) < SOFT_PEER_QUEUE);
    struct rdma_cm_id *behind = ct_connect(local.channel, port);
    unsigned before, left;
    uint64_t due_ns = next_try_ns(behind, &before);
    for (unsigned i = 0; i <= before; i++) { /* more often than it would be tried in vain */
        uint64_t last_ns = due_ns;
        softcm_until((due_ns = next_try_ns(behind, &left)) != last_ns);
        assert_int_equal(left, before);
    }
    assert_int_equal(kill(server.pid, SIGCONT), 0);
    softcm_until(has_been_told_to_wait(behind));
    assert_false(ct_readable(local.channel, 0));
    soft_destroy_id(behind);
    finish(&server, SIGKILL);
    local_close(&local);
}

/* They are taken back by the thousand as well, and fill no queue by that. */
TEST(requests_that_are_given_up_fill_no_queue) {
    struct other server;
    struct local local;
    start(&server, "server", "listen", "127.0.0.1");
    uint16_t port = (uint16_t)hear(&server, "port");
    local_open(&local);
    struct rdma_cm_id *sent = ct_connect(local.channel, port);
    softcm_until(has_been_told_to_wait(sent));
    local.id = ct_connect(local.channel, port);
    unsigned waiting = stand_still(&server, local.id);
    assert_int_equal(soft_destroy_id(ct_connect(local.channel, port)), 0);
    assert_int_equal(messages_waiting(server.pid), waiting);
    assert_int_equal(soft_destroy_id(sent), 0);
    assert_int_equal(messages_waiting(server.pid), waiting);
    finish(&server, SIGKILL);
    local_close(&local);
}

/* The id goes as well, and nothing sends it again. */
TEST(a_disconnect_finds_room_behind_requests_by_the_thousand) {
    struct other server;
    struct local local;
    start(&server, "server", "move", "127.0.0.1");
    local_connect_up(&local, (uint16_t)hear(&server, "port"));
    hear(&server, "requested");
    softcm_until(softcm_conn_state(local.id) == SOFT_CM_CONN_UP);
    (void)stand_still(&server, local.id);
    assert_int_equal(soft_disconnect(local.id), 0);
    assert_int_equal(soft_destroy_id(local.id), 0);
    local.id = NULL;
    assert_int_equal(kill(server.pid, SIGCONT), 0);
    hear(&server, "given"); /* it was told DISCONNECTED */
    finish(&server, 0);
    local_close(&local);
}

static bool stays_behind(struct rdma_cm_id *id) {
    soft_lock();
    bool unsent = soft_cm_id_of(id)->conn.unsent > 0;
    soft_unlock();
    return unsent;
}

/* Thousands are repeated all the time that a process takes for what it was sent before. */
TEST(a_disconnect_that_is_repeated_fills_no_queue) {
    struct other server;
    struct local local;
    start(&server, "server", "move", "127.0.0.1");
    local_connect_up(&local, (uint16_t)hear(&server, "port"));
    hear(&server, "requested");
    softcm_until(softcm_conn_state(local.id) == SOFT_CM_CONN_UP);
    unsigned waiting = stand_still(&server, local.id);
    assert_int_equal(soft_disconnect(local.id), 0);
    softcm_until(stays_behind(local.id));
    assert_int_equal(messages_waiting(server.pid), waiting + 1);
    assert_int_equal(kill(server.pid, SIGCONT), 0);
    hear(&server, "given"); /* it was told DISCONNECTED */
    finish(&server, 0);
    local_close(&local);
}

static void move_as_connected(struct ibv_qp *qp, struct rdma_cm_id *id, enum ibv_qp_state to) {
    struct ibv_qp_attr attr = {.qp_state = to};
    int mask;
    assert_int_equal(soft_init_qp_attr(id, &attr, &mask), 0);
    assert_int_equal(soft_modify_qp(qp, &attr, mask), 0);
}

static unsigned descriptors_waiting(struct rdma_cm_id *id) {
    soft_lock();
    unsigned count = soft_cm_id_of(id)->conn.peer->out_fds;
    soft_unlock();
    return count;
}

/* A process that asks for thousands of connections, gives them up and does not read takes no descriptors of ours. */
TEST(the_ring_of_a_queue_pair_that_is_gone_waits_no_more) {
    struct other server;
    struct local local;
    start(&server, "server", "move", "127.0.0.1");
    local_connect_up(&local, (uint16_t)hear(&server, "port"));
    hear(&server, "requested");
    softcm_until(softcm_conn_state(local.id) == SOFT_CM_CONN_UP);
    (void)stand_still(&server, local.id);
    struct ibv_pd *pd = soft_alloc_pd(local.id->verbs);
    struct ibv_cq *cq = soft_create_cq(local.id->verbs, 8, NULL, NULL, 0);
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = soft_create_qp(pd, &init);
    assert_non_null(qp);
    soft_lock();
    soft_cm_id_of(local.id)->conn.local_qpn = qp->qp_num; /* as if it had dialed with it */
    soft_unlock();
    for (int again = 0; again < 2; again++) {
        move_as_connected(qp, local.id, IBV_QPS_INIT);
        move_as_connected(qp, local.id, IBV_QPS_RTR);
        assert_int_equal(descriptors_waiting(local.id), 1);
        struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
        if (again == 0)
            assert_int_equal(soft_modify_qp(qp, &reset, IBV_QP_STATE), 0);
        else
            assert_int_equal(soft_destroy_qp(qp), 0);
        assert_int_equal(descriptors_waiting(local.id), 0);
    }
    assert_int_equal(soft_destroy_cq(cq), 0);
    assert_int_equal(soft_dealloc_pd(pd), 0);
    assert_int_equal(kill(server.pid, SIGCONT), 0);
    assert_int_equal(soft_disconnect(local.id), 0);
    hear(&server, "given");
    finish(&server, 0);
    local_close(&local);
}

/* A server killed at that step, and what is heard of it. */
struct kill {
    const char *step, *address;
    bool connected, asked_for_time, replied, forks;
    const char *last; /* what it says before */
    int event, status;
};

static void kill_of_a_server(void **state) {
    const struct kill *row = *state;
    struct other server;
    struct local local;
    start(&server, "server", row->step, row->address);
    if (row->connected) {
        local_connect_up(&local, (uint16_t)hear(&server, "port"));
    } else {
        local_open(&local);
        local.id = ct_connect(local.channel, (uint16_t)hear(&server, "port"));
    }
    hear(&server, "requested");
    pid_t grandchild = row->forks ? hear(&server, "child") : 0;
    if (row->asked_for_time)
        softcm_until(has_been_told_to_wait(local.id)); /* its "give me time" has arrived */
    if (row->replied)
        ct_take(local.channel, RDMA_CM_EVENT_CONNECT_RESPONSE);
    if (row->last)
        hear(&server, row->last);
    finish(&server, SIGKILL);
    assert_int_equal(ct_take(local.channel, row->event), row->status);
    if (row->forks)
        kill(grandchild, SIGKILL);
    local_close(&local);
}

/* Whom a request goes to is remembered from the last one, and found out again where that was wrong. */
TEST(a_port_that_changed_hands_is_found_again) {
    struct other server;
    struct local local;
    start(&server, "server", "move", "127.0.0.1");
    uint16_t port = (uint16_t)hear(&server, "port");
    local_connect_up(&local, port);
    assert_int_equal(soft_destroy_id(local.id), 0);
    hear(&server, "requested");
    hear(&server, "given"); /* its process is still there, and still known to us */
    struct rdma_cm_id *refused = ct_connect(local.channel, port);
    assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_REJECTED), 8);
    soft_destroy_id(refused);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *listener = ct_id(channel);
    struct sockaddr_in addr = softcm_in("127.0.0.1", port);
    assert_int_equal(soft_bind_addr(listener, (struct sockaddr *)&addr), 0);
    assert_int_equal(soft_listen(listener, 4), 0);
    /* Remember the wrong one, as if it had been asked just before it gave the port up. */
    soft_lock();
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link)
        if (soft_peer_pid(peer) == server.pid)
            soft_cm_port_cache_note(RDMA_PS_TCP, (struct sockaddr *)&addr, peer);
    struct soft_peer *recalled = soft_cm_port_cache_recall(RDMA_PS_TCP, (struct sockaddr *)&addr);
    bool theirs = recalled && soft_peer_pid(recalled) == server.pid;
    soft_peer_release(recalled);
    soft_unlock();
    assert_true(theirs);
    local.id = ct_connect(local.channel, port);
    struct rdma_cm_id *passive = ct_request(channel);
    assert_int_equal(soft_destroy_id(passive), 0);
    assert_int_equal(soft_destroy_id(listener), 0);
    soft_destroy_event_channel(channel);
    finish(&server, SIGKILL);
    local_close(&local);
}

/* The listener here, the client killed at each step. */
TEST(kill_of_the_asking_side) {
    const char *const steps[] = {"ask", "response", "establish"};
    for (int i = 0; i < 3; i++) {
        struct other client;
        struct local local;
        char text[8];
        local_open(&local);
        struct rdma_cm_id *listener = ct_id(local.channel);
        snprintf(text, sizeof text, "%u", ct_listen(listener, 4));
        start(&client, "client", steps[i], text);
        hear(&client, "asked");
        struct rdma_cm_event *event = ct_expect(local.channel, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_memory_equal(event->param.conn.private_data, "asked", 6);
        local.id = event->id;
        soft_ack_cm_event(event);
        struct rdma_conn_param param = ct_param(NULL, 0);
        if (i > 0)
            assert_int_equal(soft_accept(local.id, &param), 0);
        if (i == 1)
            hear(&client, "answered");
        if (i == 2) {
            hear(&client, "established");
            ct_take(local.channel, RDMA_CM_EVENT_ESTABLISHED);
        }
        finish(&client, SIGKILL);
        if (i == 0) {
            softcm_until(softcm_conn_state(local.id) == SOFT_CM_CONN_OVER);
            assert_fails(soft_accept(local.id, &param), EINVAL);
        } else if (i == 1) {
            assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_REJECTED), 4);
        } else {
            assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_DISCONNECTED), 0);
        }
        soft_destroy_id(listener);
        local_close(&local);
    }
}

TEST(conflicts_between_processes) {
    struct other server;
    struct local local;
    local_open(&local);
    start(&server, "server", "bind", "127.0.0.1");
    uint16_t port = (uint16_t)hear(&server, "port");
    local.id = ct_id(local.channel);
    struct sockaddr_in exact = softcm_in("127.0.0.1", port), any = softcm_in("0.0.0.0", port);
    struct sockaddr_in6 any6 = softcm_in6("::", port);
    struct sockaddr_in other = softcm_in("127.0.0.2", port);
    assert_fails(soft_bind_addr(local.id, (struct sockaddr *)&exact), EADDRINUSE);
    assert_fails(soft_bind_addr(local.id, (struct sockaddr *)&any), EADDRNOTAVAIL);
    assert_fails(soft_bind_addr(local.id, (struct sockaddr *)&any6), EADDRNOTAVAIL);
    assert_int_equal(soft_bind_addr(local.id, (struct sockaddr *)&other), 0);
    struct rdma_cm_id *id = ct_connect(local.channel, port);
    assert_int_equal(ct_take(local.channel, RDMA_CM_EVENT_REJECTED), 8); /* bound only */
    soft_destroy_id(id);
    finish(&server, 0);
    local_close(&local);
}

TEST(wildcard_of_another_process_is_in_the_way) {
    struct other server;
    struct local local;
    local_open(&local);
    start(&server, "server", "bind", "0.0.0.0");
    struct sockaddr_in exact = softcm_in("127.0.0.1", (uint16_t)hear(&server, "port"));
    local.id = ct_id(local.channel);
    assert_fails(soft_bind_addr(local.id, (struct sockaddr *)&exact), EADDRNOTAVAIL);
    finish(&server, 0);
    local_close(&local);
}

/* ---- fork ------------------------------------------------------------------------------------------ */

static int failures(struct local *local, struct rdma_cm_id *listener) {
    struct rdma_cm_event *event;
    struct rdma_conn_param param = ct_param(NULL, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int bad = 0;
#define refused(call) (bad += !((call) == -1 && errno == EPERM))
    refused(soft_get_cm_event(local->channel, &event));
    refused(soft_write_cm_event(local->id, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 0, 0));
    refused(soft_bind_addr(local->id, (struct sockaddr *)&addr));
    refused(soft_resolve_addr(local->id, NULL, (struct sockaddr *)&addr, 1));
    refused(soft_connect(local->id, &param));
    refused(soft_disconnect(local->id));
    refused(soft_listen(listener, 1));
    refused(soft_migrate_id(local->id, local->channel));
    refused(soft_destroy_id(local->id));
    refused(soft_create_id(local->channel, &local->id, NULL, RDMA_PS_TCP));
#undef refused
    soft_destroy_event_channel(local->channel);
    return bad;
}

CT_WITH(ct_connected, forked_child_gets_eperm_and_the_parent_is_unharmed) {
    struct ct_pair *pair = *state;
    soft_write_cm_event(pair->active, (enum rdma_cm_event_type)SOFT_CM_EVENT_USER, 3, 0);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (!child) {
        struct local local = {pair->active_channel, pair->active};
        _exit(failures(&local, pair->listener));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(ct_take(pair->active_channel, SOFT_CM_EVENT_USER), 3); /* not stolen */
    assert_int_equal(soft_disconnect(pair->active), 0);
    ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED);
}

/* The thread sanitizer allows no new threads in a forked child. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK 1
#endif

#ifndef NO_THREADS_AFTER_FORK
CT_WITH(ct_listening, forked_child_starts_afresh) {
    struct ct_pair *pair = *state;
    int out[2];
    assert_int_equal(pipe(out), 0);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (!child) {
        close(out[0]);
        dup2(out[1], 1); /* its steps are of no interest here */
        role_client("establish", pair->port);
    }
    close(out[1]);
    pair->passive = ct_request(pair->passive_channel);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_int_equal(soft_accept(pair->passive, &param), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    close(out[0]);
}
#endif

TEST_CASES(ROW(kill_of_a_connected_peer_disconnects, kill_of_a_server, kill, "establish", "0.0.0.0",
               .connected = true, .last = "established", .event = RDMA_CM_EVENT_DISCONNECTED),
           ROW(kill_is_seen_though_a_forked_child_lives_on, kill_of_a_server, kill, "fork",
               "127.0.0.1", .connected = true, .forks = true, .last = "established",
               .event = RDMA_CM_EVENT_DISCONNECTED),
           ROW(kill_with_our_request_unanswered_is_rejected_28, kill_of_a_server, kill, "request",
               "127.0.0.1", .asked_for_time = true, .event = RDMA_CM_EVENT_REJECTED, .status = 28),
           ROW(kill_before_it_asked_for_time_is_rejected_28, kill_of_a_server, kill, "request",
               "127.0.0.1", .event = RDMA_CM_EVENT_REJECTED, .status = 28),
           ROW(kill_after_the_reply_is_rejected_28, kill_of_a_server, kill, "accept", "127.0.0.1",
               .replied = true, .last = "accepted", .event = RDMA_CM_EVENT_REJECTED, .status = 28));

int main(int argc, char **argv) {
    softcm_start();
    if (argc == 4 && !strcmp(argv[1], "server"))
        role_server(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "client"))
        role_client(argv[2], atoi(argv[3]));
    return tests_run(NULL, NULL);
}
