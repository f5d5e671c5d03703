/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connector.c - a few threads that call rdma_connect() where it blocks, so that no other thread has to.
 *
 * On an iWARP device the kernel connects TCP inside of the call, which takes minutes if nothing answers; and
 * a thread that destroys the id or the QP before the other side has answered waits for that. None of these calls
 * can be interrupted. So a dial that is given up meanwhile leaves its id, and then its QP, to the
 * thread that is in the call, which destroys them when the kernel lets it.
 *
 *   queued -> calling -> returned -> (the answer is an event) -> ended by the CM thread
 *                 \____________\______ left: id destroyed, then the queue pair, once that is given
 *
 * Threads are started one by one when no thread is free and the call may begin (connect_queue.c), up to
 * CONNECT_THREADS_MAX. A thread that finds nothing to do while IDLE_MAX others wait for something ends. On closing no
 * thread waits for calls that were left: what their queue pairs hold (CQs, PD, context, the ids' channel) is left to
 * the threads too, and the last one ends all of it.
 *
 * `lock` protects everything here; it is never held across a call of the device.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <urcu/list.h>

#include "cm/connector.h"
#include "cm/connect_queue.h"
#include "cm/internal.h"
#include "core/context.h"
#include "common/thread.h"

#define IDLE_MAX 2 /* threads that are kept without work */

/* Objects that must not be destroyed before the queue pairs that were left; in this order. */
struct connect_orphan {
    struct cds_list_head link;
    struct ibv_cq *cq;
    struct ibv_comp_channel *completions;
    struct rdma_event_channel *channel;
    struct ibv_pd *pd;
    struct ibv_context *context;
};

struct cm_connector {
    pthread_mutex_t lock;
    pthread_cond_t work;
    const struct fabric_ops *fabric;
    struct mailbox *wake; /* NULL: no thread takes answers any more */
    bool closed;
    unsigned threads, idle, busy; /* idle: in pthread_cond_wait(); busy: with a call or a burial */
    struct connect_queue calls;
    struct cds_list_head answers;
    unsigned left; /* calls that were left and not ended */
    struct cds_list_head orphans;
    bool settling; /* a thread ends the orphans */
    _Atomic bool has_answers;
};

/* ---- with the lock held ----------------------------------------------------------------------- */

static int need_thread(struct cm_connector *c);

static void call_returned(struct cm_connector *c, struct cm_connect *call) {
    connect_queue_returned(&c->calls, call);
    /* This thread destroys the id of one that was left now, which may take as long. */
    if (call->left && connect_queue_make_due(&c->calls, &call->host))
        (void)need_thread(c);
    if (!cds_list_empty(&c->calls.waiting)) /* of the same host, perhaps */
        pthread_cond_signal(&c->work);
}

static void end(struct cm_connector *c, struct cm_connect *call) {
    c->left--;
    free(call);
}

static void reap(struct cm_connector *c, struct cm_connect *call) {
    connect_queue_bury(&c->calls, call);
    pthread_cond_signal(&c->work);
}

/* ---- the threads ------------------------------------------------------------------------------ */

/* The id, which waits for what it is connecting to, and the queue pair if it is there already. */
static void reap_later(struct cm_connector *c, struct cm_connect *call) {
    while (call->id || (call->given && call->qp)) {
        struct rdma_cm_id *id = call->id;
        struct ibv_qp *qp = id ? NULL : call->qp;
        pthread_mutex_unlock(&c->lock);
        if (id)
            c->fabric->destroy_id(id);
        else
            (void)c->fabric->destroy_qp(qp);
        pthread_mutex_lock(&c->lock);
        if (id)
            call->id = NULL;
        else
            call->qp = NULL;
    }
    call->step = CONNECT_ENDED;
    if (call->given)
        end(c, call);
}

static void make_call(struct cm_connector *c, struct cm_connect *call) {
    pthread_mutex_unlock(&c->lock);
    int error = c->fabric->connect(call->id, &call->param) == 0 ? 0 : errno;
    pthread_mutex_lock(&c->lock);
    call->error = error;
    call_returned(c, call);
    if (call->left) {
        reap_later(c, call);
        return;
    }
    cds_list_add_tail(&call->link, &c->answers);
    atomic_store(&c->has_answers, true);
    if (c->wake)
        wakeup_signal_flag(
            &c->wake->wakeup); /* under the lock: the wakeup is not closed meanwhile */
}

static void end_orphan(const struct fabric_ops *fabric, struct connect_orphan *orphan) {
    if (orphan->cq)
        (void)fabric->destroy_cq(orphan->cq);
    if (orphan->completions)
        (void)fabric->destroy_comp_channel(orphan->completions);
    if (orphan->channel)
        fabric->destroy_event_channel(orphan->channel);
    if (orphan->pd)
        (void)fabric->dealloc_pd(orphan->pd);
    if (orphan->context)
        (void)fabric->close_device(orphan->context);
    free(orphan);
}

/* No queue pair holds them any more: destroys them. */
static void settle_orphans(struct cm_connector *c) {
    c->settling = true;
    while (!cds_list_empty(&c->orphans)) {
        struct connect_orphan *orphan =
            cds_list_first_entry(&c->orphans, struct connect_orphan, link);
        cds_list_del(&orphan->link);
        pthread_mutex_unlock(&c->lock);
        end_orphan(c->fabric, orphan);
        pthread_mutex_lock(&c->lock);
    }
    c->settling = false;
}

static void destroy(struct cm_connector *c) {
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static void *run(void *arg) {
    struct cm_connector *c = arg;
    struct cm_connect *call;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        if ((call = connect_queue_take_burial(&c->calls))) {
            c->busy++;
            reap_later(c, call);
            c->busy--;
        } else if ((call = connect_queue_take(&c->calls))) {
            c->busy++;
            make_call(c, call);
            c->busy--;
        } else if (!cds_list_empty(&c->orphans) && c->left == 0 && !c->settling) {
            settle_orphans(c);
        } else if (c->closed && c->left == 0 && cds_list_empty(&c->orphans)) {
            break;
        } else if (c->idle >= IDLE_MAX) {
            c->threads--;
            pthread_mutex_unlock(&c->lock);
            return NULL;
        } else {
            c->idle++;
            pthread_cond_wait(&c->work, &c->lock);
            c->idle--;
        }
    }
    bool last = --c->threads == 0;
    if (!last)
        pthread_cond_signal(&c->work); /* the next one finds nothing left either */
    pthread_mutex_unlock(&c->lock);
    if (last)
        destroy(c);
    return NULL;
}

/*
 * With the lock held: a thread for what is due. 0 or -errno: nothing would ever do it. A call that is not due begins in
 * the thread of the one of its host that returns first.
 */
static int need_thread(struct cm_connector *c) {
    int error = 0;
    if (c->calls.due > c->threads - c->busy && c->threads < CONNECT_THREADS_MAX) {
        error = thread_start_detached("sluice-connect", run, c);
        if (error == 0)
            c->threads++;
    }
    return c->threads > 0 ? 0 : -error;
}

/* ---- the CM thread's side --------------------------------------------------------------------- */

int connector_open(struct cm_connector **out, struct mailbox *wake,
                   const struct fabric_ops *fabric) {
    struct cm_connector *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    c->fabric = fabric;
    c->wake = wake;
    connect_queue_init(&c->calls);
    CDS_INIT_LIST_HEAD(&c->answers);
    CDS_INIT_LIST_HEAD(&c->orphans);
    *out = c;
    return 0;
}

struct cm_connect *connector_connect(struct cm_connector *c, struct cm_conn *conn,
                                     const struct rdma_conn_param *param) {
    struct cm_connect *call = calloc(1, sizeof *call);
    if (!call || param->private_data_len > sizeof call->data) {
        free(call);
        errno = ENOMEM;
        return NULL;
    }
    call->conn = conn;
    call->id = conn->owner.id;
    call->host = conn->candidates[conn->search.candidate];
    call->param = *param;
    if (param->private_data_len > 0)
        memcpy(call->data, param->private_data, param->private_data_len);
    call->param.private_data = call->data;
    pthread_mutex_lock(&c->lock);
    connect_queue_add(&c->calls, call);
    int error = need_thread(c);
    if (error == 0)
        pthread_cond_signal(&c->work);
    else
        connect_queue_remove(&c->calls, call);
    pthread_mutex_unlock(&c->lock);
    if (error == 0)
        return call;
    free(call);
    errno = -error;
    return NULL;
}

bool connector_leave(struct cm_connector *c, struct cm_connect *call) {
    bool left = false;
    pthread_mutex_lock(&c->lock);
    switch (call->step) {
    case CONNECT_QUEUED:
        connect_queue_remove(&c->calls, call);
        break;
    case CONNECT_CALLING:
        left = true;
        break;
    case CONNECT_RETURNED:
        cds_list_del_init(&call->link); /* alone already, if its answer was taken */
        left = call->error == 0;        /* else nothing is under way */
        break;
    case CONNECT_ENDED: /* it was left before */
        break;
    }
    if (left) {
        call->left = true;
        call->conn = NULL;
        c->left++;
        if (call->step == CONNECT_RETURNED) {
            reap(c, call);
            (void)need_thread(c); /* else one of those there are comes round */
        }
    }
    pthread_mutex_unlock(&c->lock);
    if (!left)
        free(call);
    return left;
}

void connector_give(struct cm_connector *c, struct cm_connect *call, struct ibv_qp *qp) {
    pthread_mutex_lock(&c->lock);
    call->qp = qp;
    call->given = true;
    if (call->step == CONNECT_ENDED) {
        reap(c, call);
        (void)need_thread(c);
    }
    pthread_mutex_unlock(&c->lock);
}

bool connector_has_answers(struct cm_connector *c) {
    return atomic_load(&c->has_answers);
}

struct cm_conn *connector_answer(struct cm_connector *c, int *error) {
    struct cm_conn *conn = NULL;
    if (!atomic_load(&c->has_answers))
        return NULL;
    pthread_mutex_lock(&c->lock);
    struct cm_connect *call = connect_queue_pop(&c->answers);
    if (call) {
        conn = call->conn;
        *error = call->error;
    }
    if (cds_list_empty(&c->answers))
        atomic_store(&c->has_answers, false);
    pthread_mutex_unlock(&c->lock);
    return conn;
}

void connector_end(struct cm_connect *call) {
    free(call);
}

/* ---- any thread ------------------------------------------------------------------------------- */

/* The lock is held. */
static bool is_busy(struct cm_connector *c) {
    return c->left > 0 || !cds_list_empty(&c->orphans) || c->settling;
}

bool connector_busy(struct cm_connector *c) {
    pthread_mutex_lock(&c->lock);
    bool busy = is_busy(c);
    pthread_mutex_unlock(&c->lock);
    return busy;
}

/* False: nothing holds it, so it is the caller's to end; also without memory, when nothing helps. */
static bool leave_orphan(struct cm_connector *c, const struct connect_orphan *what) {
    struct connect_orphan *orphan = malloc(sizeof *orphan);
    pthread_mutex_lock(&c->lock);
    bool busy = is_busy(c);
    if (orphan && busy) {
        *orphan = *what;
        cds_list_add_tail(&orphan->link, &c->orphans);
        orphan = NULL;
    } else {
        busy = false;
    }
    pthread_mutex_unlock(&c->lock);
    free(orphan);
    return busy;
}

static bool connector_inherit_cq(struct cm_connector *c, struct ibv_cq *cq,
                                 struct ibv_comp_channel *completions) {
    return leave_orphan(c, &(struct connect_orphan){.cq = cq, .completions = completions});
}

bool cm_connect_inherits(struct sluice_node *n, struct ibv_cq *cq,
                         struct ibv_comp_channel *completions) {
    return n->cm->connector && connector_inherit_cq(n->cm->connector, cq, completions);
}

bool connector_inherit_channel(struct cm_connector *c, struct rdma_event_channel *channel) {
    return leave_orphan(c, &(struct connect_orphan){.channel = channel});
}

void connector_detach_wakeup(struct cm_connector *c) {
    pthread_mutex_lock(&c->lock);
    c->wake = NULL;
    pthread_mutex_unlock(&c->lock);
}

bool connector_close(struct cm_connector *c, struct ibv_pd *pd, struct ibv_context *context) {
    bool left = leave_orphan(c, &(struct connect_orphan){.pd = pd, .context = context});
    pthread_mutex_lock(&c->lock);
    c->wake = NULL;
    c->closed = true;
    bool last = c->threads == 0;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    if (last)
        destroy(c);
    return left;
}
