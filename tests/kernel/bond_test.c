/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * bond_test.c - two hosts joined by two cables, an active-backup bond at either end. When one cable fails and the other
 * takes over, rdma_cm says that an address changed; what the log says then is true: a session goes on as far as
 * the device does, and its end names what it was. When the cable is out the port is down, and a session goes on when it is
 * active again.
 */
#include "support/far_flow.h"

/* ---- the bonds --------------------------------------------------------------------------------------- */

/* Beside the one cable, with devices and addresses of their own. */
static int two_cables(void **state) {
    setenv("SLUICE_DEVICE", "bond0", 1);
    setenv("SLUICE_DEVICE_2", "bond1", 1);
    setenv("SLUICE_TEST_HOST_2", "10.77.1.2", 1);
    must(far_shell("here() { \"$@\"; } && there() { $THERE \"$@\"; } && "
                   "for i in 2 3; do ip link add ka$i mtu 4500 type veth peer name kb$i mtu 4500 "
                   "netns peer "
                   "|| exit; done && "
                   "bonded() { $1 ip link add $2 type bond mode active-backup miimon 50 "
                   "fail_over_mac active num_grat_arp 3 && "
                   "for slave in $3 $4; do $1 ip link set $slave master $2 || return; done; "
                   "$1 ip link set $2 mtu 4500 up && $1 ip addr add $5/24 dev $2 && "
                   "$1 rdma link add $6 type $KERNEL_DRIVER netdev $2; } && "
                   "bonded here bonda ka2 ka3 10.77.1.1 bond0 && "
                   "bonded there bondb kb2 kb3 %s bond1 && ping -c 1 -W 10 %s > ping",
                   far_host(), far_host()) == 0);
    return far_warm_up(state);
}

static void cable(const char *interface, bool in) {
    must(far_shell("ip link set %s %s", interface, in ? "up" : "down") == 0);
}

/* ---- what the log says --------------------------------------------------------------------------------- */

static struct { _Atomic unsigned changes, sessions, down, again; } told;

static void note_line(int level, const char *text, void *arg) {
    (void)level;
    (void)arg;
    printf("here: %s\n", text);
    told.changes += strstr(text, "(ADDR_CHANGE)") != NULL;
    told.sessions += strstr(text, "ADDR_CHANGE: the session ") &&
                     strstr(text, ": it goes on as far as the device does");
    told.down += strstr(text, "port 1 of ") && strstr(text, " is down");
    told.again += strstr(text, "port 1 of ") && strstr(text, " is active again");
}

static void flow_open(struct far_flow *f, bool handlers) {
    memset(f, 0, sizeof *f);
    memset(&told, 0, sizeof told);
    side_open(&f->side, handlers, &(sluice_node_options){.log = note_line});
    far_flow_begin(f, SLUICE_OFF); /* nothing but the stack ends it */
    far_flow_messages(f, 40);
}

/* Everything is back and has its outcome, and nothing more is sent. */
static void flow_rest(struct far_flow *f) {
    f->seen.full = true;
    far_flow_on(f, f->seen.accepted, UINT64_MAX);
    while (!f->seen.closed && f->seen.outcomes < f->seen.accepted)
        far_flow_on(f, UINT64_MAX, sluice_now() + 20 * MS);
    assert_false(f->seen.closed);
}

/* Until then nothing of the session's ends. */
#define flow_until(f, condition)                                                                   \
    do {                                                                                           \
        uint64_t limit = sluice_now() + LIMIT_NS;                                                  \
        while (!(condition)) {                                                                     \
            far_flow_on(f, UINT64_MAX, sluice_now() + 50 * MS);                                    \
            if ((f)->seen.closed)                                                                  \
                far_flow_told(f, "ended", limit - LIMIT_NS);                                       \
            assert_false((f)->seen.closed);                                                        \
            must(sluice_now() < limit);                                                            \
        }                                                                                          \
    } while (0)

/* ---- */

/* The devices have their addresses, and the hosts hear each other. */
static bool way_is_there(const char *here, const char *there) {
    return far_shell("gids() { cat /sys/class/infiniband/$1/ports/1/gids/*; } 2> /dev/null; "
                     "gids $SLUICE_DEVICE | grep -q %s && "
                     "gids $SLUICE_DEVICE_2 | grep -q %s && ping -c 2 -i 0.2 -W 1 %s > ping",
                     here, there, far_host()) == 0;
}

/*
 * Soft-RoCE's address has another place in the device's table then, and a queue pair keeps to the old one: docs/kernel.md.
 * Nothing is sent meanwhile, so that no session ends before the new way is there.
 */
static void a_failover_is_told_and_a_session_goes_on_or_has_a_true_end(void **state) {
    struct far_flow f;
    flow_open(&f, handlers_of(state));
    flow_rest(&f);
    cable("ka2", false);
    flow_until(&f, told.sessions > 0 && told.changes > 0 && way_is_there("0a4d:0101", "0a4d:0102"));
    assert_true(cm_events("ADDR_CHANGE") > 0);
    uint64_t goal = f.seen.received + 40, begun = sluice_now();
    f.seen.full = false;
    far_flow_on(&f, goal, UINT64_MAX);
    if (f.seen.closed) {
        far_flow_told(&f, "here", begun);
        assert_int_equal(f.seen.end.event.reason, SLUICE_REASON_PEER_LOST);
        assert_non_null(
            strstr(f.seen.end.info.close_text, "after an address of this side changed"));
        must_data_equal(f.seen.outcomes, f.seen.accepted);
        far_expect(&f.peer, "closed ");
        far_flow_dial(&f, SLUICE_OFF); /* and whoever dials now comes up */
        far_flow_messages(&f, 40);
    }
    far_flow_close(&f);
    cable("ka2", true);
    cable("ka3", false); /* back to the first one, for who comes next */
    uint64_t limit = sluice_now() + LIMIT_NS;
    while (!way_is_there("0a4d:0101", "0a4d:0102"))
        must(sluice_now() < limit);
    cable("ka3", true);
}

static void a_port_that_is_down_for_a_while_ends_nothing(void **state) {
    struct far_flow f;
    flow_open(&f, handlers_of(state));
    flow_rest(&f);
    far_interface(false);
    flow_until(&f, told.down == 1);
    far_interface(true);
    flow_until(&f, told.again == 1 && way_is_there("0a4d:0001", "0a4d:0002"));
    assert_true(cm_events("PORT_ERR") > 0);
    assert_true(cm_events("PORT_ACTIVE") > 0);
    f.seen.full = false;
    far_flow_messages(&f, 100);
    far_flow_close(&f);
}

/* Two groups, each with a set-up of its own. */
int main(void) {
    const struct CMUnitTest failover[] = {
        LEVEL_CASE(a_failover_is_told_and_a_session_goes_on_or_has_a_true_end, "polled", 0),
        LEVEL_CASE(a_failover_is_told_and_a_session_goes_on_or_has_a_true_end, "handlers", 1),
    };
    const struct CMUnitTest port[] = {
        LEVEL_CASE(a_port_that_is_down_for_a_while_ends_nothing, "polled", 0),
        LEVEL_CASE(a_port_that_is_down_for_a_while_ends_nothing, "handlers", 1),
    };
    int failed = cmocka_run_group_tests(port, far_warm_up, far_restore);
    /* Neither device of 7.2 can be removed any more: it waits for ever. The guest's end is the end of them. */
    return failed + cmocka_run_group_tests(failover, two_cables, NULL);
}
