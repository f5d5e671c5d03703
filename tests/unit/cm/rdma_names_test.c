/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * rdma_names_test.c - a name is looked up through rdma_cm where it can be, never by the CM thread, and
 * what comes of a dial is the same with and without: addresses, their order and number, reason and words.
 *
 * getaddrinfo() is the test's own, for the library and for the software device's rdma_cm alike. It tells
 * the two apart by AI_ADDRCONFIG, which rdma_cm cannot be asked for; rdma_cm is to ask for numbers only. The CM thread is
 * the test itself.
 */
#include "support/pair.h"
#include "support/name_server.h"
#include "support/fault.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>

#include "soft/fault/plan.h"
#include "soft/ipc/control_lock.h"

/* ---- the name server ------------------------------------------------------------------------------- */

enum { ADDRESSES_MAX = 13 };

struct entry {
    const char *name;
    int error; /* an EAI_ code */
    const char *addresses[ADDRESSES_MAX];
};

static const struct entry entries[] = {
    {"one.test", 0, {"127.0.0.1"}},
    {"late.test", 0, {"127.0.0.41", "127.0.0.42", "127.0.0.1"}},
    {"twice.test", 0, {"127.0.0.41", "127.0.0.41", "127.0.0.1", "127.0.0.41"}},
    {"mixed.test", 0, {"::1", "127.0.0.1"}},
    {"many.test",
     0,
     {"127.0.0.31", "127.0.0.32", "127.0.0.33", "127.0.0.34", "::1", "127.0.0.36", "127.0.0.37",
      "127.0.0.38", "127.0.0.39", "127.0.0.40", "127.0.0.1"}},
    {"strange.test", 0, {"unix"}},
    {"none.test", EAI_NONAME, {NULL}},
    {"again.test", EAI_AGAIN, {NULL}},
    {"fail.test", EAI_FAIL, {NULL}},
    {"memory.test", EAI_MEMORY, {NULL}},
    /* rdma_cm and the system are of two minds */
    {"other.test", 0, {"127.0.0.51", "127.0.0.1"}},
    {"shy.test", 0, {"127.0.0.52", "127.0.0.1"}},
    {"turned.test", 0, {"127.0.0.53", "127.0.0.42", "127.0.0.1"}},
    /* they hang */
    {"slow.test", 0, {"127.0.0.1"}},
    {"slow-rdma.test", 0, {"127.0.0.54", "127.0.0.1"}},
};
enum {
    ALIKE = 10,
    FOUND = 5
}; /* in those rdma_cm and the system agree; the first ones are found */

/* What rdma_cm says of a number, if not that it is this number. */
static const struct answer {
    const char *number;
    int error; /* an EAI_ code */
    const char *address;
} answers[] = {
    {"127.0.0.51", 0, "127.0.0.99"},
    {"127.0.0.52", EAI_NONAME, NULL},
    {"127.0.0.53", 0, "127.0.0.1"},
};

static const struct answer *answer_for(const char *number) {
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strcmp(number, answers[i].number) == 0)
            return &answers[i];
    return NULL;
}

static _Atomic int looked_up; /* names, by whomever */

static struct addrinfo *make_info(const char *text) {
    struct {
        struct addrinfo info;
        struct sockaddr_storage address;
    } *one = calloc(1, sizeof *one);
    union address *at = (union address *)(void *)&one->address;
    one->info.ai_socktype = SOCK_STREAM;
    one->info.ai_addr = &at->any;
    if (inet_pton(AF_INET, text, &at->v4.sin_addr) == 1) {
        at->any.sa_family = AF_INET;
        one->info.ai_addrlen = sizeof at->v4;
    } else if (inet_pton(AF_INET6, text, &at->v6.sin6_addr) == 1) {
        at->any.sa_family = AF_INET6;
        one->info.ai_addrlen = sizeof at->v6;
    } else {
        at->any.sa_family = AF_UNIX;
        one->info.ai_addrlen = sizeof at->v4;
    }
    one->info.ai_family = at->any.sa_family;
    return &one->info;
}

static int number_of_rdma_cm(const char *node, struct addrinfo **out) {
    const struct answer *answer = answer_for(node);
    if (answer && answer->error)
        return answer->error;
    *out = make_info(answer ? answer->address : node);
    return 0;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
                struct addrinfo **out) {
    const struct entry *entry = NULL;
    (void)service;
    if (!(hints && (hints->ai_flags & AI_ADDRCONFIG))) {
        bool number = hints && (hints->ai_flags & AI_NUMERICHOST);
        looked_up += !number;
        return number ? number_of_rdma_cm(node, out) : EAI_NONAME;
    }
    looked_up++;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (strcmp(node, entries[i].name) == 0)
            entry = &entries[i];
    if (!entry)
        return EAI_NONAME;
    if (strcmp(node, "slow.test") == 0)
        name_server_lookup(true);
    if (entry->error != 0)
        return entry->error;
    for (unsigned i = 0; i < ADDRESSES_MAX && entry->addresses[i]; i++, out = &(*out)->ai_next)
        *out = make_info(entry->addresses[i]);
    return 0;
}

void freeaddrinfo(struct addrinfo *list) {
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

/* ---- the stack: what it has of the calls, and that nothing of a lookup is left ----------------------- */

enum stack {
    WITHOUT,   /* no such call in the fabric: the resolver threads alone */
    ABLE,      /* as the software device has it */
    LIBRDMACM, /* what is not found fails the call, with getaddrinfo()'s code as errno */
    MISSING,   /* librdmacm before 60 */
    MUTE,      /* the event comes, and there is nothing to be asked for */
    STACKS
};

static struct {
    _Atomic int asked, ids, channels;
    _Atomic int by_cm; /* asked by the CM thread, which a lookup may keep for as long as it likes */
    pthread_t cm;      /* the test's own thread, which takes the CM thread's turns */
    enum stack stack;
} calls;

static struct fabric_ops ops;

static int resolve(struct rdma_cm_id *id, const char *node, const char *service,
                   const struct rdma_addrinfo *hints) {
    calls.asked++;
    calls.by_cm += pthread_equal(pthread_self(), calls.cm) != 0;
    if (calls.stack == MISSING) {
        errno = ENOSYS;
        return -1;
    }
    const struct answer *answer = answer_for(node);
    if (calls.stack == LIBRDMACM && answer && answer->error) {
        errno = answer->error;
        return -1;
    }
    int rc = soft_resolve_addrinfo(id, node, service, hints);
    if (strcmp(node, "127.0.0.54") == 0) /* the event is there, and the call has not returned */
        name_server_lookup(true);
    return rc;
}

static int query(struct rdma_cm_id *id, struct rdma_addrinfo **out) {
    if (calls.stack != MUTE)
        return soft_query_addrinfo(id, out);
    errno = ENOENT;
    return -1;
}

static struct rdma_event_channel *create_channel(void) {
    struct rdma_event_channel *channel = soft_create_event_channel();
    calls.channels += channel != NULL;
    return channel;
}

static void destroy_channel(struct rdma_event_channel *channel) {
    soft_destroy_event_channel(channel);
    calls.channels--;
}

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                     enum rdma_port_space ps) {
    int rc = soft_create_id(channel, id, context, ps);
    calls.ids += rc == 0;
    return rc;
}

static int destroy_id(struct rdma_cm_id *id) {
    calls.ids--;
    return soft_destroy_id(id);
}

static void names_open(struct pair *p, enum stack stack) {
    const sluice_node_options o = {
        .size = sizeof o, .device = "soft", .workers = SLUICE_NO_WORKERS};
    sluice_error e = {0};
    name_server_go(false);
    memset(p, 0, sizeof *p);
    pair_clock = 0;
    pair_open_side(&p->a, PAIR_NODE());
    if (node_open_env(&p->b.node, &o, &pair_env, true, &e) != 0)
        fail_msg("%s", e.text);
    ops = *p->b.node->fabric;
    ops.resolve_addrinfo = stack == WITHOUT ? NULL : resolve;
    ops.query_addrinfo = query;
    ops.create_event_channel = create_channel;
    ops.destroy_event_channel = destroy_channel;
    ops.create_id = create_id;
    ops.destroy_id = destroy_id;
    p->b.node->fabric = &ops;
    calls.cm = pthread_self();
    calls.stack = stack;
    calls.asked = calls.ids = 0;
    calls.channels = 1;                          /* the CM thread's, opened before; */
    calls.ids = p->b.node->cm->watch.id ? 1 : 0; /* so is its watch */
    assert_int_equal(sluice_loop_open(p->b.node, &p->b.loop, &e), 0);
    pair_listen(p, PAIR_LINK());
}

/* The node is closed; lookups under way are let go and give back what they have. */
static void expect_nothing_left(void) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    name_server_go(true);
    while ((calls.ids != 0 || calls.channels != 0) && env_now(&env_default) < limit)
        sched_yield();
    assert_int_equal(calls.ids, 0);
    assert_int_equal(calls.channels, 0);
    assert_int_equal(calls.by_cm, 0);
}

static void names_close(struct pair *p) {
    pair_close(p);
    expect_nothing_left();
}

static sluice_session names_dial(struct pair *p, const char *name) {
    pair_dial_name(p, name, PAIR_LINK(.timeout_ns = SLUICE_OFF));
    return p->b.session;
}

static uint64_t events(struct pair *p, unsigned type) {
    return p->b.node->stats.page->cm.events[type];
}

/* ---- what comes of a dial ------------------------------------------------------------------------------ */

struct outcome {
    sluice_event_type type;
    sluice_reason reason;
    uint32_t vendor, tries;
    char text[124];
    unsigned count;
    char addresses[CM_CANDIDATES][64];
};

static void dial_through(struct pair *p, const char *name, struct outcome *out) {
    sluice_event event;
    sluice_session session = names_dial(p, name);
    if (!pair_next(p, &p->b, &event))
        fail_msg("%s: nothing came", name);
    sluice_session_info info = pair_info(session);
    memset(out, 0, sizeof *out);
    out->type = event.type;
    out->reason = event.reason;
    out->vendor = event.vendor;
    out->tries = info.tries;
    snprintf(out->text, sizeof out->text, "%s", info.close_text);
    const struct cm_conn *conn = &session_table_at(session.id)->connection->cm;
    out->count = event.reason == SLUICE_REASON_ADDRESS ? 0 : conn->candidate_count;
    for (unsigned i = 0; i < out->count; i++) {
        const union address *at = &conn->candidates[i];
        const void *host = at->any.sa_family == AF_INET ? (const void *)&at->v4.sin_addr
                                                        : (const void *)&at->v6.sin6_addr;
        assert_non_null(inet_ntop(at->any.sa_family, host, out->addresses[i], 64));
    }
    if (event.type == SLUICE_UP) {
        pair_expect(p, &p->a, SLUICE_UP);
        sluice_hangup(session, 0);
        pair_expect(p, &p->b, SLUICE_CLOSED);
        pair_expect(p, &p->a, SLUICE_CLOSED);
    }
}

static void expect_same(const char *name, enum stack stack, const struct outcome *a,
                        const struct outcome *b) {
    bool same = a->type == b->type && a->reason == b->reason && a->vendor == b->vendor &&
                a->tries == b->tries && a->count == b->count && strcmp(a->text, b->text) == 0 &&
                memcmp(a->addresses, b->addresses, sizeof a->addresses) == 0;
    if (!same)
        fail_msg("%s, stack %d: %s %d \"%s\" after %u tries of %u; without rdma_cm %s %d \"%s\" "
                 "after %u of %u",
                 name, (int)stack, sluice_event_name(b->type), (int)b->reason, b->text, b->tries,
                 b->count, sluice_event_name(a->type), (int)a->reason, a->text, a->tries, a->count);
}

TEST(a_dial_ends_the_same_way_with_and_without_rdma_cm) {
    static struct outcome without[ALIKE];
    for (enum stack stack = WITHOUT; stack < STACKS; stack++) {
        struct pair p;
        names_open(&p, stack);
        looked_up = 0;
        for (unsigned i = 0; i < ALIKE; i++) {
            struct outcome outcome;
            dial_through(&p, entries[i].name, &outcome);
            if (stack == WITHOUT)
                without[i] = outcome;
            expect_same(entries[i].name, stack, &without[i], &outcome);
        }
        const uint64_t resolved = events(&p, FABRIC_CM_ADDRINFO_RESOLVED),
                       error = events(&p, FABRIC_CM_ADDRINFO_ERROR);
        bool found = stack == ABLE || stack == LIBRDMACM || stack == MUTE;
        assert_int_equal(resolved, found ? FOUND : 0);
        assert_int_equal(error, 0); /* there is no number to ask about */
        assert_int_equal(calls.asked, stack == WITHOUT ? 0 : stack == MISSING ? 1 : FOUND);
        assert_int_equal(looked_up, ALIKE); /* each once */
        names_close(&p);
    }
    /* And what it is that is the same. */
    assert_int_equal(without[0].type, SLUICE_UP);
    assert_int_equal(without[1].type, SLUICE_UP);
    assert_int_equal(without[1].tries, 3);
    assert_int_equal(without[2].count, 2);
    assert_string_equal(without[3].addresses[0], "::1");
    assert_int_equal(without[4].count, CM_CANDIDATES);
    assert_string_equal(without[4].addresses[7], "127.0.0.38");
    for (unsigned i = 5; i < ALIKE; i++) {
        int error = i == 5 ? EAI_NONAME : entries[i].error;
        assert_int_equal(without[i].reason,
                         error == EAI_MEMORY ? SLUICE_REASON_NO_MEMORY : SLUICE_REASON_ADDRESS);
        assert_non_null(strstr(without[i].text, gai_strerror(error)));
    }
}

TEST(the_system_says_which_addresses_there_are) {
    struct pair p;
    struct outcome outcome;
    names_open(&p, ABLE);
    dial_through(&p, "other.test", &outcome);
    assert_int_equal(outcome.type, SLUICE_UP);
    assert_int_equal(outcome.count, 2);
    assert_string_equal(outcome.addresses[0], "127.0.0.51");
    dial_through(&p, "shy.test", &outcome);
    assert_int_equal(outcome.type, SLUICE_UP);
    assert_int_equal(outcome.count, 2);
    assert_string_equal(outcome.addresses[0], "127.0.0.52");
    assert_int_equal(events(&p, FABRIC_CM_ADDRINFO_RESOLVED), 1);
    assert_int_equal(events(&p, FABRIC_CM_ADDRINFO_ERROR), 1);
    names_close(&p);
}

TEST(what_rdma_cm_found_is_tried_first) {
    struct pair p;
    struct outcome outcome;
    names_open(&p, ABLE);
    dial_through(&p, "turned.test", &outcome);
    assert_int_equal(outcome.type, SLUICE_UP);
    assert_int_equal(outcome.tries, 1);
    assert_int_equal(outcome.count, 3);
    assert_string_equal(outcome.addresses[0], "127.0.0.1");
    assert_string_equal(outcome.addresses[1], "127.0.0.53"); /* the others as they were */
    assert_string_equal(outcome.addresses[2], "127.0.0.42");
    names_close(&p);
}

/* ---- meanwhile -------------------------------------------------------------------------------------------- */

TEST(the_event_is_taken_when_it_comes) {
    struct pair p;
    names_open(&p, ABLE);
    sluice_session session = names_dial(&p, "slow-rdma.test");
    pair_await(&p, events(&p, FABRIC_CM_ADDRINFO_RESOLVED) == 1);
    assert_int_equal(session_table_at(session.id)->connection->cm.owner.state, CM_RESOLVING_NAME);
    name_server_go(true);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_UP).session.id, session.id);
    names_close(&p);
}

TEST(a_cancelled_dial_leaves_its_lookup_to_itself) {
    static const char *const slow[] = {"slow.test", "slow-rdma.test"};
    for (unsigned i = 0; i < 2; i++) {
        struct pair p;
        names_open(&p, ABLE);
        sluice_session session = names_dial(&p, slow[i]);
        pair_await(&p, name_server_inside() == 1);
        sluice_hangup(session, 0);
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_LOCAL_CLOSE);
        pair_expect_nothing(&p, &p.b);
        /* The slot serves another when the answer for the first comes. */
        sluice_session next = names_dial(&p, slow[!i]);
        assert_int_equal((uint32_t)(next.id >> 32), (uint32_t)(session.id >> 32));
        pair_await(&p, name_server_inside() == 2);
        name_server_go(true);
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_UP).session.id, next.id);
        /* rdma_cm is not asked for a dial that is over. */
        pair_await(&p, events(&p, FABRIC_CM_ADDRINFO_RESOLVED) == 1 + i);
        assert_int_equal(calls.asked, 1 + i);
        pair_expect_nothing(&p, &p.b);
        names_close(&p);
    }
}

TEST(closing_waits_for_no_lookup_and_leaves_nothing) {
    static const char *const slow[] = {"slow.test", "slow-rdma.test"};
    for (unsigned hanging = 1; hanging <= 4; hanging++) { /* two wait for the lookups of others */
        struct pair p;
        unsigned threads = hanging < 2 ? hanging : 2;
        names_open(&p, ABLE);
        for (unsigned i = 0; i < hanging; i++)
            names_dial(&p, slow[i % 2]);
        pair_await(&p, name_server_inside() == threads);
        pair_close(&p);
        assert_int_equal(name_server_inside(), threads); /* the node is gone, the lookups are not */
        expect_nothing_left();
    }
}

/* The last: there is no device afterwards. */
TEST(a_lookup_outlives_the_device) {
    struct pair p;
    names_open(&p, ABLE);
    names_dial(&p, "slow.test");
    names_dial(&p, "slow-rdma.test");
    pair_await(&p, name_server_inside() == 2);
    assert_int_equal(fault_device(DEVICE_REMOVE, 0), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_DEVICE_REMOVED);
    assert_int_equal(name_server_inside(), 2);
    name_server_go(true);
    pair_await(&p, name_server_inside() == 0 && calls.ids <= 1); /* the watch may be left */
    pair_expect_nothing(&p, &p.b);
    names_close(&p);
}
