/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * cm_race_test.c - the known races of connection management, each provoked: events that come late,
 * twice or in the wrong order, events that belong to nobody, a device that goes while everything is
 * under way.
 */
#include "support/places.h"

#include "cm/internal.h"

#include <netinet/in.h>

static const struct place *place_of(enum cm_state state, bool passive) {
    for (unsigned i = 0; i < PLACES; i++)
        if (places[i].state == state && places[i].passive == passive)
            return &places[i];
    fail_msg("no such place");
    return NULL;
}

/* An event on the visited connection's id; false: it has none any more. */
static bool say(struct visit *v, const struct place *place, int type, int status) {
    struct cm_owner *owner = place_owner(v, place);
    if (!owner || (!owner->id && owner->state != CM_BACKOFF))
        return false;
    struct rdma_cm_event event = {.event = (enum rdma_cm_event_type)type, .status = status};
    assert_true(visit_say(v, place, owner, &event, NULL, 0));
    return true;
}

/* The visited connection goes on to UP, and carries messages both ways. */
static void expect_working(struct visit *v) {
    visit_let_go(v);
    visit_come_up(v);
    for (unsigned i = 0; i < 2; i++) {
        struct side *from = i ? &v->p.a : &v->p.b, *to = i ? &v->p.b : &v->p.a;
        assert_int_equal(pair_send(from, 3000, i, NULL), 0);
        sluice_event message = pair_expect(&v->p, to, SLUICE_MESSAGE);
        assert_true(pair_check(message.msg, 3000, i));
    }
}

/* ---- late, twice, in the wrong order ---------------------------------------------------------- */

/* A listener's that nobody confirmed. A dialer's is about the network below, and what is up goes on. */
TEST(a_late_unreachable_ends_what_was_not_confirmed) {
    struct visit v;
    visit_open(&v);
    fault_plan("id=* after=ESTABLISHED event=UNREACHABLE status=-110");
    for (unsigned i = 0; i < 20; i++) {
        v.known = v.p.a.closed = v.p.b.closed = 0;
        v.p.a.session.id = 0;
        v.dials = 1;
        pair_dial(&v.p, PAIR_LINK(.flags = SLUICE_ONCE));
        visit_settle(&v); /* the two ends follow from each other */
        assert_int_equal(v.last[0].reason, SLUICE_REASON_PEER_LOST);
        assert_int_equal(v.last[0].status, SLUICE_EUNKNOWN);
        assert_int_equal(v.info[0].cm_event, RDMA_CM_EVENT_UNREACHABLE);
        assert_int_equal(v.info[0].cm_status, -ETIMEDOUT);
    }
    fault_plan(NULL);
    /* The dialer's side has no such event from the device: it is forged. */
    struct cm_owner *owner = visit(&v, place_of(CM_UP, false));
    for (unsigned i = 0; i < 2; i++) {
        assert_true(say(&v, place_of(CM_UP, false), RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT));
        assert_int_equal(owner->state, CM_UP);
        expect_working(&v);
    }
    visit_end(&v);
    visit_close(&v);
}

struct sequel { /* two events on one connection; the first decides */
    enum cm_state state;
    bool passive;
    int first, first_status, second;
    sluice_reason reason;
};

static const struct sequel sequels[] = {
    {CM_CONNECTING, false, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, RDMA_CM_EVENT_REJECTED,
     SLUICE_REASON_UNREACHABLE},
    {CM_CONNECTING, false, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, RDMA_CM_EVENT_ESTABLISHED,
     SLUICE_REASON_UNREACHABLE},
    {CM_CONNECTING, false, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, RDMA_CM_EVENT_CONNECT_RESPONSE,
     SLUICE_REASON_UNREACHABLE},
    {CM_CONNECTING, false, RDMA_CM_EVENT_REJECTED, 8, RDMA_CM_EVENT_REJECTED,
     SLUICE_REASON_NO_LISTENER},
    {CM_CONNECTING, false, RDMA_CM_EVENT_DISCONNECTED, 0, RDMA_CM_EVENT_CONNECT_RESPONSE,
     SLUICE_REASON_PEER_LOST},
    {CM_MODIFYING_QP, false, RDMA_CM_EVENT_DISCONNECTED, 0, RDMA_CM_EVENT_ESTABLISHED,
     SLUICE_REASON_PEER_LOST},
    {CM_MODIFYING_QP, false, RDMA_CM_EVENT_REJECTED, 4, RDMA_CM_EVENT_DISCONNECTED,
     SLUICE_REASON_UNREACHABLE},
    {CM_MODIFYING_QP, false, RDMA_CM_EVENT_REJECTED, 28, RDMA_CM_EVENT_DISCONNECTED,
     SLUICE_REASON_PEER_LOST},
    {CM_UP, false, RDMA_CM_EVENT_REJECTED, 28, RDMA_CM_EVENT_DISCONNECTED, SLUICE_REASON_PEER_LOST},
    {CM_MODIFYING_QP, false, RDMA_CM_EVENT_CONNECT_ERROR, -1, RDMA_CM_EVENT_DISCONNECTED,
     SLUICE_REASON_DEVICE_ERROR},
    {CM_ACCEPTING, true, RDMA_CM_EVENT_DISCONNECTED, 0, RDMA_CM_EVENT_ESTABLISHED,
     SLUICE_REASON_PEER_LOST},
    {CM_ACCEPTING, true, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, RDMA_CM_EVENT_ESTABLISHED,
     SLUICE_REASON_PEER_LOST},
    {CM_ACCEPTING, true, RDMA_CM_EVENT_REJECTED, 28, RDMA_CM_EVENT_REJECTED,
     SLUICE_REASON_PEER_LOST},
    {CM_AWAITING_APP, true, RDMA_CM_EVENT_DISCONNECTED, 0, RDMA_CM_EVENT_DISCONNECTED,
     SLUICE_REASON_PEER_LOST},
    {CM_UP, true, RDMA_CM_EVENT_DISCONNECTED, 0, RDMA_CM_EVENT_UNREACHABLE,
     SLUICE_REASON_PEER_LOST},
    {CM_UP, false, RDMA_CM_EVENT_DISCONNECTED, -ETIMEDOUT, RDMA_CM_EVENT_TIMEWAIT_EXIT,
     SLUICE_REASON_PEER_LOST},
};

TEST(the_first_of_two_endings_counts) {
    struct visit v;
    visit_open(&v);
    for (unsigned i = 0; i < sizeof sequels / sizeof *sequels; i++) {
        const struct sequel *sequel = &sequels[i];
        const struct place *place = place_of(sequel->state, sequel->passive);
        visit(&v, place);
        struct cm_conn *conn = (struct cm_conn *)(void *)place_owner(&v, place);
        assert_true(say(&v, place, sequel->first, sequel->first_status));
        assert_int_equal(conn->owner.state, CM_FAILED);
        assert_true(say(&v, place, sequel->second, 0));
        assert_int_equal(conn->owner.state, CM_FAILED);
        assert_int_equal(conn->down.reason, sequel->reason);
        assert_int_equal(conn->down.cm_event, sequel->first);
        assert_int_equal(conn->down.cm_status, sequel->first_status);
        visit_settle(&v);
        if (!sequel->passive) {
            assert_int_equal(v.last[1].reason, sequel->reason);
            assert_int_equal(v.info[1].cm_event, sequel->first);
            assert_int_equal(v.info[1].cm_status, sequel->first_status);
        }
    }
    visit_close(&v);
}

/* ESTABLISHED twice, CONNECT_RESPONSE twice, addresses and routes that are resolved late or again. */
TEST(a_repeated_answer_changes_nothing) {
    static const struct {
        enum cm_state state;
        bool passive;
        int type;
    } again[] = {
        {CM_UP, true, RDMA_CM_EVENT_ESTABLISHED},
        {CM_UP, false, RDMA_CM_EVENT_ESTABLISHED},
        {CM_MODIFYING_QP, false, RDMA_CM_EVENT_CONNECT_RESPONSE},
        {CM_UP, false, RDMA_CM_EVENT_CONNECT_RESPONSE},
        {CM_RESOLVING_ROUTE, false, RDMA_CM_EVENT_ADDR_RESOLVED},
        {CM_CREATING_QP, false, RDMA_CM_EVENT_ADDR_RESOLVED},
        {CM_CONNECTING, false, RDMA_CM_EVENT_ADDR_RESOLVED},
        {CM_MODIFYING_QP, false, RDMA_CM_EVENT_ADDR_RESOLVED},
        {CM_UP, false, RDMA_CM_EVENT_ADDR_RESOLVED},
        {CM_ACCEPTING, true, RDMA_CM_EVENT_ADDR_RESOLVED},
        {CM_UP, false, RDMA_CM_EVENT_ADDR_ERROR},
        {CM_CONNECTING, false, RDMA_CM_EVENT_ROUTE_RESOLVED},
        {CM_UP, false, RDMA_CM_EVENT_ROUTE_ERROR},
    };
    struct visit v;
    visit_open(&v);
    for (unsigned i = 0; i < sizeof again / sizeof *again; i++) {
        const struct place *place = place_of(again[i].state, again[i].passive);
        struct cm_owner *owner = visit(&v, place);
        assert_true(say(&v, place, again[i].type, 0));
        assert_int_equal(owner->state, place->state);
        expect_working(&v);
        visit_end(&v);
    }
    visit_close(&v);
}

static bool is_searching(const struct place *place) {
    return place->state == CM_RESOLVING_ADDR || place->state == CM_RESOLVING_ROUTE ||
           place->state == CM_CREATING_QP || place->state == CM_CONNECTING;
}

/* TIMEWAIT_EXIT and ADDR_CHANGE tell, and numbers of the future do; with any status. What a dial that has
 * not found its peer makes of ADDR_CHANGE is in moved_test.c. */
TEST(hints_and_unknown_events_change_nothing_in_any_state) {
    static const int types[] = {
        RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_ADDR_CHANGE, 20, 57, INT32_MAX, -1};
    struct visit v;
    visit_open(&v);
    for (unsigned i = 0; i < PLACES; i++)
        for (unsigned k = 0; k < sizeof types / sizeof *types; k++) {
            const struct place *place = &places[i];
            struct cm *cm = place_side(&v, place)->node->cm;
            if (types[k] == RDMA_CM_EVENT_ADDR_CHANGE && is_searching(place))
                continue;
            unsigned column = k < 2 ? (unsigned)types[k] : CM_EVENT_UNKNOWN;
            struct cm_owner *owner = visit(&v, place);
            struct rdma_event_channel *held = watched.held;
            watched.held = cm->channel; /* a real one of them may be on its way */
            uint64_t before = atomic_load(&cm->stats->events[column]);
            assert_true(say(&v, place, types[k], INT32_MIN + (int)i));
            assert_int_equal(atomic_load(&cm->stats->events[column]), before + 1);
            watched.held = held;
            watched_nudge(place_side(&v, place)->node);
            assert_int_equal(owner->state, place->state);
            if (place->way != BY_FAILING && place->way != BY_HANGING_UP)
                expect_working(&v);
            visit_end(&v);
        }
    visit_close(&v);
}

/* ---- whose events they are -------------------------------------------------------------------- */

TEST(an_event_of_an_id_without_context_is_only_counted) {
    struct visit v;
    struct rdma_cm_id *id;
    visit_open(&v);
    struct cm *cm = v.p.b.node->cm;
    assert_int_equal(soft_create_id(cm->channel, &id, NULL, RDMA_PS_TCP), 0);
    for (unsigned column = 0; column < CM_EVENT_COUNT; column++) {
        uint64_t before = atomic_load(&cm->stats->events[column]);
        assert_true(watched_forge(
            &(struct rdma_cm_event){.id = id, .event = (enum rdma_cm_event_type)column}, NULL, 0));
        cm_progress(cm, 0);
        assert_int_equal(atomic_load(&cm->stats->events[column]), before + 1);
    }
    soft_destroy_id(id);
    visit_close(&v);
}

/* Requests with private data of every length: none of it, some, more than was meant. */
TEST(a_request_of_any_length_is_answered) {
    struct visit v;
    uint8_t data[255];
    memset(data, 0xa5, sizeof data);
    visit_open(&v);
    struct cm *cm = v.p.a.node->cm;
    struct cm_owner *listener = place_owner(&v, place_of(CM_LISTENING, true));
    for (unsigned bytes = 0; bytes < 256; bytes++) {
        struct private_data_req proposal;
        struct rdma_cm_id *id;
        cm_proposal(cm, &cm_listener_at(cm, 0)->link, &proposal);
        private_data_req_encode(&proposal, data); /* whole only from its own length on */
        memset(data + PRIVATE_DATA_REQ_BYTES, bytes & 1 ? 0 : 0xa5,
               sizeof data - PRIVATE_DATA_REQ_BYTES);
        uint64_t refused = atomic_load(&cm->stats->refused);
        assert_int_equal(soft_create_id(cm->channel, &id, listener, RDMA_PS_TCP), 0);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f000001)};
        assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&address), 0);
        struct rdma_cm_event request = {
            .id = id, .listen_id = listener->id, .event = RDMA_CM_EVENT_CONNECT_REQUEST};
        assert_true(watched_forge(&request, bytes ? data : NULL, bytes));
        cm_progress(cm, 0);
        bool whole =
            bytes == PRIVATE_DATA_REQ_BYTES || (bytes > PRIVATE_DATA_REQ_BYTES && (bytes & 1));
        if (whole) { /* it gets as far as the id, which is no request */
            uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
            while (session_table_used_count(v.p.a.node->index) > 0 && env_now(&env_default) < limit)
                visit_turn(&v);
        }
        assert_int_equal(session_table_used_count(v.p.a.node->index), 0);
        assert_int_equal(atomic_load(&cm->stats->refused), refused + 1);
    }
    visit_close(&v);
}

/* ---- the device goes -------------------------------------------------------------------------- */

/* Some sessions are up, one waits for an answer, one is dialed and one is being closed. */
TEST(removal_ends_everything_once_in_every_order) {
    enum { UP = 4 };
    for (int order = ORDER_FATAL_FIRST; order <= ORDER_REMOVAL_ONLY; order++) {
        struct pair p;
        sluice_event event;
        unsigned expected[2] = {UP, UP};
        watched_open(&p, PAIR_LINK());
        struct side *sides[] = {&p.a, &p.b};
        for (unsigned i = 0; i < UP; i++)
            pair_connect(&p, PAIR_LINK(.flags = SLUICE_ONCE));
        cm_listener_at(p.a.node->cm, 0)->link.flags = SLUICE_ASK;
        pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE));
        pair_expect(&p, &p.a, SLUICE_CONNECT);
        expected[0]++;
        pair_dial(&p, PAIR_LINK(.flags = SLUICE_ONCE)); /* nobody has looked at it yet */
        expected[1] += 2;
        watched_device(DEVICE_REMOVE, (enum soft_device_order)order);
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (!p.a.node->cm->device_gone || !p.b.node->cm->device_gone) {
            for (int i = 0; i < 2; i++) {
                cm_progress(sides[i]->node->cm, 0);
                if (sluice_poll(sides[i]->loop, &event, 1, 0) != 1)
                    continue;
                assert_int_equal(event.type, SLUICE_CLOSED);
                if (event.reason != SLUICE_REASON_DEVICE_REMOVED)
                    fail_msg("order %d: %s", order, sluice_reason_text(event.reason));
                assert_int_equal(event.status, SLUICE_EDEVICE);
                pair_note(sides[i], &event);
            }
            if (env_now(&env_default) >= limit)
                fail_msg("order %d: the device is not let go of", order);
        }
        for (int i = 0; i < 2; i++) {
            while (sluice_poll(sides[i]->loop, &event, 1, 0) == 1)
                pair_note(sides[i], &event);
            assert_int_equal(sides[i]->closed, expected[i]);
            assert_int_equal(sides[i]->listeners_lost, i == 0);
            assert_int_equal(session_table_used_count(sides[i]->node->index), 0);
            assert_null(sides[i]->node->context);
            assert_null(sides[i]->node->cm->watch.id);
        }
        watched_close(&p);
    }
}

int main(void) {
    setenv("SLUICE_SOFT_CM_TIMEOUT_MS", "600", 1);
    return tests_run(NULL, NULL);
}
