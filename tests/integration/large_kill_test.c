/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * large_kill_test.c - the end in the middle of a large transfer, in every way the data path has for one
 * and on either side of it: kill -9, the device taken away, a hangup. The survivor hears one CLOSED, for
 * the right reason and behind every outcome; all its buffers return; and the next session works.
 *
 * The moments follow from a seed, the same in each run; SLUICE_TEST_SEED=N or random is another.
 * links: static (counts the buffers of a node)
 */
#include "support/large_flow.h"
#include "support/peer.h"
#include "support/pool_stats.h"

#include "common/sanitize.h"
#include "node/node.h"

enum end { FINISHED, HUNG_UP, KILLED, PEERS_DEVICE_GONE, DEVICE_GONE };

/* In each way; of both roles, and of who dials. A sanitizer finds in fewer what it can find. */
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD)
enum { KILLS = 4 };
#else
enum { KILLS = 6 };
#endif
#define END_NS (5000 * MS)

static uint64_t random_state;

static uint64_t random_below(uint64_t n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % n;
}

static void take_device_away(pid_t pid) {
    static const char *const orders[] = {"fatal-first", "removal-first", "fatal-only",
                                         "removal-only"};
    const char *bin = getenv("SLUICE_BIN_DIR");
    char command[600];
    must(bin);
    snprintf(command, sizeof command, "%s/sluice-soft ctl %d device remove order=%s >/dev/null",
             bin ? bin : ".", (int)pid, orders[random_below(4)]);
    must(system(command) == 0);
}

/* Messages that somebody holds: all of the application's, and what is received that is no frame. */
static uint64_t buffers_of(const struct side *side) {
    struct pool_stats figures;
    uint64_t buffers = pool_in_use(side->node->pool);
    pool_get_stats(side->node->rx_pool, &figures);
    for (unsigned i = 0; i <= POOL_CLASSES; i++)
        if (i == POOL_CLASSES || pool_class_bytes(i) > FLOW_RENDEZVOUS)
            buffers += figures.count[i].gets - figures.count[i].puts;
    return buffers;
}

struct round {
    struct flow flow;
    struct peer peer;
};

static void round_begin(struct round *r, struct side *side, enum flow_way way, bool gives,
                        bool dials) {
    const char *role = gives ? "take" : "give";
    char address[32];
    if (dials) {
        peer_run(&r->peer, "large_peer", "listen", flow_ways[way], role);
        flow_begin(&r->flow, side, way, gives, atoi(peer_expect(&r->peer, "port ")));
    } else {
        flow_begin(&r->flow, side, way, gives, 0);
        snprintf(address, sizeof address, "dial:%d", sluice_listener_port(r->flow.listener));
        peer_run(&r->peer, "large_peer", address, flow_ways[way], role);
    }
}

/*
 * Until so much arrived, and then for a time that is over anywhere in what comes next. Who gives has
 * something on its way then.
 */
static void round_goes_on(struct round *r, uint64_t progress, uint64_t ns) {
    struct flow *f = &r->flow;
    uint64_t start = sluice_now();
    while (!f->closed && flow_progress(f) < progress) {
        flow_turn(f, 10 * MS);
        must(sluice_now() - start < LIMIT_NS);
    }
    for (start = sluice_now(); !f->closed && sluice_now() - start < ns;)
        flow_turn(f, 0);
    while (!f->closed && f->gives && !f->stopped && !flow_busy(f)) {
        flow_turn(f, 0);
        must(sluice_now() - start < LIMIT_NS);
    }
    must(!f->closed);
}

static void round_ends(struct round *r, sluice_reason reason) {
    struct flow *f = &r->flow;
    uint64_t start = sluice_now();
    while (!f->closed && sluice_now() - start < LIMIT_NS)
        flow_turn(f, 10 * MS);
    must(f->closed);
    assert_uint_in_range(sluice_now() - start, 0, END_NS);
    if (f->end.event.reason != reason)
        print_error("closed: %s (%s), expected %s\n", sluice_reason_text(f->end.event.reason),
                    f->end.info.close_text, sluice_reason_text((int)reason));
    assert_int_equal(f->end.event.reason, reason);
    if (f->listener.id)
        sluice_unlisten(f->listener);
}

/* The other side lives, and was told as well; it has found for itself that the rest is right. */
static void round_peer_ends(struct round *r, sluice_reason reason) {
    while (!peer_ready(&r->peer)) /* its device may need ours to make progress */
        flow_turn(&r->flow, MS);
    peer_expect(&r->peer, "up");
    while (!peer_ready(&r->peer))
        flow_turn(&r->flow, MS);
    peer_expect(&r->peer, "closed ");
    if (peer_number(&r->peer, "reason") != (int)reason)
        print_error("the peer: %s, expected %s\n", r->peer.line, sluice_reason_text((int)reason));
    assert_int_equal(peer_number(&r->peer, "reason"), reason);
    assert_int_equal(peer_join(&r->peer), 0);
}

/* What sessions held is given back at the turns after CLOSED. */
static void await_buffers(struct side *side, uint64_t buffers) {
    sluice_node_info info = {.size = sizeof info};
    uint64_t until = sluice_now() + LIMIT_NS;
    struct note note;
    for (;;) {
        must(!side_next(side, &note, MS)); /* CLOSED was the last */
        must(sluice_node_get_info(side->node, &info) == 0);
        if (info.sessions == 0 && buffers_of(side) == buffers)
            return;
        if (sluice_now() > until)
            print_error("%u sessions, %llu buffers and not %llu\n", info.sessions,
                        (unsigned long long)buffers_of(side), (unsigned long long)buffers);
        must(sluice_now() <= until);
    }
}

static void one(struct side *side, enum flow_way way, bool gives, bool dials, enum end end) {
    static struct round r;
    uint64_t before = buffers_of(side);
    round_begin(&r, side, way, gives, dials);
    round_goes_on(&r, 1, 0);
    if (end != FINISHED)
        round_goes_on(&r, 1 + random_below(5), random_below(3 * MS));
    switch (end) {
    case FINISHED:
        round_goes_on(&r, 5, 0);
        r.flow.stopped = true;
        while (gives && flow_busy(&r.flow))
            round_goes_on(&r, flow_progress(&r.flow) + 1, 0);
        must_data(r.flow.good == r.flow.accepted);
        sluice_hangup(r.flow.session, 0);
        break;
    case HUNG_UP:
        sluice_hangup(r.flow.session, random_below(2) * MS);
        break;
    case KILLED:
        peer_kill(&r.peer);
        break;
    case PEERS_DEVICE_GONE:
        take_device_away(r.peer.pid);
        break;
    case DEVICE_GONE:
        take_device_away(getpid());
        break;
    }
    round_ends(&r, end == FINISHED || end == HUNG_UP ? SLUICE_REASON_LOCAL_CLOSE
                   : end == DEVICE_GONE              ? SLUICE_REASON_DEVICE_REMOVED
                                                     : SLUICE_REASON_PEER_LOST);
    if (end == FINISHED || end == HUNG_UP)
        round_peer_ends(&r, SLUICE_REASON_PEER_CLOSE);
    else if (end != KILLED)
        round_peer_ends(&r, end == DEVICE_GONE ? SLUICE_REASON_PEER_LOST
                                               : SLUICE_REASON_DEVICE_REMOVED);
    await_buffers(side, before);
}

static void kills(enum flow_way way) {
    struct side side;
    side_open(&side, false, flow_node(way, 0));
    for (unsigned i = 0; i < KILLS; i++)
        one(&side, way, i % 2, i / 2 % 2, KILLED);
    one(&side, way, random_below(2), random_below(2), FINISHED);
    side_expect_nothing(&side);
    side_close(&side, 0);
}

static void others(enum flow_way way, enum end end) {
    struct side side;
    side_open(&side, false, flow_node(way, 0));
    one(&side, way, true, random_below(2), end);
    if (end == DEVICE_GONE) { /* a new node for a new device */
        side_close(&side, 0);
        side_open(&side, false, flow_node(way, 0));
    }
    one(&side, way, false, random_below(2), end);
    if (end == DEVICE_GONE) {
        side_close(&side, 0);
        side_open(&side, false, flow_node(way, 0));
    }
    one(&side, way, random_below(2), random_below(2), FINISHED);
    side_close(&side, 0);
}

/* Without immediate data, as on iWARP, nothing is written: sluice_open() refuses. */
static enum flow_way way_of(void **state) {
    enum flow_way way = (enum flow_way)(uintptr_t)*state;
    if (way == FLOW_WRITE && it_iwarp())
        skip();
    return way;
}

/* Only the software device does it when it is told to. */
static void device_can_go(void) {
    if (!it_soft())
        skip();
}

#define WAY(name, way)                                                                             \
    { #name "/" #way, name, NULL, NULL, (void *)(uintptr_t)(way) }
#define ALL_WAYS(name)                                                                             \
    TEST_EACH(name, WAY(name, FLOW_READ), WAY(name, FLOW_WRITE), WAY(name, FLOW_PLACE),            \
              WAY(name, FLOW_PUTS), WAY(name, FLOW_REQUEST))

ALL_WAYS(a_kill_leaves_nothing_behind) {
    kills(way_of(state));
}

ALL_WAYS(a_hangup_leaves_nothing_behind) {
    others(way_of(state), HUNG_UP);
}

ALL_WAYS(a_peer_without_its_device_leaves_nothing_behind) {
    device_can_go();
    others(way_of(state), PEERS_DEVICE_GONE);
}

ALL_WAYS(a_device_taken_away_leaves_nothing_behind) {
    device_can_go();
    others(way_of(state), DEVICE_GONE);
}

int main(void) {
    const char *text = getenv("SLUICE_TEST_SEED");
    uint64_t seed = 20240229;
    if (text && strcmp(text, "random") == 0)
        seed = sluice_now() ^ (uint64_t)getpid() << 32;
    else if (text)
        seed = strtoull(text, NULL, 0);
    random_state = seed ? seed : 1;
    print_message("    SLUICE_TEST_SEED=%llu\n", (unsigned long long)seed);
    signal(SIGPIPE, SIG_IGN);
    return tests_run(NULL, NULL);
}
