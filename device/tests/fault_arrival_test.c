/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fault_arrival_test.c - messages of the connection manager that get lost or are late where they
 * arrive: what is repeated only costs time, what is not ends as documented.
 */
#include "support/fault.h"
#include "support/softcm.h"
#include "support/rows.h"

/* Both sides come up and go down again, and hear what they should. */
static void whole_life(struct ct_pair *pair) {
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
    ct_pair_accept(pair);
    ct_confirm(pair->active, pair->passive_channel);
    assert_int_equal(soft_disconnect(pair->active), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_int_equal(soft_disconnect(pair->passive), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
}

static const char *const repeated[] = {"REQ", "REP", "RTU", "DREQ", "DREP"};

static void each_message(const char *scope, const char *effect, uint64_t least_ns) {
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        struct ct_pair pair;
        char plan[64], line[64];
        static char log[16384];
        ct_pair_listen(&pair);
        snprintf(plan, sizeof plan, "%s=%s n=1 %s", scope, repeated[i], effect);
        fault_plan(plan);
        uint64_t start = soft_now_ns();
        whole_life(&pair);
        assert_true(soft_now_ns() - start >= least_ns);
        fault_log(log, sizeof log);
        snprintf(line, sizeof line, " %s 1: ", repeated[i]);
        if (strncmp(log, scope, strlen(scope)) != 0 || !strstr(log, line))
            fail_msg("%s: nothing of it in '%s'", plan, log);
        ct_pair_free(&pair);
    }
}

TEST(a_message_lost_on_arrival_is_repeated) {
    each_message("cm_in", "loss", 0);
}

TEST(a_message_lost_on_its_way_out_is_repeated) {
    each_message("cm", "loss", 0);
}

TEST(a_message_late_on_arrival_only_costs_time) {
    each_message("cm_in", "delay=15ms", 0);
    struct ct_pair pair;
    ct_pair_listen(&pair);
    fault_plan("cm_in=REQ delay=20ms; cm_in=REP delay=20ms; cm_in=RTU delay=20ms; "
               "cm_in=DREQ delay=20ms; cm_in=DREP delay=20ms");
    uint64_t start = soft_now_ns();
    whole_life(&pair);
    assert_true(soft_now_ns() - start >= 100000000);
    ct_pair_free(&pair);
}

/* A message is repeated after 100 ms, which a loaded machine may take: then the whole life once more. */
TEST(arrivals_count_for_the_id_they_are_for) {
    bool repeated = true;
    for (unsigned life = 0; repeated && life < 50; life++) {
        static char log[65536];
        struct ct_pair pair;
        ct_pair_listen(&pair); /* id 1; the active one is 2, the request's 3 */
        fault_plan("cm_in=* delay=1us");
        whole_life(&pair);
        fault_log(log, sizeof log);
        repeated = strstr(log, " 2: ") || strstr(log, " MRA ");
        if (!repeated)
            assert_string_equal(log, "cm_in id#1 REQ 1: delay 1us (line 1)\n"
                                     "cm_in id#2 REP 1: delay 1us (line 1)\n"
                                     "cm_in id#2 DREP 1: delay 1us (line 1)\n"
                                     "cm_in id#3 RTU 1: delay 1us (line 1)\n"
                                     "cm_in id#3 DREQ 1: delay 1us (line 1)\n");
        ct_pair_free(&pair);
    }
    assert_false(repeated);
}

static bool waits(struct rdma_cm_id *id) {
    soft_lock();
    bool yes = soft_cm_id_of(id)->conn.waiting;
    soft_unlock();
    return yes;
}

/* An application that takes its time has its process ask for more, again if need be. */
CT_WITH(ct_listening, a_plea_for_time_that_gets_lost_is_repeated) {
    struct ct_pair *pair = *state;
    fault_plan("cm_in=MRA n=1 loss");
    pair->active = ct_connect(pair->active_channel, pair->port);
    pair->passive = ct_request(pair->passive_channel);
    softcm_until(waits(pair->active));
    ct_pair_accept(pair);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_until(waits(pair->passive)); /* nor has the active one fetched it yet */
    assert_int_equal(soft_establish(pair->active), 0);
    assert_int_equal(ct_take(pair->passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    static char log[16384];
    fault_log(log, sizeof log);
    assert_non_null(strstr(log, "MRA 1: loss (line 1)\n"));
}

struct lost {
    const char *plan;
    bool unheard;                        /* there was no request */
    bool accepted, established, refused; /* so far it went */
    bool passive, active;                /* which side is told */
};

static void it_never_arrives(void **state) {
    const struct lost *lost = *state;
    struct ct_pair pair;
    ct_pair_listen(&pair);
    fault_plan(lost->plan);
    pair.active = ct_connect(pair.active_channel, pair.port);
    if (!lost->unheard)
        pair.passive = ct_request(pair.passive_channel);
    if (lost->accepted)
        ct_pair_accept(&pair);
    if (lost->refused)
        assert_int_equal(soft_reject(pair.passive, NULL, 0), 0);
    if (lost->established) {
        assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
        assert_int_equal(soft_establish(pair.active), 0);
    }
    if (lost->passive)
        assert_int_equal(ct_take(pair.passive_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    if (lost->active)
        assert_int_equal(ct_take(pair.active_channel, RDMA_CM_EVENT_UNREACHABLE), -ETIMEDOUT);
    if (lost->unheard)
        assert_false(ct_readable(pair.passive_channel, 0));
    ct_pair_free(&pair);
}

CT_WITH(ct_connected, a_disconnect_that_never_arrives_times_out) {
    struct ct_pair *pair = *state;
    fault_plan("cm_in=DREQ loss");
    assert_int_equal(soft_disconnect(pair->active), 0);
    assert_int_equal(ct_take(pair->active_channel, RDMA_CM_EVENT_DISCONNECTED), -ETIMEDOUT);
    assert_false(ct_readable(pair->passive_channel, 0));
}

/* What is late when its sender dies is heard no more; nothing is left of it. */
static void asks_and_dies(int fd) {
    softcm_start();
    struct rdma_event_channel *channel = soft_create_event_channel();
    (void)ct_connect(channel, (uint16_t)sv_hear(fd));
    must(sv_hear(fd) == 1);
    _exit(0);
}

static bool request_is_late(void) {
    char log[256];
    soft_lock();
    soft_fault_log(log, sizeof log);
    soft_unlock();
    return strstr(log, "REQ 1") != NULL;
}

TEST(a_late_request_of_a_dead_process_is_forgotten) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(asks_and_dies);
    struct ct_pair pair;
    ct_pair_listen(&pair);
    fault_plan("cm_in=REQ delay=200ms");
    uint64_t start = soft_now_ns();
    sv_tell(child.fd, pair.port);
    sv_until(request_is_late());
    sv_tell(child.fd, 1);
    assert_int_equal(sv_join(&child), 0);
    /* Its time comes, and nothing is heard. */
    fault_clear();
    int left = 250 - (int)((soft_now_ns() - start) / 1000000);
    assert_false(
        ct_readable(pair.passive_channel, left > 0 ? left : 0)); /* less would be for ever */
    ct_pair_free(&pair);
}

static void connects_and_dies(int fd) {
    softcm_start();
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_connect(channel, (uint16_t)sv_hear(fd));
    must(ct_take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
    must(soft_establish(id) == 0);
    must(sv_hear(fd) == 1);
    must(soft_disconnect(id) == 0);
    _exit(0);
}

/* It hung up before it died: the end of its process does not overtake that. */
TEST(the_end_of_a_process_is_heard_behind_what_it_said) {
    FAULT_NO_FORK();
    struct sv_child child = sv_fork(connects_and_dies);
    struct ct_pair pair;
    ct_pair_listen(&pair);
    fault_plan("cm_in=DREQ delay=300ms");
    sv_tell(child.fd, pair.port);
    pair.passive = ct_request(pair.passive_channel);
    ct_pair_accept(&pair);
    assert_int_equal(ct_take(pair.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    uint64_t start = soft_now_ns();
    sv_tell(child.fd, 1);
    assert_int_equal(sv_join(&child), 0);
    assert_int_equal(ct_take(pair.passive_channel, RDMA_CM_EVENT_DISCONNECTED), 0);
    assert_true(soft_now_ns() - start >= 300000000);
    fault_clear();
    ct_pair_free(&pair);
}

TEST_CASES(ROW(a_request_that_never_arrives_is_unreachable, it_never_arrives, lost,
               "cm_in=REQ loss", .active = true, .unheard = true),
           ROW(a_reply_that_never_arrives_is_unreachable_on_both_sides, it_never_arrives, lost,
               "cm_in=REP loss", .accepted = true, .passive = true, .active = true),
           ROW(a_confirmation_that_never_arrives_is_unreachable_at_the_passive_side,
               it_never_arrives, lost, "cm_in=RTU loss", .accepted = true, .established = true,
               .passive = true),
           ROW(a_refusal_that_never_arrives_is_unreachable, it_never_arrives, lost,
               "cm_in=REJ loss", .refused = true, .active = true));

int main(void) {
    return tests_run(softcm_setup, NULL);
}
