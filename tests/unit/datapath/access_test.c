/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* Operations that are not allowed: what is found here, what only the other device finds, and that no byte
 * changes where none may. */
#include "support/memory.h"

#include <sys/mman.h>

#include "core/wire/token.h"
#include "datapath/rma/one_sided.h"

/* Both sides end for the access; b's outcome with this tag says so, and later ones are not done. */
static void expect_access_end(struct memory *m, uint64_t tag, unsigned behind) {
    sluice_event event;
    uint64_t seen = 0;
    for (unsigned i = 0; i <= behind; i++) { /* what never left is told of at once */
        event = pair_expect(&m->pair, &m->pair.b, SLUICE_DONE);
        must_data(event.tag >= tag && event.tag <= tag + behind);
        must_data_equal(seen >> event.tag & 1, 0);
        seen |= 1ull << event.tag;
        if (event.tag == tag)
            assert_int_equal(event.status, SLUICE_EACCESS);
        else
            assert_true(event.status == SLUICE_EUNKNOWN || event.status == SLUICE_ECLOSED);
    }
    struct side *sides[] = {&m->pair.b, &m->pair.a};
    for (unsigned i = 0; i < 2; i++) {
        event = pair_expect(&m->pair, sides[i], SLUICE_CLOSED);
        assert_int_equal(event.reason, SLUICE_REASON_ACCESS);
        assert_int_equal(event.status, SLUICE_EACCESS);
        assert_int_equal(event.vendor,
                         i == 0 ? (uint32_t)IBV_WC_REM_ACCESS_ERR : IBV_EVENT_QP_ACCESS_ERR);
        sluice_session_info info = pair_info(event.session);
        if (i == 0)
            assert_int_equal(info.wc_status, IBV_WC_REM_ACCESS_ERR);
    }
}

enum how { BY_PUT, BY_LARGE_PUT, BY_GET, BY_NOTIFY, BY_ADD, BY_SWAP, HOWS };

static int try(struct memory *m, enum how how, const sluice_token *token, uint64_t tag) {
    sluice_session s = m->pair.b.session;
    const sluice_send_options *o = SLUICE_SEND(.tag = tag);
    switch (how) {
    case BY_PUT:
        return sluice_put(s, m->here, 0, 8, token, 0, o);
    case BY_LARGE_PUT:
        return sluice_put(s, m->here, 0, 2 << 20, token, 0, o);
    case BY_GET:
        return sluice_get(s, m->here, 0, 8, token, 0, o);
    case BY_NOTIFY:
        return sluice_put_notify(s, m->here, 0, 8, token, 0, 1, o);
    case BY_ADD:
        return sluice_fetch_add(s, token, 0, 1, o);
    case BY_SWAP:
        return sluice_compare_swap(s, token, 0, 0, 1, o);
    case HOWS:
        break;
    }
    return SLUICE_EINVAL;
}

TEST(a_revoked_token_reaches_nothing) {
    for (unsigned how = 0; how < HOWS; how++) {
        struct memory m;
        sluice_error e = {0};
        sluice_token old;
        memory_open(&m, 2 << 20, PAIR_LINK());
        old = m.token;
        memset(memory_here(&m), 1, m.bytes);
        assert_int_equal(try(&m, how, &old, 1), 0);
        memory_done(&m, 1, 0);
        if (how == BY_NOTIFY)
            pair_expect(&m.pair, &m.pair.a, SLUICE_NOTIFIED);
        memset(memory_there(&m), UNTOUCHED, m.bytes);
        assert_int_equal(sluice_region_revoke(m.there, &e), 0);
        assert_int_equal(sluice_region_token(m.there, 0, m.bytes, ALL_RIGHTS, &m.token), 0);
        assert_memory_not_equal(&m.token, &old, sizeof old);
        memset(memory_here(&m), 2, m.bytes);
        assert_int_equal(try(&m, how, &m.token, 2), 0); /* a new one is good */
        memory_done(&m, 2, 0);
        if (how == BY_NOTIFY)
            pair_expect(&m.pair, &m.pair.a, SLUICE_NOTIFIED);
        memset(memory_there(&m), UNTOUCHED, m.bytes);
        memset(memory_here(&m), 3, m.bytes);
        assert_int_equal(try(&m, how, &old, 3), 0);
        assert_int_equal(try(&m, how, &m.token, 4), 0);
        expect_access_end(&m, 3, 1);
        assert_true(memory_untouched(memory_there(&m), m.bytes));
        if (how == BY_GET)
            assert_int_equal(memory_here(&m)[0], 3);
        assert_int_equal(sluice_region_close(m.here), 0);
        assert_int_equal(sluice_region_close(m.there), 0);
        memory_close(&m);
    }
}

TEST(a_closed_region_reaches_nothing) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    assert_int_equal(sluice_region_close(m.there), 0);
    assert_int_equal(try(&m, BY_PUT, &m.token, 1), 0);
    expect_access_end(&m, 1, 0);
    memory_close(&m);
}

/* What is of no region: the memory that messages arrive in, by its true address and key. */
TEST(without_a_region_a_peer_reaches_nothing) {
    for (unsigned how = 0; how < HOWS; how++) {
        struct memory m;
        sluice_msg *msg;
        sluice_token forged;
        memory_open(&m, 2 << 20, PAIR_LINK());
        assert_int_equal(sluice_alloc(m.pair.a.node, 4096, &msg), 0);
        memset(sluice_data(msg), UNTOUCHED, 4096);
        token_put(&forged, &(struct token){ALL_RIGHTS, msg->lkey,
                                           (uint64_t)(uintptr_t)sluice_data(msg), 2 << 20});
        assert_int_equal(try(&m, how, &forged, 1), 0);
        expect_access_end(&m, 1, 0);
        assert_true(memory_untouched(sluice_data(msg), 4096));
        sluice_free(msg);
        memory_close(&m);
    }
}

/* The device keeps what the region as a whole allows, whatever a forged token says. */
TEST(rights_and_range_of_a_region_are_kept_by_the_device) {
    static const struct {
        uint32_t rights;
        enum how how;
        bool beyond;
    } rows[] = {
        {SLUICE_MAY_READ, BY_PUT, false},   {SLUICE_MAY_READ, BY_NOTIFY, false},
        {SLUICE_MAY_READ, BY_ADD, false},   {SLUICE_MAY_WRITE, BY_GET, false},
        {SLUICE_MAY_WRITE, BY_SWAP, false}, {SLUICE_MAY_ATOMIC, BY_PUT, false},
        {SLUICE_MAY_ATOMIC, BY_GET, false}, {ALL_RIGHTS, BY_PUT, true},
        {ALL_RIGHTS, BY_GET, true},         {ALL_RIGHTS, BY_LARGE_PUT, true},
        {ALL_RIGHTS, BY_ADD, true},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct memory m;
        struct token token;
        memset(&m, 0, sizeof m);
        pair_open(&m.pair, PAIR_NODE(.log = log_nothing), PAIR_LINK());
        pair_connect(&m.pair, PAIR_LINK());
        memory_regions(&m, 2 << 20, rows[i].rights);
        assert_true(token_get(&token, &m.token));
        token.rights = ALL_RIGHTS;
        token.addr += rows[i].beyond ? m.bytes : 0;
        token.bytes = UINT64_MAX / 2 - token.addr;
        token_put(&m.token, &token);
        assert_int_equal(try(&m, rows[i].how, &m.token, 1), 0);
        expect_access_end(&m, 1, 0);
        assert_true(memory_untouched(memory_there(&m), m.bytes));
        memory_close(&m);
    }
}

TEST(a_token_of_another_peer_does_not_work_here) {
    struct memory m;
    struct side third;
    sluice_error e = {0};
    sluice_region *other;
    sluice_token token;
    memory_open(&m, 4096, PAIR_LINK());
    pair_open_side(&third, PAIR_NODE());
    /* Not its first: keys of different nodes may be equal by chance, and places in tables are. */
    assert_int_equal(sluice_region_open(third.node, NULL, 4096, ALL_RIGHTS, &other, &e), 0);
    memset(sluice_region_data(other), UNTOUCHED, 4096);
    assert_int_equal(sluice_region_token(other, 0, 4096, ALL_RIGHTS, &token), 0);
    assert_int_equal(sluice_put(m.pair.b.session, m.here, 0, 8, &token, 0, SLUICE_SEND(.tag = 1)),
                     0);
    expect_access_end(&m, 1, 0);
    assert_true(memory_untouched(sluice_region_data(other), 4096));
    sluice_close(third.node, 0);
    memory_close(&m);
}

/* ---- found by the call ------------------------------------------------------------------------- */

TEST(what_can_be_checked_fails_with_the_call) {
    struct memory m;
    sluice_token part, none = {{0}};
    memory_open(&m, 65536, PAIR_LINK());
    sluice_session s = m.pair.b.session;
    assert_int_equal(sluice_region_token(m.there, 1000, 100, SLUICE_MAY_WRITE, &part), 0);
    /* rights of the token */
    assert_int_equal(sluice_get(s, m.here, 0, 8, &part, 0, NULL), SLUICE_EACCESS);
    assert_int_equal(sluice_fetch_add(s, &part, 0, 1, NULL), SLUICE_EACCESS);
    /* its range; sums that wrap */
    const uint64_t wrong[][2] = {{0, 101},        {100, 1},          {1, 100},
                                 {UINT64_MAX, 1}, {UINT64_MAX, 100}, {UINT64_MAX - 7, 8},
                                 {101, 0},        {UINT64_MAX, 0}};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(sluice_put(s, m.here, 0, wrong[i][1], &part, wrong[i][0], NULL),
                         SLUICE_EACCESS);
    assert_int_equal(sluice_fetch_add(s, &m.token, 65529, 1, NULL), SLUICE_EACCESS);
    assert_int_equal(sluice_fetch_add(s, &m.token, UINT64_MAX - 3, 1, NULL), SLUICE_EACCESS);
    /* the local range */
    assert_int_equal(sluice_put(s, m.here, 65536, 1, &m.token, 0, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_put(s, m.here, UINT64_MAX, 2, &m.token, 0, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_get(s, m.here, 1, UINT64_MAX, &m.token, 0, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_put(s, NULL, 0, 1, &m.token, 0, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_put(s, m.there, 0, 8, &m.token, 0, NULL), SLUICE_EINVAL); /* a's */
    /* no token; alignment; options */
    assert_int_equal(sluice_put(s, m.here, 0, 8, NULL, 0, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_put(s, m.here, 0, 8, &none, 0, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_fetch_add(s, &m.token, 4, 1, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_compare_swap(s, &m.token, 1, 1, 1, NULL), SLUICE_EINVAL);
    assert_int_equal(sluice_put(s, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.flags = 64)),
                     SLUICE_EINVAL);
    assert_int_equal(sluice_fence((sluice_session){0}, NULL), SLUICE_ECLOSED);
    /* nothing was taken, nothing is in use, and the session lives */
    pair_expect_nothing(&m.pair, &m.pair.b);
    assert_true(memory_untouched(memory_there(&m), m.bytes));
    assert_int_equal(sluice_put(s, m.here, 0, 100, &part, 0, SLUICE_SEND(.tag = 1)), 0);
    memory_done(&m, 1, 0);
    assert_int_equal(sluice_region_close(m.here), 0);
    memory_close(&m);
}

/* Nobody touches this memory: it costs nothing. */
TEST(no_more_than_a_gigabyte_at_a_time) {
    struct memory m;
    sluice_region *large;
    sluice_error e = {0};
    const size_t bytes = ((size_t)1 << 30) + 4096;
    void *untouched = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(untouched, MAP_FAILED);
    memory_open(&m, 4096, PAIR_LINK());
    assert_int_equal(sluice_region_open(m.pair.b.node, untouched, bytes, 0, &large, &e), 0);
    token_put(&m.token, &(struct token){ALL_RIGHTS, 1, 4096, bytes});
    assert_int_equal(sluice_put(m.pair.b.session, large, 0, (1ull << 30) + 1, &m.token, 0, NULL),
                     SLUICE_EMSGSIZE);
    assert_int_equal(sluice_region_close(large), 0);
    memory_close(&m);
    munmap(untouched, bytes);
}

TEST(a_device_without_atomics_says_so) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    struct connection *c = pair_session(&m.pair.b)->connection;
    c->lacks = FABRIC_LACKS_ATOMICS;
    one_sided_agreed(c);
    assert_int_equal(sluice_fetch_add(m.pair.b.session, &m.token, 0, 1, NULL), SLUICE_EDEVICE);
    assert_int_equal(sluice_compare_swap(m.pair.b.session, &m.token, 0, 1, 1, NULL),
                     SLUICE_EDEVICE);
    c->cm.rep.depth_in = 0;
    one_sided_agreed(c);
    assert_int_equal(sluice_get(m.pair.b.session, m.here, 0, 8, &m.token, 0, NULL), SLUICE_EDEVICE);
    memory_close(&m);
}

/* As when it was accepted while there was another connection. */
TEST(what_was_accepted_and_cannot_be_done_ends) {
    struct memory m;
    memory_open(&m, 4096, PAIR_LINK());
    if (memory_rights(&m) & SLUICE_MAY_ATOMIC) {
        pair_session(&m.pair.b)->connection->lacks = FABRIC_LACKS_ATOMICS;
        assert_int_equal(sluice_fetch_add(m.pair.b.session, &m.token, 0, 1, SLUICE_SEND(.tag = 1)),
                         0);
        memory_done(&m, 1, SLUICE_EDEVICE);
    }
    pair_session(&m.pair.b)->connection->cm.rep.depth_in = 0;
    assert_int_equal(sluice_get(m.pair.b.session, m.here, 0, 8, &m.token, 0, SLUICE_SEND(.tag = 2)),
                     0);
    memory_done(&m, 2, SLUICE_EDEVICE);
    memory_close(&m);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

TEST(a_token_is_32_bytes_in_network_order) {
    static const uint8_t front[24] = {'S',  'T',  1,    5,    0x12, 0x34, 0x56, 0x78,
                                      0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
                                      0,    0,    0,    0,    0,    1,    0,    2};
    struct token token = {5, 0x12345678, 0x0102030405060708, 65538}, got;
    sluice_token out;
    token_put(&out, &token);
    assert_memory_equal(out.bytes, front, sizeof front);
    assert_true(token_get(&got, &out));
    assert_memory_equal(&got, &token, sizeof got);
}

/* Every single bit counts, and so do values that no token has, well checked or not. */
TEST(what_is_no_token_is_seen) {
    struct token token = {7, 1, 4096, 100}, got;
    sluice_token out;
    token_put(&out, &token);
    for (unsigned bit = 0; bit < 256; bit++) {
        out.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(token_get(&got, &out));
        out.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_true(token_get(&got, &out));
    const struct token wrong[] = {
        {0, 1, 4096, 100}, {8, 1, 4096, 100}, {7, 1, 4096, 0}, {7, 1, UINT64_MAX, 2}};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        token_put(&out, &wrong[i]);
        assert_false(token_get(&got, &out));
    }
}
