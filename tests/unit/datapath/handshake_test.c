/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake_test.c - between the connection and the session: private data reaches the application before
 * it decides, both sides prove that they have the key, and before that nothing is at stake.
 */
#include "support/pair.h"

#include "core/auth/auth.h"
#include "core/auth/keyring.h"
#include "datapath/tx/post.h"

#define SECOND 1000000000ull

static const char good[] = "0123456789abcdef0123456789abcdef",
                  bad[] = "0123456789abcdef0123456789abcdeF";
#define KEY(number, text)                                                                          \
    .key_count = 1, .keys = &(sluice_key) {                                                        \
        .id = number, .bytes = 32, .secret = text                                                  \
    }
#define WITH_KEY KEY(7, good)

static void cross(struct pair *p) {
    for (unsigned i = 0; i < 100; i++) { /* more than any credits */
        assert_int_equal(pair_send(&p->a, 50, i, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->b, SLUICE_MESSAGE).msg, 50, i));
        assert_int_equal(pair_send(&p->b, 40000, i, NULL), 0);
        assert_true(pair_check(pair_expect(p, &p->a, SLUICE_MESSAGE).msg, 40000, i));
    }
}

/* Until nothing is left of the last session on either side. */
static void settle(struct pair *p) {
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (session_table_used_count(p->a.node->index) + session_table_used_count(p->b.node->index) >
           0) {
        pair_turn(p);
        assert_true(env_now(&env_default) < limit);
    }
}

/* ---- private data and decisions -------------------------------------------------------------- */

TEST(private_data_comes_before_the_decision) {
    struct pair p;
    int mine;
    char data[SLUICE_PRIVATE_MAX];
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 3);
    pair_open(&p, PAIR_NODE(.eager_bytes = 512), PAIR_LINK(.flags = SLUICE_ASK));
    const uint32_t sizes[] = {1, 5, SLUICE_PRIVATE_MAX};
    for (unsigned i = 0; i < 3; i++) {
        pair_dial(&p, PAIR_LINK(.private_data = data, .private_bytes = sizes[i]));
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
        assert_int_equal(event.peer->private_bytes, sizes[i]);
        assert_memory_equal(event.peer->private_data, data, sizes[i]);
        assert_int_equal(event.peer->key_id, 0);
        pair_expect_nothing(&p, &p.b); /* not up before the decision */
        pair_expect_nothing(&p, &p.a);
        assert_int_equal(pair_send(&p.b, 1, 1, NULL), SLUICE_ECLOSED);
        assert_int_equal(sluice_accept(event.session, &mine), 0);
        assert_ptr_equal(pair_expect(&p, &p.a, SLUICE_UP).arg, &mine);
        pair_expect(&p, &p.b, SLUICE_UP);
        cross(&p);
        sluice_hangup(p.b.session, SECOND);
        pair_expect(&p, &p.a, SLUICE_CLOSED);
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        settle(&p);
    }
    pair_close(&p);
}

PAIR_WITH(pair_opened, without_a_question_private_data_is_no_obstacle) {
    struct pair *p = *state;
    pair_connect(p, PAIR_LINK(.private_data = "x", .private_bytes = 1));
    cross(p);
}

enum { HOARD = 4096 };

/* All that can be allocated for sending, on both sides; the number of it. */
static unsigned hoard_all(struct pair *p, sluice_msg **hoard) {
    unsigned count = 0;
    for (struct side *side = &p->a; side; side = side == &p->a ? &p->b : NULL)
        for (size_t bytes = 1 << 20; bytes >= 64; bytes /= 2)
            while (count < HOARD && sluice_alloc(side->node, bytes, &hoard[count]) == 0)
                count++;
    assert_uint_in_range(count, 1, HOARD - 1);
    return count;
}

/* HELLO and REFUSE have memory of the reserve, as what answers a transfer has. */
TEST(sessions_open_and_are_refused_with_nothing_left_to_send_with) {
    static sluice_msg *hoard[HOARD];
    struct pair p;
    pair_open(&p, PAIR_NODE(.memory_bytes_max = 8 << 20, .message_bytes_max = 1 << 20),
              PAIR_LINK(.flags = SLUICE_ASK));
    unsigned count = hoard_all(&p, hoard);
    for (unsigned round = 0; round < 6; round++) {
        pair_dial(&p, PAIR_LINK(.private_data = "words", .private_bytes = 5));
        sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
        assert_int_equal(event.peer->private_bytes, 5);
        if (round & 1) {
            assert_int_equal(sluice_refuse(event.session, 7, "full"), 0);
            event = pair_expect(&p, &p.b, SLUICE_CLOSED);
            assert_int_equal(event.reason, SLUICE_REASON_REFUSED);
            assert_int_equal(event.vendor, 7);
            assert_string_equal(pair_info(event.session).close_text, "full");
            pair_expect(&p, &p.a, SLUICE_CLOSED);
        } else {
            assert_int_equal(sluice_accept(event.session, NULL), 0);
            pair_expect(&p, &p.a, SLUICE_UP);
            pair_expect(&p, &p.b, SLUICE_UP);
            sluice_hangup(p.b.session, SECOND);
            pair_expect(&p, &p.b, SLUICE_CLOSED);
            pair_expect(&p, &p.a, SLUICE_CLOSED);
        }
        settle(&p);
    }
    while (count > 0)
        sluice_free(hoard[--count]);
    pair_close(&p);
}

TEST(a_refusal_after_hello_carries_code_and_text) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK(.private_data = "x", .private_bytes = 1));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(sluice_refuse(event.session, 4711, "not on Sunday"), 0);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.status, SLUICE_EREJECTED);
    assert_int_equal(event.reason, SLUICE_REASON_REFUSED);
    assert_int_equal(event.vendor, 4711);
    sluice_session_info info = pair_info(event.session);
    assert_int_equal(info.close_code, 4711);
    assert_string_equal(info.close_text, "not on Sunday");
    event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_LOCAL_CLOSE);
    settle(&p);
    pair_close(&p);
}

TEST(a_decision_may_take_its_time_within_the_limit) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK, .timeout_ns = 10 * SECOND));
    pair_dial(&p, PAIR_LINK(.private_data = "x", .private_bytes = 1, .timeout_ns = 100 * SECOND));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    pair_clock += 9 * SECOND;
    pair_expect_nothing(&p, &p.a);
    assert_int_equal(sluice_accept(event.session, NULL), 0);
    pair_expect(&p, &p.a, SLUICE_UP);
    pair_expect(&p, &p.b, SLUICE_UP);
    pair_clock += 9 * SECOND; /* the limit was that of establishing */
    cross(&p);
    sluice_hangup(p.b.session, SECOND);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_expect(&p, &p.b, SLUICE_CLOSED);

    pair_dial(&p, PAIR_LINK(.private_data = "x", .private_bytes = 1, .timeout_ns = 100 * SECOND));
    event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    sluice_session asked = event.session;
    pair_clock += 11 * SECOND;
    event = pair_expect(&p, &p.a, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_TIMEOUT);
    event = pair_expect(&p, &p.b, SLUICE_CLOSED);
    assert_int_equal(event.reason, SLUICE_REASON_TIMEOUT);
    assert_int_equal(sluice_accept(asked, NULL), SLUICE_ECLOSED);
    settle(&p);
    pair_close(&p);
}

TEST(unlisten_refuses_the_undecided) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK));
    pair_dial(&p, PAIR_LINK(.private_data = "x", .private_bytes = 1));
    pair_expect(&p, &p.a, SLUICE_CONNECT);
    sluice_unlisten(p.listener);
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_NO_LISTENER);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    settle(&p);
    pair_close(&p);
}

/* Hung up by either side at any turn of the way: each side that knows it gets one CLOSED. */
TEST(hanging_up_while_greeting_ends_both_sides) {
    for (unsigned turns = 0; turns < 24; turns++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
        pair_dial(&p, PAIR_LINK(WITH_KEY, .private_data = "x", .private_bytes = 1));
        pair_turns(&p, turns);
        sluice_hangup(p.b.session, 0);
        sluice_event event;
        uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
        while (p.b.closed == 0)
            assert_true(pair_next(&p, &p.b, &event));
        while (session_table_used_count(p.a.node->index) > 0) {
            pair_turn(&p);
            sluice_poll(p.a.loop, &event, 1, 0);
            assert_true(env_now(&env_default) < limit);
        }
        pair_close(&p);
    }
}

/* ---- authentication -------------------------------------------------------------------------- */

TEST(both_sides_with_the_key_come_up) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.flags = SLUICE_ASK, WITH_KEY));
    pair_dial(&p, PAIR_LINK(WITH_KEY, .private_data = "me", .private_bytes = 2));
    sluice_event event = pair_expect(&p, &p.a, SLUICE_CONNECT);
    assert_int_equal(event.peer->key_id, 7);
    assert_memory_equal(event.peer->private_data, "me", 2);
    assert_int_equal(sluice_accept(event.session, NULL), 0);
    pair_expect(&p, &p.a, SLUICE_UP);
    pair_expect(&p, &p.b, SLUICE_UP);
    assert_int_equal(pair_info(p.a.session).key_id, 7);
    assert_int_equal(pair_info(p.b.session).key_id, 7);
    cross(&p);
    pair_close(&p);
}

/* Who says no: the listener, in a reject or in a frame behind HELLO; or the dialer itself. */
enum refuser { BY_REJECT, BY_FRAME, BY_DIALER };

/* The dialer's end, whole; the listener's application never hears of it. */
static void expect_refused(struct pair *p, sluice_reason reason, enum refuser refuser) {
    sluice_event event = pair_expect(p, &p->b, SLUICE_CLOSED);
    if (event.reason != reason)
        fail_msg("%s, expected %s", sluice_reason_text(event.reason), sluice_reason_text(reason));
    sluice_session_info info = pair_info(event.session);
    assert_int_equal(event.status, SLUICE_EREJECTED);
    assert_int_equal(event.vendor, refuser == BY_REJECT ? 28 : 0);
    char text[sizeof info.close_text];
    snprintf(text, sizeof text, "%s: %s",
             refuser == BY_DIALER ? "the listener's answer" : "told by the listener",
             sluice_reason_text((int)reason));
    assert_string_equal(info.close_text, text);
    assert_int_equal(info.close_code, 0);
    assert_int_equal(info.key_id, 0); /* nobody has proven anything */
    if (refuser == BY_REJECT) {
        assert_int_equal(info.cm_event, RDMA_CM_EVENT_REJECTED);
        assert_int_equal(info.cm_status, 28);
    } else if (refuser == BY_DIALER || info.cm_event != RDMA_CM_EVENT_DISCONNECTED) {
        assert_int_equal(info.cm_event, -1);
    }
    assert_int_equal(info.wc_status, -1);
    pair_expect_nothing(p, &p->a);
    settle(p);
}

TEST(a_wrong_key_is_refused) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    pair_dial(&p, PAIR_LINK(KEY(7, bad)));
    expect_refused(&p, SLUICE_REASON_AUTH_FAILED, BY_DIALER);
    pair_dial(&p, PAIR_LINK(KEY(8, good)));
    expect_refused(&p, SLUICE_REASON_AUTH_KEY, BY_REJECT);
    pair_dial(&p, PAIR_LINK());
    expect_refused(&p, SLUICE_REASON_AUTH_REQUIRED, BY_REJECT);
    pair_dial(&p, PAIR_LINK(.private_data = "x", .private_bytes = 1));
    expect_refused(&p, SLUICE_REASON_AUTH_REQUIRED, BY_REJECT);
    pair_connect(&p, PAIR_LINK(WITH_KEY));
    pair_close(&p);
    pair_open(&p, PAIR_NODE(), PAIR_LINK());
    pair_dial(&p, PAIR_LINK(WITH_KEY));
    expect_refused(&p, SLUICE_REASON_AUTH_KEY, BY_REJECT);
    pair_close(&p);
}

/* Turns until the dialer's QP is ready and HELLO not sent; what it is then made to say is the test's. */
static struct session *stop_before_hello(struct pair *p) {
    struct session *s = pair_session(&p->b);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    while (s->connection->handshake != HANDSHAKE_HELLO) {
        cm_progress(p->a.node->cm, 0);
        assert_true(sluice_poll(p->a.loop, NULL, 0, 0) >= 0);
        cm_progress(p->b.node->cm, 0);
        assert_true(sluice_poll(p->b.loop, NULL, 0, 0) >= 0);
        assert_true(env_now(&env_default) < limit);
    }
    return s;
}

/* In place of its own HELLO. */
static void say_instead(struct pair *p, struct session *s, const void *payload, uint32_t bytes) {
    assert_true(send_control_with(p->b.loop, s, FRAME_HELLO, payload, bytes));
    s->connection->handshake = HANDSHAKE_ANSWER;
    s->connection->cm.passive = true; /* says nothing when the connection is announced */
    while (!s->adopted)
        pair_turn(p);
    s->connection->cm.passive = false;
}

/* Does not care about the listener's proof, and has no key itself. */
TEST(a_dialer_that_only_claims_the_key_is_refused) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    pair_dial(&p, PAIR_LINK(WITH_KEY));
    struct session *s = stop_before_hello(&p);
    sluice_link_options other = {KEY(7, bad)};
    struct keyring *mine = s->link_config.keys;
    assert_int_equal(keyring_make(&s->link_config.keys, &other, true, NULL), 0);
    expect_refused(&p, SLUICE_REASON_AUTH_FAILED, BY_FRAME);
    keyring_drop(mine);
    pair_close(&p);
}

TEST(a_replayed_request_is_refused) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    uint32_t again = pair_random_next;
    pair_connect(&p, PAIR_LINK(WITH_KEY));
    sluice_hangup(p.b.session, SECOND);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    settle(&p);
    pair_random_next = again; /* the same session id and nonce: byte for byte the same REQ */
    pair_dial(&p, PAIR_LINK(WITH_KEY));
    expect_refused(&p, SLUICE_REASON_AUTH_REPLAY, BY_REJECT);
    pair_close(&p);
}

TEST(a_replayed_proof_is_refused) {
    struct pair p;
    uint8_t req[PRIVATE_DATA_REQ_BYTES], rep[PRIVATE_DATA_REP_BYTES], recorded[HELLO_BYTES_MAX];
    struct auth_hello hello = {0};
    const struct auth_secret secret = {(const uint8_t *)good, 32};
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
    pair_connect(&p, PAIR_LINK(WITH_KEY));
    struct session *s = pair_session(&p.b);
    private_data_req_encode(&s->connection->cm.req, req);
    private_data_rep_encode(&s->connection->cm.rep, rep);
    auth_prove_dialer(&hello.proof, &secret, req, rep, NULL, 0); /* as it was overheard */
    uint32_t bytes = (uint32_t)auth_hello_encode(&hello, recorded);
    sluice_hangup(p.b.session, SECOND);
    pair_expect(&p, &p.a, SLUICE_CLOSED);
    pair_expect(&p, &p.b, SLUICE_CLOSED);
    settle(&p);
    pair_dial(&p, PAIR_LINK(WITH_KEY));
    s = stop_before_hello(&p);
    say_instead(&p, s, recorded, bytes);
    expect_refused(&p, SLUICE_REASON_AUTH_REPLAY, BY_FRAME);
    pair_close(&p);
}

/* ---- what is changed on the way -------------------------------------------------------------- */

static struct fabric_ops changing;
static const struct fabric_ops *unchanged;
static unsigned change_at;
static uint8_t change_with;

static int changed_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    uint8_t data[PRIVATE_DATA_REQ_BYTES];
    memcpy(data, param->private_data, sizeof data);
    data[change_at] ^= change_with;
    param->private_data = data;
    return unchanged->connect(id, param);
}

static int changed_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    uint8_t data[PRIVATE_DATA_REP_BYTES];
    memcpy(data, param->private_data, sizeof data);
    data[change_at] ^= change_with;
    param->private_data = data;
    return unchanged->accept(id, param);
}

TEST(what_is_changed_on_the_way_is_refused) {
    static const struct {
        bool reply;
        uint8_t at, with;
        sluice_reason reason;
    } rows[] = {
        {false, 8, 4, SLUICE_REASON_AUTH_ALTERED},  /* smaller frames */
        {false, 12, 4, SLUICE_REASON_AUTH_ALTERED}, /* other credits */
        {false, 14, 1, SLUICE_REASON_AUTH_ALTERED}, /* another keepalive */
        {false, 40, 1, SLUICE_REASON_AUTH_FAILED},  /* another nonce: like another key */
        {true, 8, 4, SLUICE_REASON_AUTH_ALTERED},   {true, 12, 4, SLUICE_REASON_AUTH_ALTERED},
        {true, 6, 2, SLUICE_REASON_AUTH_ALTERED},  /* the authentication left out */
        {true, 52, 1, SLUICE_REASON_AUTH_ALTERED}, /* the MAC */
        {true, 84, 1, SLUICE_REASON_AUTH_FAILED},  /* the check */
        {true, 36, 1, SLUICE_REASON_AUTH_FAILED},  /* the listener's nonce */
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
        unchanged = p.a.node->fabric;
        changing = *unchanged;
        change_at = rows[i].at;
        change_with = rows[i].with;
        if (rows[i].reply)
            changing.accept = changed_accept;
        else
            changing.connect = changed_connect;
        (rows[i].reply ? p.a.node : p.b.node)->fabric = &changing;
        pair_dial(&p, PAIR_LINK(WITH_KEY));
        sluice_event event = pair_expect(&p, &p.b, SLUICE_CLOSED);
        if (event.reason != rows[i].reason)
            fail_msg("row %u: %s", i, sluice_reason_text(event.reason));
        /* The dialer finds it itself: the listener's proof covers both records. An answer that cannot
         * follow from the proposal is found before any proof is looked at. */
        sluice_session_info info = pair_info(event.session);
        bool answer = rows[i].reply && rows[i].at == 6;
        assert_int_equal(event.status, SLUICE_EREJECTED);
        assert_int_equal(event.vendor, 0);
        assert_int_equal(info.cm_event, answer ? RDMA_CM_EVENT_CONNECT_RESPONSE : -1);
        if (!strstr(info.close_text, sluice_reason_text((int)rows[i].reason)))
            fail_msg("row %u: \"%s\"", i, info.close_text);
        pair_expect_nothing(&p, &p.a);
        settle(&p);
        pair_close(&p);
    }
}

/* ---- before the proof ------------------------------------------------------------------------ */

TEST(before_the_proof_a_few_receives_are_at_stake) {
    struct pair p;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY, .credits = 64, .timeout_ns = 5 * SECOND));
    pair_dial(&p, PAIR_LINK(WITH_KEY, .timeout_ns = 100 * SECOND));
    stop_before_hello(&p);
    struct session *theirs = p.a.loop->sessions;
    assert_non_null(theirs);
    assert_int_equal(theirs->connection->recv.own.posted, CREDITS_INITIAL);
    uint64_t limit = env_now(&env_default) + PAIR_LIMIT_NS;
    for (int quiet = 0; quiet < 100; quiet += theirs->adopted) { /* the dialer is silent */
        assert_true(env_now(&env_default) < limit);
        cm_progress(p.b.node->cm, 0);
        cm_progress(p.a.node->cm, 0);
        assert_int_equal(sluice_poll(p.a.loop, NULL, 0, 0), 0);
    }
    assert_int_equal(theirs->state, SESSION_OPENING);
    assert_int_equal(theirs->connection->recv.own.posted, CREDITS_INITIAL);
    pair_clock += 6 * SECOND;
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_TIMEOUT);
    pair_expect_nothing(&p, &p.a);
    settle(&p);
    pair_close(&p);
}

/* Whatever else comes first ends the session, and nobody hears of it. */
TEST(any_other_frame_before_hello_ends_the_session) {
    static const enum frame_type types[] = {FRAME_DATA,   FRAME_FRAG,    FRAME_CREDIT, FRAME_BYE,
                                            FRAME_REFUSE, FRAME_WELCOME, FRAME_ALIVE};
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK(WITH_KEY));
        pair_dial(&p, PAIR_LINK(WITH_KEY));
        struct session *s = stop_before_hello(&p);
        if (types[i] == FRAME_DATA || types[i] == FRAME_FRAG)
            s->connection->tx.sequence++;
        assert_true(send_control_with(p.b.loop, s, types[i], "x", types[i] == FRAME_DATA));
        pair_expect(&p, &p.b, SLUICE_CLOSED);
        pair_expect_nothing(&p, &p.a);
        settle(&p);
        pair_close(&p);
    }
}

/* Every length and every kind of nonsense, where HELLO is awaited. */
PAIR_WITH(pair_opened, a_malformed_hello_is_refused) {
    struct pair *p = *state;
    static const uint8_t noise[HELLO_BYTES_MAX + 60] = {[48] = 200, [49] = 7, [50] = 1};
    static const uint32_t sizes[] = {
        0, 1, 49, 50, 51, 250, HELLO_BYTES_MAX, HELLO_BYTES_MAX + 1, HELLO_BYTES_MAX + 60};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pair_dial(p, PAIR_LINK(.private_data = "x", .private_bytes = 1));
        struct session *s = stop_before_hello(p);
        say_instead(p, s, noise, sizes[i]);
        sluice_reason reason = pair_expect(p, &p->b, SLUICE_CLOSED).reason;
        if (reason != SLUICE_REASON_MALFORMED && reason != SLUICE_REASON_VALUE &&
            reason != SLUICE_REASON_PEER_LOST) /* PROTOCOL at the listener: no word, disconnected */
            fail_msg("%u bytes: %s", sizes[i], sluice_reason_text((int)reason));
        pair_expect_nothing(p, &p->a);
        settle(p);
    }
}

TEST(a_greeting_out_of_place_ends_the_session) {
    static const enum frame_type types[] = {FRAME_HELLO, FRAME_WELCOME, FRAME_REFUSE};
    for (unsigned i = 0; i < 6; i++) {
        struct pair p;
        pair_open(&p, PAIR_NODE(), PAIR_LINK());
        pair_connect(&p, PAIR_LINK(.private_data = "x", .private_bytes = 1));
        struct side *from = i & 1 ? &p.a : &p.b, *to = i & 1 ? &p.b : &p.a;
        assert_true(send_control(from->loop, pair_session(from), types[i / 2]));
        assert_int_equal(pair_expect(&p, to, SLUICE_CLOSED).reason, SLUICE_REASON_PROTOCOL);
        pair_expect(&p, from, SLUICE_CLOSED);
        pair_close(&p);
    }
}

/* ---- the hook -------------------------------------------------------------------------------- */

static unsigned asked;

static uint32_t look_up(uint32_t id, void *secret, void *arg) {
    asked++;
    assert_ptr_equal(arg, &asked);
    if (id != 9)
        return 0;
    memcpy(secret, good, 32);
    return 32;
}

TEST(the_hook_finds_keys) {
    struct pair p;
    asked = 0;
    pair_open(&p, PAIR_NODE(), PAIR_LINK(.key_lookup = look_up, .key_lookup_arg = &asked));
    pair_connect(&p, PAIR_LINK(KEY(9, good)));
    assert_int_equal(pair_info(p.a.session).key_id, 9);
    assert_true(asked > 0);
    cross(&p);
    pair_dial(&p, PAIR_LINK(KEY(10, good)));
    assert_int_equal(pair_expect(&p, &p.b, SLUICE_CLOSED).reason, SLUICE_REASON_AUTH_KEY);
    pair_close(&p);
}
