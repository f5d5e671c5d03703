/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm.c - the CM thread: its round, its events, its messages, its deadlines. What becomes of a connection
 * is conn_state.c's.
 *
 * Owner: the CM thread; cm_open() and cm_close() the thread that opens and closes the node.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "cm/cm.h"
#include "cm/connector.h"
#include "cm/internal.h"
#include "cm/resolver.h"
#include "core/auth/auth.h"
#include "core/auth/replay.h"
#include "core/context.h"
#include "core/session_table.h"
#include "common/deadline.h"
#include "common/limits.h"
#include "common/thread.h"
#include "fabric/fast.h"

#define MSGS_MAX 256 /* messages taken in one round */

/* ---- deadlines ------------------------------------------------------------------------------- */

static void watch_for(struct cm *cm, uint64_t due_ns) {
    if (due_ns != 0 && due_ns < cm->next_deadline_ns)
        cm->next_deadline_ns = due_ns;
}

void cm_watch(struct cm *cm, struct cm_conn *conn, uint64_t deadline_ns) {
    cm_assert_thread(cm);
    conn->deadline_ns = deadline_ns;
    watch_for(cm, deadline_ns);
}

void cm_watch_step(struct cm *cm, struct cm_conn *conn, uint64_t step_ns) {
    cm_assert_thread(cm);
    conn->step_ns = step_ns;
    watch_for(cm, step_ns);
}

static unsigned check_deadlines(struct cm *cm) {
    unsigned count = 0;
    if (cm->now_ns < cm->next_deadline_ns)
        return 0;
    cm->next_deadline_ns = UINT64_MAX;
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm->conns, link) {
        if (conn->deadline_ns != 0 && conn->deadline_ns <= cm->now_ns) {
            cm_time_over(cm, conn);
            count++;
        } else if (conn->step_ns != 0 && conn->step_ns <= cm->now_ns) {
            cm_step_over(cm, conn);
            count++;
        }
        watch_for(cm, conn->deadline_ns);
        watch_for(cm, conn->step_ns);
    }
    return count;
}

/* ---- messages --------------------------------------------------------------------------------- */

static void hear_device(struct cm *cm) {
    unsigned count = 0;
    if (!cm->device_lost && !cm->async_source.out)
        (void)cm_async(cm, &count); /* an errno that stays is found by the epoll set's turn */
}

static void take_msg(struct cm *cm, struct mpsc_queue_item *item) {
    if (item->verb == CM_MSG_LISTEN) {
        cm_listen(cm, cm_listener_at(cm, item->slot));
        return;
    }
    if (item->verb == CM_MSG_UNLISTEN) {
        cm_unlisten(cm, cm_listener_at(cm, item->slot));
        return;
    }
    struct cm_conn *conn = &connection_table_at(cm->node->connections, item->slot)->cm;
    struct session *s = session_of_conn(conn);
    switch ((enum cm_msg)item->verb) {
    case CM_MSG_DIAL:
        if (!conn->over) /* hung up before it was begun */
            cm_dial(cm, conn);
        session_ref_clear(&s->ref,
                          SESSION_REF_ANSWER); /* last: the slot may be freed from here on */
        break;
    case CM_MSG_PREPARED:
        cm_prepared(cm, conn);
        break;
    case CM_MSG_READY:
        cm_ready(cm, conn);
        break;
    case CM_MSG_ANSWER:
        cm_answered(cm, conn);
        session_ref_clear(&s->ref, SESSION_REF_ANSWER);
        break;
    case CM_MSG_ARRIVED:
        cm_arrived(cm, conn);
        break;
    case CM_MSG_HANDSHAKE_DONE:
        cm_handshake_done(cm, conn);
        break;
    case CM_MSG_RELEASE:
        hear_device(cm); /* the queue pair is destroyed soon, and what was not read of it is gone */
        cm_release(cm, conn);
        break;
    case CM_MSG_DRAINED:
        cm_drained(cm, conn);
        break;
    case CM_MSG_LISTEN: /* above */
    case CM_MSG_UNLISTEN:
        break;
    }
}

static unsigned take_msgs(struct cm *cm) {
    unsigned count = 0;
    struct mpsc_queue_item *item;
    while (count < MSGS_MAX && (item = mpsc_queue_take(&cm->mailbox->queue))) {
        take_msg(cm, item);
        count++;
    }
    return count;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool carries_data(unsigned type) {
    return type == RDMA_CM_EVENT_CONNECT_REQUEST || type == RDMA_CM_EVENT_CONNECT_RESPONSE ||
           type == RDMA_CM_EVENT_REJECTED || type == RDMA_CM_EVENT_ESTABLISHED;
}

static void copy_event(struct cm_event *copy, const struct rdma_cm_event *event) {
    unsigned type = (unsigned)event->event;
    memset(copy, 0, offsetof(struct cm_event, data));
    copy->type = type < CM_EVENT_UNKNOWN ? type : CM_EVENT_UNKNOWN;
    copy->status = event->status;
    copy->id = event->id;
    copy->listen_id = event->listen_id;
    /* A request speaks to its listener; the new id has the listener's context until it is told. After the
     * acknowledgement an id that was left to the connector may be gone. */
    struct rdma_cm_id *id = type == RDMA_CM_EVENT_CONNECT_REQUEST ? copy->listen_id : copy->id;
    copy->owner = id ? id->context : NULL;
    if (!carries_data(copy->type))
        return;
    copy->qp_num = event->param.conn.qp_num;
    copy->retry_count = event->param.conn.retry_count;
    copy->rnr_retry_count = event->param.conn.rnr_retry_count;
    if (event->param.conn.private_data) {
        copy->data_bytes = event->param.conn.private_data_len;
        memcpy(copy->data, event->param.conn.private_data, copy->data_bytes);
    }
}

static void dispatch(struct cm *cm, const struct cm_event *event) {
    stats_add(&cm->stats->events[event->type], 1);
    const struct rdma_cm_id *id =
        event->type == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id : event->id;
    struct cm_owner *owner = event->owner;
    /* Events of a destroyed id vanish with it; whatever comes of another id is not for this one. */
    if (!owner || owner->id != id || owner->state >= CM_STATE_COUNT)
        return;
    if (owner->aside)
        owner = cm_race_forward(cm, owner);
    const struct cm_cell *cell = &cm_table[owner->state][event->type];
    cm->cause = event;
    if (cell->run)
        cell->run(cm, owner, event);
    else
        log_write(&cm->node->log, SLUICE_LOG_DEBUG, "%s while waiting for %s ignored: %s",
                  cm_event_name(event->type), cm_state_name(owner->state), cell->ignored);
    cm->cause = NULL;
}

unsigned cm_take_events(struct cm *cm, struct rdma_event_channel *channel, int *error) {
    cm_assert_thread(cm);
    const struct fabric_ops *fabric = cm->node->fabric;
    unsigned count = 0;
    struct rdma_cm_event *event;
    *error = 0;
    while (count < CM_EVENTS_MAX) {
        struct cm_event copy;
        errno = 0;
        if (fabric->get_cm_event(channel, &event) != 0) {
            *error = errno;
            break;
        }
        int why = errno; /* of a step the library takes before it shows the event */
        copy_event(&copy, event);
        if (copy.status == -1 && why != 0 && copy.type != FABRIC_CM_USER)
            copy.status = -why;
        fabric->ack_cm_event(event);
        dispatch(cm, &copy);
        count++;
    }
    return count;
}

/* ---- the round ------------------------------------------------------------------------------- */

static int sleep_ms(struct cm *cm, uint64_t wait_ns) {
    uint64_t until = wait_ns > UINT64_MAX - cm->now_ns ? UINT64_MAX : cm->now_ns + wait_ns;
    if (cm->next_deadline_ns < until)
        until = cm->next_deadline_ns;
    /* Of their own: a look at every connection would find nothing. */
    uint64_t admits = admission_due(cm), hears = cm_event_sources_due(cm);
    if (admits < until)
        until = admits;
    if (hears < until)
        until = hears;
    return deadline_timeout_ms(until, cm->now_ns);
}

/* The wakeup has a channel of its own; what comes on it are rdma_cm events like the others. */
static void drain_wakeup(struct cm *cm, uint32_t events) {
    const struct wakeup *wakeup = &cm->mailbox->wakeup;
    uint64_t before = wakeup->heard + wakeup->stray;
    int error = wakeup_drain(&cm->mailbox->wakeup, events);
    if (error != 0)
        log_write(&cm->node->log, SLUICE_LOG_WARNING, WAKEUP_FAILED_TEXT, strerror(error));
    stats_add(&cm->stats->events[FABRIC_CM_USER], wakeup->heard + wakeup->stray - before);
}

unsigned cm_progress(struct cm *cm, uint64_t wait_ns) {
    cm_assert_thread(cm);
    struct epoll_event ready[4];
    cm->now_ns = env_now(&cm->node->env);
    stats_add(&cm->stats->progress_calls, 1);
    atomic_store_explicit(&cm->node->stats.page->memory_bytes,
                          pool_bytes(cm->node->pool) + pool_bytes(cm->node->rx_pool),
                          memory_order_relaxed);
    wakeup_publish(&cm->mailbox->wakeup, &cm->stats->wakeup); /* before it may sleep for long */
    unsigned done = take_msgs(cm) + cm_take_names(cm) + cm_take_calls(cm);
    done += check_deadlines(cm);
    cm_event_sources_resume(cm);
    if (cm->device_lost && !cm->device_gone)
        cm_detach(cm); /* sets a deadline, as long as something is left */
    wakeup_arm(&cm->mailbox->wakeup);
    bool more = done > 0 || !mpsc_queue_empty(&cm->mailbox->queue) || atomic_load(&cm->stop) ||
                (cm->resolver && resolver_has_answers(cm->resolver)) ||
                (cm->connector && connector_has_answers(cm->connector));
    int n = epoll_wait(cm->epoll_fd, ready, 4, more ? 0 : sleep_ms(cm, wait_ns));
    wakeup_disarm(&cm->mailbox->wakeup);
    cm->now_ns = env_now(&cm->node->env);
    bool seen = true;
    for (int i = 0; i < n; i++) {
        if (ready[i].data.ptr == cm->channel) {
            unsigned events = cm_event_sources_channel(cm, ready[i].events);
            seen = events < CM_EVENTS_MAX;
            done += events;
        } else if (ready[i].data.ptr == cm->mailbox)
            drain_wakeup(cm, ready[i].events);
        else if (cm->resolver && ready[i].data.ptr == cm->resolver)
            done += cm_event_sources_addrinfo(cm, ready[i].events);
        else
            cm_event_sources_device(cm, ready[i].events);
    }
    done += take_msgs(cm);
    done += dial_lines_progress(cm);
    return done + admission_progress(cm, seen);
}

static void *run(void *arg) {
    struct cm *cm = arg;
#if ASSERTIONS
    atomic_store(&cm->runner, cm_this_thread());
#endif
    while (!atomic_load(&cm->stop))
        cm_progress(cm, UINT64_MAX);
#if ASSERTIONS
    atomic_store(&cm->runner, NULL);
#endif
    return NULL;
}

const void *cm_this_thread(void) {
    static __thread char token;
    return &token;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int nonblocking(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ? -errno : 0;
}

static int start(struct cm *cm) {
    int error = thread_start(&cm->thread, "sluice-cm", run, cm);
    cm->started = error == 0;
    return -error;
}

int cm_open(struct cm *cm, sluice_node *node, bool thread, sluice_error *e) {
    const struct fabric_ops *fabric = node->fabric;
    uint8_t random;
    int error;
    memset(cm, 0, sizeof *cm);
    cm->node = node;
    cm->mailbox = &node->cm_mailbox;
    cm->next_deadline_ns = UINT64_MAX;
    CDS_INIT_LIST_HEAD(&cm->conns);
    admission_init(cm);
    dial_lines_init(cm);
    cm->stats = &node->stats.page->cm;
    mpsc_queue_init(&cm->mailbox->queue);
    cm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (cm->epoll_fd < 0) {
        error = -errno;
        goto fail;
    }
    cm->channel = fabric->create_event_channel();
    if (!cm->channel) {
        error = -errno;
        goto close_epoll;
    }
    (void)fabric_set_net(fabric, cm->channel, node->options.soft_net); /* which is one of them */
    if ((error = wakeup_open(&cm->mailbox->wakeup, fabric, true)) != 0)
        goto destroy_channel;
    if ((error = nonblocking(cm->channel->fd)) != 0 ||
        (error = nonblocking(node->context->async_fd)) != 0 ||
        (error = event_source_open(&cm->source, cm->epoll_fd, cm->channel->fd, cm->channel)) != 0 ||
        (error = event_source_open(&cm->async_source, cm->epoll_fd, node->context->async_fd,
                                   node->context)) != 0 ||
        (error = wakeup_add_to(&cm->mailbox->wakeup, cm->epoll_fd, cm->mailbox)) != 0)
        goto close_wakeup;
    if (!node->env.random_bytes(node->env.arg, &random, sizeof random)) {
        error = -ENODATA; /* libsodium would end the process for it */
        goto close_wakeup;
    }
    if (!auth_init() || !(node->replay = replay_open(&node->env))) {
        error = -ENOMEM;
        goto close_wakeup;
    }
    if (node->traits.connect_blocks &&
        (error = connector_open(&cm->connector, cm->mailbox, fabric)) != 0)
        goto close_wakeup;
    cm_watch_device(cm);
    if (thread && (error = start(cm)) != 0)
        goto close_wakeup;
    return SLUICE_OK;

close_wakeup:
    if (cm->watch.id)
        fabric->destroy_id(cm->watch.id);
    if (cm->connector)
        (void)connector_close(cm->connector, NULL, NULL);
    cm->connector = NULL;
    replay_close(node->replay);
    wakeup_close(&cm->mailbox->wakeup);
destroy_channel:
    fabric->destroy_event_channel(cm->channel);
close_epoll:
    close(cm->epoll_fd);
fail:;
    char why[200];
    limits_error_text(why, sizeof why, -error);
    return error_set(e, error == -EMFILE || error == -ENFILE ? SLUICE_ELIMIT : SLUICE_EDEVICE, 0,
                     -error, "connection management cannot be started: %s",
                     error == -ENODATA ? cm_no_random : why);
}

/*
 * A session that did not end in time: its id must not outlive the channel. A call that is left to the connector gets
 * the QP too, which the loop, closed by now, has not drained: else the connector's thread would wait for it for ever.
 */
static void end_given_up(struct cm *cm, struct cm_conn *conn) {
    struct connection *c = connection_of_conn(conn);
    cm_race_end(cm, conn);
    if (!(conn->call && cm_leave(cm, conn)) && conn->owner.id)
        cm->node->fabric->destroy_id(conn->owner.id);
    conn->owner.id = NULL;
    if (!conn->left)
        return;
    if (!conn->left_qp) {
        conn->left_qp = c->qp;
        c->qp = NULL;
    }
    cm_give_left(cm, conn);
}

void cm_close(struct cm *cm) {
    atomic_store(&cm->stop, true);
    wakeup_signal_flag(&cm->mailbox->wakeup);
    if (cm->started)
        pthread_join(cm->thread, NULL);
    while (take_msgs(cm) > 0)
        ;
    if (cm->resolver)
        resolver_close(cm->resolver);
    if (cm->connector)
        connector_detach_wakeup(cm->connector);
    if (cm->watch.id)
        cm->node->fabric->destroy_id(cm->watch.id);
    struct cm_conn *conn;
    cds_list_for_each_entry(conn, &cm->conns, link)
        end_given_up(cm, conn);
    ASSERT(!cds_list_empty(&cm->conns) || admission_idle(cm));
    dial_lines_close(cm);
    replay_close(cm->node->replay);
    wakeup_close(&cm->mailbox->wakeup);
    if (!cm->connector || !connector_inherit_channel(cm->connector, cm->channel))
        cm->node->fabric->destroy_event_channel(cm->channel);
    close(cm->epoll_fd);
}
