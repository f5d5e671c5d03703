/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* watched.c - see watched.h. */
#include "support/watched.h"
#include "support/log.h"

struct watched watched;

static __thread unsigned watched_unacked; /* events this thread has fetched and not acknowledged */
static __thread struct watched_event *watched_out; /* the forged one among them */

uintptr_t watched_self(void) {
    return (uintptr_t)pthread_self();
}

/* ---- events ---------------------------------------------------------------------------------- */

static int watched_deliver(struct rdma_cm_event *real, struct rdma_cm_event **out) {
    *out = real;
    watched_unacked++;
    if ((int)real->event == FABRIC_CM_USER && fabric_event_arg(real) != 0) {
        watched_out = (struct watched_event *)(uintptr_t)fabric_event_arg(real);
        watched_out->real = real;
        *out = &watched_out->event;
    }
    return 0;
}

static bool watched_holds_back(const struct rdma_event_channel *channel) {
    if (watched.held != channel)
        return false;
    if (watched.let_through == 0)
        return true;
    watched.let_through--;
    return false;
}

static struct rdma_cm_id *watched_counts_on(const struct rdma_cm_event *event) {
    return event->listen_id ? event->listen_id : event->id;
}

static struct rdma_cm_event *watched_unkeep(unsigned i) {
    struct rdma_cm_event *event = watched.kept[i];
    watched.kept_count--;
    memmove(&watched.kept[i], &watched.kept[i + 1],
            (watched.kept_count - i) * sizeof watched.kept[0]);
    return event;
}

static int watched_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **out) {
    struct rdma_cm_event *event;
    for (unsigned i = 0; i < watched.kept_count; i++)
        if (watched_counts_on(watched.kept[i])->channel == channel) {
            if (watched_holds_back(channel))
                break;
            return watched_deliver(watched_unkeep(i), out);
        }
    while (soft_get_cm_event(channel, &event) == 0) {
        bool user = (int)event->event == FABRIC_CM_USER;
        if (user && fabric_event_arg(event) == 0) {
            soft_ack_cm_event(event); /* it only made the descriptor readable */
        } else if (user || !watched_holds_back(channel)) {
            return watched_deliver(event, out);
        } else {
            assert_true(watched.kept_count < WATCHED_KEPT);
            watched.kept[watched.kept_count++] = event;
        }
    }
    return -1;
}

static int watched_ack_cm_event(struct rdma_cm_event *event) {
    watched_unacked--;
    if (watched_out && event == &watched_out->event) {
        event = watched_out->real;
        watched_out = NULL;
    }
    return soft_ack_cm_event(event);
}

/* ---- the rules ------------------------------------------------------------------------------- */

static void watched_call(void) {
    if (watched_unacked > 0)
        atomic_fetch_add(&watched.unacknowledged, 1);
}

/* In a CM thread: a check that fails there would end the program without a word. */
static enum ibv_qp_state watched_state(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {0};
    struct ibv_qp_init_attr init;
    int status = soft_query_qp(qp, &attr, IBV_QP_STATE, &init);
    if (status == EIO) /* its device is removed: it is connected with nobody */
        return IBV_QPS_RESET;
    return status == 0 ? attr.qp_state : IBV_QPS_UNKNOWN;
}

static sluice_node *watched_owner(struct cm_owner *owner) {
    if (owner->listener)
        return ((struct cm_listener *)(void *)owner)->node;
    if (owner->state == CM_REMOVAL_WATCH)
        return ((struct cm *)(void *)((char *)owner - offsetof(struct cm, watch)))->node;
    if (owner->aside) /* it has sent nothing */
        return session_of_conn(((struct cm_aside *)(void *)owner)->conn)->node;
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    struct session *s = session_of_conn(conn);
    /* A try that is dropped: the listener has not answered, so no queue pair was connected. */
    bool dropped =
        !conn->passive && (owner->state == CM_RESOLVING_ADDR ||
                           owner->state == CM_RESOLVING_ROUTE || owner->state == CM_CREATING_QP ||
                           owner->state == CM_IN_LINE || owner->state == CM_CONNECTING);
    bool early = dropped ? conn->prepared && watched_state(s->connection->qp) > IBV_QPS_INIT
                         : owner->state != CM_RELEASED || s->connection->qp;
    if (early)
        atomic_fetch_add(&watched.too_early, 1);
    return s->node;
}

static int watched_destroy_id(struct rdma_cm_id *id) {
    watched_call();
    if (id->context) { /* a request that was refused has none, and belongs to whoever fetched it */
        uintptr_t thread = atomic_load(&watched.threads[watched_owner(id->context)->index]);
        if (thread != 0 && thread != watched_self())
            atomic_fetch_add(&watched.wrong_thread, 1);
    }
    for (unsigned i = 0; i < watched.kept_count;) /* what was not delivered vanishes with it */
        if (watched_counts_on(watched.kept[i]) == id) {
            struct rdma_cm_event *event = watched_unkeep(i);
            struct rdma_cm_id *request = event->listen_id ? event->id : NULL;
            soft_ack_cm_event(event);
            if (request)
                soft_destroy_id(request);
        } else {
            i++;
        }
    atomic_fetch_add(&watched.destroyed, 1);
    return soft_destroy_id(id);
}

/* Any call may end in waiting for this thread: none is made with an event in hand. */
#define WATCHED_CALL(name, parameters, ...)                                                        \
    static int watched_##name parameters {                                                         \
        watched_call();                                                                            \
        return soft_##name(__VA_ARGS__);                                                           \
    }
WATCHED_CALL(resolve_addr,
             (struct rdma_cm_id * id, struct sockaddr *src, struct sockaddr *dst, int ms), id, src,
             dst, ms)
WATCHED_CALL(resolve_route, (struct rdma_cm_id * id, int ms), id, ms)
WATCHED_CALL(connect, (struct rdma_cm_id * id, struct rdma_conn_param *param), id, param)
WATCHED_CALL(accept, (struct rdma_cm_id * id, struct rdma_conn_param *param), id, param)
WATCHED_CALL(reject, (struct rdma_cm_id * id, const void *data, uint8_t len), id, data, len)
WATCHED_CALL(establish, (struct rdma_cm_id * id), id)
WATCHED_CALL(disconnect, (struct rdma_cm_id * id), id)

struct fabric_ops watched_fabric;

/* Before any other thread knows the node. */
static void watched_node(sluice_node *n) {
    watched_fabric = fabric_soft;
    watched_fabric.get_cm_event = watched_get_cm_event;
    watched_fabric.ack_cm_event = watched_ack_cm_event;
    watched_fabric.destroy_id = watched_destroy_id;
    watched_fabric.resolve_addr = watched_resolve_addr;
    watched_fabric.resolve_route = watched_resolve_route;
    watched_fabric.connect = watched_connect;
    watched_fabric.accept = watched_accept;
    watched_fabric.reject = watched_reject;
    watched_fabric.establish = watched_establish;
    watched_fabric.disconnect = watched_disconnect;
    atomic_store(&watched.threads[n->index], watched_self());
    n->fabric = &watched_fabric;
}

void watched_rules_were_kept(void) {
    assert_int_equal(atomic_load(&watched.unacknowledged), 0);
    assert_int_equal(atomic_load(&watched.wrong_thread), 0);
    assert_int_equal(atomic_load(&watched.too_early), 0);
}

/* ---- forging --------------------------------------------------------------------------------- */

bool watched_forge(const struct rdma_cm_event *says, const void *data, size_t bytes) {
    struct watched_event *forged = calloc(1, sizeof *forged);
    assert_non_null(forged);
    forged->event = *says;
    if (bytes > 0) {
        memcpy(forged->data, data, bytes);
        forged->event.param.conn.private_data = forged->data;
        forged->event.param.conn.private_data_len = (uint8_t)bytes;
    }
    forged->next = watched.forged;
    watched.forged = forged;
    return soft_write_cm_event(watched_counts_on(says), (enum rdma_cm_event_type)FABRIC_CM_USER, 0,
                               (uintptr_t)forged) == 0;
}

void watched_nudge(sluice_node *n) {
    if (n->cm->watch.id)
        (void)soft_write_cm_event(n->cm->watch.id, (enum rdma_cm_event_type)FABRIC_CM_USER, 0, 0);
}

/* When no node of the test is left. */
static void watched_forget(void) {
    assert_int_equal(watched.kept_count, 0);
    watched.held = NULL;
    for (struct watched_event *forged; (forged = watched.forged) != NULL;) {
        watched.forged = forged->next;
        free(forged);
    }
}

/* ---- the device's faults --------------------------------------------------------------------- */

void watched_device(enum soft_device_what what, enum soft_device_order order) {
    assert_int_equal(fault_device(what, order), 0);
}

/* ---- a pair of watched nodes ------------------------------------------------------------------ */

void watched_open(struct pair *p, const sluice_link_options *link) {
    memset(p, 0, sizeof *p);
    pair_clock = 0;
    pair_open_side(&p->a, PAIR_NODE(.log = log_nothing));
    pair_open_side(&p->b, PAIR_NODE(.log = log_nothing));
    watched_node(p->a.node);
    watched_node(p->b.node);
    pair_listen(p, link);
}

void watched_close(struct pair *p) {
    watched.held = NULL;
    pair_close(p);
    watched_rules_were_kept();
    watched_forget();
}
