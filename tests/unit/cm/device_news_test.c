/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * device_news_test.c - what the device says of itself is counted by its number and told to the log.
 *
 * The software device's own port, and made-up events for what it never says.
 */
#include "support/pair.h"
#include "support/log.h"
#include "support/fault.h"

#include "soft/control/device_state.h"
#include "soft/ipc/engine.h"

static struct {
    unsigned lines, warnings;
    char first[256], last[256];
} told;

static void note_line(int level, const char *text, void *arg) {
    (void)arg;
    if (strncmp(text, "port ", 5) != 0 && strncmp(text, "device ", 7) != 0)
        return;
    told.lines++;
    told.warnings += level <= SLUICE_LOG_WARNING;
    snprintf(told.last, sizeof told.last, "%s", text);
    if (told.lines == 1)
        snprintf(told.first, sizeof told.first, "%s", text);
}

static void open_nodes(struct pair *p) {
    memset(p, 0, sizeof *p);
    pair_clock = pair_frozen = pair_step = 0;
    pair_open_side(&p->a, PAIR_NODE(.log = log_nothing));
    pair_open_side(&p->b, PAIR_NODE(.log = note_line));
    pair_listen(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    pair_connect(p, PAIR_LINK(.keepalive_ns = SLUICE_OFF));
    memset(&told, 0, sizeof told);
}

static uint64_t counted(struct pair *p, unsigned type) {
    return atomic_load(&p->b.node->stats.page->cm.async[type]);
}

static void await_count(struct pair *p, unsigned type, uint64_t count) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (counted(p, type) < count) {
        pair_turn(p);
        assert_true(env_now(&env_default) < limit);
    }
    assert_int_equal(counted(p, type), count);
}

/* ---- the software device's port ---------------------------------------------------------------- */

TEST(a_port_that_goes_down_and_returns_is_counted_and_told) {
    struct pair p;
    open_nodes(&p);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(fault_device(DEVICE_PORT_DOWN, 0), 0);
        await_count(&p, IBV_EVENT_PORT_ERR, i);
        assert_int_equal(told.warnings, 2 * i - 1);
        assert_string_equal(told.last, "port 1 of sluice_soft0 is down");
        assert_int_equal(fault_device(DEVICE_PORT_UP, 0), 0);
        await_count(&p, IBV_EVENT_PORT_ACTIVE, i);
        assert_int_equal(told.warnings, 2 * i); /* who waits for it sees it */
        assert_string_equal(told.last, "port 1 of sluice_soft0 is active again");
    }
    assert_int_equal(told.lines, 6);
    /* The session outlived it. */
    assert_int_equal(pair_send(&p.b, 8, 1, NULL), 0);
    sluice_event event = pair_expect(&p, &p.a, SLUICE_MESSAGE);
    assert_true(pair_check(event.msg, 8, 1));
    pair_close(&p);
}

/* ---- made up ----------------------------------------------------------------------------------- */

static struct {
    bool waiting;
    struct ibv_async_event event;
    unsigned acked;
} made_up;

static int made_up_get(struct ibv_context *context, struct ibv_async_event *event) {
    if (!made_up.waiting)
        return soft_get_async_event(context, event);
    made_up.waiting = false;
    *event = made_up.event;
    return 0;
}

static void made_up_ack(struct ibv_async_event *event) {
    if (event->event_type == made_up.event.event_type && event->element.port_num == 200)
        made_up.acked++;
    else
        soft_ack_async_event(event);
}

TEST(every_word_of_a_device_is_counted_and_told) {
    static const struct {
        int type;
        const char *text;
    } words[] = {
        {IBV_EVENT_SQ_DRAINED, "device sluice_soft0: SQ_DRAINED"},
        {IBV_EVENT_PATH_MIG, "device sluice_soft0: PATH_MIG "},
        {IBV_EVENT_PATH_MIG_ERR, "device sluice_soft0: PATH_MIG_ERR"},
        {IBV_EVENT_PORT_ACTIVE, "port 200 of sluice_soft0 is active"},
        {IBV_EVENT_PORT_ERR, "port 200 of sluice_soft0 is down"},
        {IBV_EVENT_LID_CHANGE, "port 200 of sluice_soft0: LID_CHANGE"},
        {IBV_EVENT_PKEY_CHANGE, "port 200 of sluice_soft0: PKEY_CHANGE"},
        {IBV_EVENT_SM_CHANGE, "port 200 of sluice_soft0: SM_CHANGE"},
        {IBV_EVENT_CLIENT_REREGISTER, "port 200 of sluice_soft0: CLIENT_REREGISTER"},
        {IBV_EVENT_GID_CHANGE, "port 200 of sluice_soft0: GID_CHANGE"},
        {IBV_EVENT_WQ_FATAL, "device sluice_soft0: WQ_FATAL"},
        {STATS_ASYNC_DEVICE_SPEED_CHANGE, "device sluice_soft0: DEVICE_SPEED_CHANGE"},
        {STATS_ASYNC_UNKNOWN, "device sluice_soft0: an event without a name here (event 21)"},
        {12345, "device sluice_soft0: an event without a name here (event 12345)"},
        {-1, "device sluice_soft0: an event without a name here (event -1)"},
    };
    struct pair p;
    struct fabric_ops fabric = fabric_soft;
    fabric.get_async_event = made_up_get;
    fabric.ack_async_event = made_up_ack;
    open_nodes(&p);
    p.b.node->fabric = &fabric;
    made_up.acked = 0;
    for (unsigned i = 0; i < sizeof words / sizeof words[0]; i++) {
        unsigned column = (unsigned)words[i].type;
        column = column < STATS_ASYNC_UNKNOWN ? column : STATS_ASYNC_UNKNOWN;
        uint64_t before = counted(&p, column), limit = env_now(&env_default) + PAIR_LIMIT_NS;
        made_up.event = (struct ibv_async_event){.event_type = (enum ibv_event_type)words[i].type,
                                                 .element.port_num = 200};
        made_up.waiting = true;
        soft_lock();
        soft_device_address_moved(NULL); /* so that there is something to be fetched */
        soft_unlock();
        memset(&told, 0, sizeof told);
        while (made_up.acked == i || told.lines < 2) {
            cm_progress(p.b.node->cm, 0);
            assert_true(env_now(&env_default) < limit);
        }
        if (strncmp(told.first, words[i].text, strlen(words[i].text)) != 0)
            fail_msg("\"%s\" does not begin with \"%s\"", told.first, words[i].text);
        /* What made it readable comes behind it, and is told as well. */
        assert_string_equal(told.last, "port 1 of sluice_soft0: GID_CHANGE (event 18)");
        bool twice = words[i].type == IBV_EVENT_GID_CHANGE;
        assert_int_equal(counted(&p, column) - before, twice ? 2 : 1);
        assert_int_equal(told.lines, 2);
    }
    p.b.node->fabric = &fabric_soft;
    pair_close(&p);
}
