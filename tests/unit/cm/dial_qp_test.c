/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * dial_qp_test.c - a queue pair that breaks while a dial tries: the try ends, or nothing does where it was over
 * already, and the next one has another queue pair. The event is made up; what makes the device's descriptor
 * readable is its port.
 */
#include "support/dial.h"
#include "support/fault.h"

static struct {
    struct ibv_qp *qp; /* the latest */
    bool waiting;
    struct ibv_async_event event;
    unsigned acked;
} broken;

static int broken_get(struct ibv_context *context, struct ibv_async_event *event) {
    if (!broken.waiting)
        return soft_get_async_event(context, event);
    broken.waiting = false;
    *event = broken.event;
    return 0;
}

static void broken_ack(struct ibv_async_event *event) {
    if (event->event_type == IBV_EVENT_QP_FATAL)
        broken.acked++;
    else
        soft_ack_async_event(event);
}

static struct ibv_qp *(*counted_create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

static struct ibv_qp *broken_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    broken.qp = counted_create_qp(pd, attr);
    return broken.qp;
}

static void break_it(struct pair *p) {
    unsigned before = broken.acked;
    broken.event =
        (struct ibv_async_event){.event_type = IBV_EVENT_QP_FATAL, .element.qp = broken.qp};
    broken.waiting = true;
    assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
    assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
    pair_await(p, broken.acked > before);
}

static void open_dialer(struct pair *p, const char *const script[]) {
    memset(&broken, 0, sizeof broken);
    dialer_open(p, PAIR_NODE(), PAIR_LINK());
    dialer_ops.get_async_event = broken_get;
    dialer_ops.ack_async_event = broken_ack;
    counted_create_qp = dialer_ops.create_qp;
    dialer_ops.create_qp = broken_create_qp;
    dialer_script(script);
    dialer_names((const char *[]){"127.0.0.2", "127.0.0.1", NULL});
}

static void expect_up_at_the_second_try(struct pair *p) {
    pair_expect(p, &p->b, SLUICE_UP);
    assert_int_equal(pair_info(p->b.session).tries, 2);
    assert_int_equal(dialer.qps, 2);
    pair_expect(p, &p->a, SLUICE_UP);
    assert_int_equal(pair_send(&p->b, 1000, 1, NULL), 0);
    sluice_event event = pair_expect(p, &p->a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 1000, 1));
    pair_close(p);
}

TEST(a_queue_pair_that_breaks_ends_its_try_and_not_the_dial) {
    struct pair p;
    open_dialer(&p, (const char *[]){HANG, NULL});
    pair_dial_name(&p, "two.test", PAIR_LINK());
    pair_await(&p, dialer.connects == 1);
    break_it(&p);
    expect_up_at_the_second_try(&p);
}

/* Its one dial waits for the next try. */
static bool in_backoff(struct cm *cm) {
    return !cds_list_empty(&cm->conns) &&
           cds_list_entry(cm->conns.next, struct cm_conn, link)->owner.state == CM_BACKOFF;
}

/* Its try was given up, and the next one has not come so far that it needs one. */
TEST(a_queue_pair_of_a_try_that_is_over_ends_nothing) {
    struct pair p;
    open_dialer(&p, (const char *[]){"id=* connect=1 event=UNREACHABLE", NULL});
    dialer.name_count = 1; /* a pause before the next */
    memcpy(&dialer.names[0], &dialer.names[1], sizeof dialer.names[0]);
    pair_dial_name(&p, "one.test", PAIR_LINK());
    pair_await(&p, in_backoff(p.b.node->cm));
    break_it(&p);
    pair_expect_nothing(&p, &p.b);
    dialer.now_ns += 1000000000;
    expect_up_at_the_second_try(&p);
}
