/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * raw_connect.c - connections of the software device's rdma_cm, set up and torn down between two
 * processes: how many a second, one after another and all at once, and where the time goes.
 *
 * One process forks the other. Both sleep on their event channels as an application does. Every
 * connection has a QP of its own, as large as one of the library's sessions, on one shared CQ. The stages are those of a program: create the id,
 * resolve address and route, create the QP, connect until established, disconnect, destroy.
 *
 *   raw-connect [--json] [--count N]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "soft/soft.h"

#define COUNT_MAX 20000

enum stage { CREATE, ADDRESS, ROUTE, QP, CONNECT, DISCONNECT, DESTROY, STAGES };
static const char *const stage_name[STAGES] = {"create id", "address",    "route",  "create QP",
                                               "connect",   "disconnect", "destroy"};

struct side {
    struct rdma_event_channel *channel;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
};

static bool json;
static int count = 1000;
static uint64_t taken[STAGES + 1][COUNT_MAX]; /* the last row: from the first call to established */

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void open_side(struct side *s) {
    s->channel = soft_create_event_channel();
    if (!s->channel)
        die("raw-connect: the device cannot be opened");
}

/* With the first id that is bound: PD and CQ lie on the context that the ids share. */
static void create_qp(struct side *s, struct rdma_cm_id *id) {
    if (!s->cq) {
        s->pd = id->pd;
        s->cq = soft_create_cq(id->verbs, 65536, NULL, NULL, 0);
    }
    struct ibv_qp_init_attr init = {
        .send_cq = s->cq,
        .recv_cq = s->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 128, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 1}};
    if (!s->cq || soft_cm_create_qp(id, s->pd, &init) != 0)
        die("raw-connect: create_qp");
}

static void destroy(struct rdma_cm_id *id) {
    soft_cm_destroy_qp(id);
    if (soft_destroy_id(id) != 0)
        die("raw-connect: destroy_id");
}

/* The next event's id and type; acknowledged. */
static struct rdma_cm_id *next_event(struct side *s, enum rdma_cm_event_type *type) {
    struct rdma_cm_event *event;
    if (soft_get_cm_event(s->channel, &event) != 0)
        die("raw-connect: get_cm_event");
    struct rdma_cm_id *id = event->id;
    *type = event->event;
    if (event->status != 0) {
        fprintf(stderr, "raw-connect: %s, status %d\n", soft_event_str(event->event),
                event->status);
        exit(1);
    }
    soft_ack_cm_event(event);
    return id;
}

static struct rdma_conn_param param(void) {
    return (struct rdma_conn_param){
        .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
}

/* ---- the answering process ------------------------------------------------------------------------ */

static void answer(int sock, int connections) {
    struct side s = {0};
    struct rdma_cm_id *listener;
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    open_side(&s);
    if (soft_create_id(s.channel, &listener, NULL, RDMA_PS_TCP) != 0 ||
        soft_bind_addr(listener, (struct sockaddr *)&addr) != 0 || soft_listen(listener, 0) != 0)
        die("raw-connect: listen");
    uint16_t port = soft_get_src_port(listener);
    if (write(sock, &port, sizeof port) != sizeof port)
        exit(1);
    while (connections > 0) {
        enum rdma_cm_event_type type;
        struct rdma_conn_param p = param();
        struct rdma_cm_id *id = next_event(&s, &type);
        switch ((int)type) {
        case RDMA_CM_EVENT_CONNECT_REQUEST:
            create_qp(&s, id);
            if (soft_accept(id, &p) != 0)
                die("raw-connect: accept");
            break;
        case RDMA_CM_EVENT_DISCONNECTED:
            soft_disconnect(id);
            destroy(id);
            connections--;
            break;
        default: /* established, or past it */
            break;
        }
    }
    soft_destroy_cq(s.cq);
    soft_destroy_id(listener);
    soft_destroy_event_channel(s.channel);
}

/* ---- the asking process --------------------------------------------------------------------------- */

static void expect(struct side *s, enum rdma_cm_event_type wanted) {
    enum rdma_cm_event_type type;
    do
        next_event(s, &type);
    while (type == RDMA_CM_EVENT_TIMEWAIT_EXIT);
    if (type != wanted) {
        fprintf(stderr, "raw-connect: %s instead of %s\n", soft_event_str(type),
                soft_event_str(wanted));
        exit(1);
    }
}

static uint64_t lap(enum stage stage, int i, uint64_t since) {
    uint64_t now = now_ns();
    taken[stage][i] = now - since;
    return now;
}

static void one(struct side *s, struct sockaddr *to, int i) {
    struct rdma_cm_id *id;
    struct rdma_conn_param p = param();
    uint64_t start = now_ns(), t = start;
    if (soft_create_id(s->channel, &id, NULL, RDMA_PS_TCP) != 0)
        die("raw-connect: create_id");
    t = lap(CREATE, i, t);
    if (soft_resolve_addr(id, NULL, to, 2000) != 0)
        die("raw-connect: resolve_addr");
    expect(s, RDMA_CM_EVENT_ADDR_RESOLVED);
    t = lap(ADDRESS, i, t);
    if (soft_resolve_route(id, 2000) != 0)
        die("raw-connect: resolve_route");
    expect(s, RDMA_CM_EVENT_ROUTE_RESOLVED);
    t = lap(ROUTE, i, t);
    create_qp(s, id);
    t = lap(QP, i, t);
    if (soft_connect(id, &p) != 0)
        die("raw-connect: connect");
    expect(s, RDMA_CM_EVENT_ESTABLISHED);
    t = lap(CONNECT, i, t);
    taken[STAGES][i] = t - start;
    soft_disconnect(id);
    expect(s, RDMA_CM_EVENT_DISCONNECTED);
    t = lap(DISCONNECT, i, t);
    destroy(id);
    lap(DESTROY, i, t);
}

/* As many as there are, each going on as its event comes. Set-up and tear-down in seconds. */
static void at_once(struct side *s, struct sockaddr *to, double *up_s, double *down_s) {
    struct rdma_cm_id **ids = calloc((size_t)count, sizeof(struct rdma_cm_id *));
    struct rdma_conn_param p = param();
    if (!ids)
        die("raw-connect");
    uint64_t start = now_ns();
    for (int i = 0; i < count; i++)
        if (soft_create_id(s->channel, &ids[i], NULL, RDMA_PS_TCP) != 0 ||
            soft_resolve_addr(ids[i], NULL, to, 2000) != 0)
            die("raw-connect: resolve_addr");
    for (int up = 0; up < count;) {
        enum rdma_cm_event_type type;
        struct rdma_cm_id *id = next_event(s, &type);
        int rc = 0;
        if (type == RDMA_CM_EVENT_ADDR_RESOLVED) {
            rc = soft_resolve_route(id, 2000);
        } else if (type == RDMA_CM_EVENT_ROUTE_RESOLVED) {
            create_qp(s, id);
            rc = soft_connect(id, &p);
        } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
            up++;
        }
        if (rc != 0)
            die("raw-connect: connect");
    }
    uint64_t middle = now_ns();
    for (int i = 0; i < count; i++)
        soft_disconnect(ids[i]);
    for (int down = 0; down < count;) {
        enum rdma_cm_event_type type;
        next_event(s, &type);
        down += type == RDMA_CM_EVENT_DISCONNECTED;
    }
    for (int i = 0; i < count; i++)
        destroy(ids[i]);
    *up_s = (double)(middle - start) / 1e9;
    *down_s = (double)(now_ns() - middle) / 1e9;
    free(ids);
}

/* ---- figures -------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void show_rate(const char *name, double per_s) {
    if (json)
        printf("{\"figure\":\"%s\",\"count\":%d,\"per_s\":%.0f}\n", name, count, per_s);
    else
        printf("%-30s %10.0f /s\n", name, per_s);
}

static void show_times(const char *name, uint64_t *times) {
    qsort(times, (size_t)count, sizeof *times, by_value);
    double p50 = (double)times[count / 2] / 1e3, p99 = (double)times[count - 1 - count / 100] / 1e3;
    double most = (double)times[count - 1] / 1e3;
    if (json)
        printf("{\"figure\":\"%s\",\"count\":%d,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}\n",
               name, count, p50, p99, most);
    else
        printf("%-30s %10.1f us  p99 %.1f us, max %.1f us\n", name, p50, p99, most);
}

static void ask(int sock) {
    struct side s = {0};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (read(sock, &to.sin_port, sizeof to.sin_port) != sizeof to.sin_port)
        exit(1); /* the other process said why */
    open_side(&s);
    uint64_t start = now_ns();
    for (int i = 0; i < count; i++)
        one(&s, (struct sockaddr *)&to, i);
    double seconds = (double)(now_ns() - start) / 1e9, up_s, down_s;
    at_once(&s, (struct sockaddr *)&to, &up_s, &down_s);
    soft_destroy_cq(s.cq);
    soft_destroy_event_channel(s.channel);
    show_rate("one after another, up and down", count / seconds);
    show_rate("all at once, up", count / up_s);
    show_rate("all at once, down", count / down_s);
    show_times("set up", taken[STAGES]);
    for (int stage = 0; stage < STAGES; stage++)
        show_times(stage_name[stage], taken[stage]);
}

int main(int argc, char **argv) {
    int pair[2], status = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
            count = atoi(argv[++i]);
        else
            count = 0;
    }
    if (count < 1 || count > COUNT_MAX)
        return fprintf(stderr, "usage: raw-connect [--json] [--count N], N to %d\n", COUNT_MAX), 2;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("raw-connect");
    pid_t child = fork();
    if (child < 0)
        die("raw-connect");
    close(pair[child != 0 ? 0 : 1]);
    if (child == 0) {
        answer(pair[0], 2 * count);
        return 0;
    }
    ask(pair[1]);
    waitpid(child, &status, 0);
    return status != 0;
}
