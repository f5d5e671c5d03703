/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * told_options_test.c - an option that cannot be is refused, on the side where it cannot, in words that name it
 * and what would be right; nothing that is asked for is left undone without a word.
 */
#include "support/pair.h"

enum { LISTEN = 1, DIAL = 2, BOTH = 3 };

static struct side side;
static sluice_loop *elsewhere[1];

static void handler(const sluice_event *event, void *arg) {
    (void)event, (void)arg;
}

static void expect_refused(const char *what, int status, const sluice_error *e, const char *text) {
    if (status != SLUICE_EINVAL || e->status != SLUICE_EINVAL || e->reason != SLUICE_REASON_NONE ||
        e->os_errno != 0 || strcmp(e->text, text) != 0)
        fail_msg("%s: status %d, reason %d, errno %d: %s\nexpected: %s", what, status, e->reason,
                 e->os_errno, e->text, text);
}

/* ---- links ----------------------------------------------------------------------------------------- */

static const uint8_t secret[SLUICE_SECRET_MAX + 1];
static const sluice_key good = {1, 16, secret}, nameless = {0, 16, secret}, empty = {1, 16, NULL},
                        weak = {1, 15, secret}, twins[] = {{1, 16, secret}, {1, 16, secret}};

static uint32_t find(uint32_t id, void *out, void *arg) {
    (void)id, (void)out, (void)arg;
    return 0;
}

#define OPTIONS(...)                                                                               \
    { .size = sizeof(sluice_link_options), __VA_ARGS__ }
#define HERE .handler = handler

/* The loop of `side` unless a row says where. */
static const struct {
    int sides;
    sluice_link_options options;
    bool placed; /* it says itself where events go */
    const char *text;
} links[] = {
    {DIAL, OPTIONS(.flags = SLUICE_ASK), false,
     "SLUICE_ASK is for listening: a dial asks, and is not asked"},
    {DIAL, OPTIONS(.flags = SLUICE_REUSE), false,
     "SLUICE_REUSE is for listening: a dial takes no address"},
    {LISTEN, OPTIONS(.flags = SLUICE_ONCE), false,
     "SLUICE_ONCE is for dialing: a listener tries nothing"},
    {LISTEN, OPTIONS(.flags = SLUICE_WAIT), false,
     "SLUICE_WAIT is for dialing: a listener waits in any case"},
    {DIAL, OPTIONS(.flags = SLUICE_WAIT | SLUICE_ONCE), false,
     "SLUICE_WAIT tries again, and SLUICE_ONCE does not"},
    {LISTEN, OPTIONS(.private_data = secret, .private_bytes = 1), false,
     "private data is for dialing: a listener is shown it"},
    {DIAL, OPTIONS(.private_data = secret, .private_bytes = 257), false,
     "private data of 257 bytes: more than 256, or missing"},
    {DIAL, OPTIONS(.private_bytes = 1), false,
     "private data of 1 bytes: more than 256, or missing"},
    {BOTH, OPTIONS(.flags = 1u << 31), false, "unknown link flags 0x80000000"},
    {BOTH,
     {.size = 0},
     true,
     "link options: size is not set, or a field this library does not know is"},
    {BOTH, OPTIONS(.handler = NULL), true, "a link needs a handler, or a loop to poll"},
    {BOTH, OPTIONS(HERE), true, "the node has no workers: the link needs a loop"},
    {BOTH, OPTIONS(.loops = elsewhere, .loop_count = 1), false,
     "a link has either a loop or several, not both"},
    {BOTH, OPTIONS(.loops = elsewhere, .loop_count = 1), true,
     "loop 0 is missing or belongs to another node"},
    {BOTH, OPTIONS(.loops = elsewhere, .loop_count = 65), true, "loops: 65 of them, or no array"},
    {BOTH, OPTIONS(.keepalive_ns = 1), false, "keepalive_ns 1 is not between 10 ms and 655 s"},
    {BOTH, OPTIONS(.tos = 256), false, "tos 256 is above 255"},
    {BOTH, OPTIONS(.ack_timeout = 32), false, "ack_timeout 32 is above 31"},
    {BOTH, OPTIONS(.requests = 257), false, "requests 257 is above 256"},
    {BOTH, OPTIONS(.credits = 3), false, "credits 3 is not between 4 and 1024"},
    {BOTH, OPTIONS(.credits = 1025), false, "credits 1025 is not between 4 and 1024"},
    {BOTH, OPTIONS(.window_messages = 65537), false, "window_messages 65537 is above 65536"},
    {BOTH, OPTIONS(.key_count = 1), false, "key_count is 1, but there are no keys"},
    {BOTH, OPTIONS(.keys = &good), false, "there are keys, but key_count is 0"},
    {BOTH, OPTIONS(.keys = &nameless, .key_count = 1), false, "key 0 of the array: the id is 0"},
    {BOTH, OPTIONS(.keys = &empty, .key_count = 1), false,
     "key 0 of the array, id 1: there is no secret"},
    {BOTH, OPTIONS(.keys = &weak, .key_count = 1), false,
     "key 0 of the array, id 1: 15 bytes are not between 16 and 64"},
    {LISTEN, OPTIONS(.keys = twins, .key_count = 2), false,
     "key 1 of the array: there are two keys with the id 1"},
    {DIAL, OPTIONS(.keys = twins, .key_count = 2), false, "dialing takes one key, not 2"},
    {DIAL, OPTIONS(.key_lookup = find), false, "dialing takes a key, not a key_lookup"},
};

TEST(a_link_option_that_cannot_be_is_named) {
    struct side other;
    sluice_listener listener;
    sluice_session session;
    pair_open_side(&side, PAIR_NODE());
    pair_open_side(&other, PAIR_NODE());
    elsewhere[0] = other.loop;
    for (unsigned i = 0; i < sizeof links / sizeof *links; i++) {
        sluice_link_options o = links[i].options;
        sluice_error e = {0};
        char what[32];
        if (!links[i].placed)
            o.loop = side.loop;
        snprintf(what, sizeof what, "row %u, listening", i);
        if (links[i].sides & LISTEN)
            expect_refused(what, sluice_listen(side.node, "127.0.0.1:0", &o, &listener, &e), &e,
                           links[i].text);
        snprintf(what, sizeof what, "row %u, dialing", i);
        if (links[i].sides & DIAL)
            expect_refused(what, sluice_dial(side.node, "127.0.0.1:1", &o, &session, &e), &e,
                           links[i].text);
    }
    sluice_close(other.node, 0);
    sluice_close(side.node, 0);
}

/* ---- nodes ----------------------------------------------------------------------------------------- */

#define NODE(...)                                                                                  \
    { .size = sizeof(sluice_node_options), __VA_ARGS__ }

static const struct {
    sluice_node_options options;
    const char *text;
} nodes[] = {
    {{.size = 0}, "node options: size is not set, or a field this library does not know is"},
    {NODE(.eager_bytes = 511), "eager_bytes 511 is not between 512 and 65536"},
    {NODE(.eager_bytes = 65537), "eager_bytes 65537 is not between 512 and 65536"},
    {NODE(.message_bytes_max = (1ull << 40) + 1),
     "message_bytes_max 1099511627777 is above 1099511627776"},
    {NODE(.workers = 65), "workers 65 is above 64"},
    {NODE(.idle = 4), "idle 4 is not one of sluice_idle"},
    {NODE(.memory_bytes_max = 1000), "memory_bytes_max 1000 is below 1 MiB"},
    {NODE(.receive_bytes_max = 1000),
     "receive_bytes_max 1000 is not between 256 KiB and memory_bytes_max less 256 KiB"},
    {NODE(.rendezvous = 3), "rendezvous 3 is not one of sluice_rendezvous"},
    {NODE(.registrations = 3), "registrations 3 is not one of sluice_registrations"},
    {NODE(.soft_net = 4), "soft_net 4 is not one of sluice_soft_net"},
    {NODE(.reserved = 1),
     "node options: size is not set, or a field this library does not know is"},
};

TEST(a_node_option_that_cannot_be_is_named) {
    for (unsigned i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        sluice_node_options o = nodes[i].options;
        sluice_node *node = NULL;
        sluice_error e = {0};
        char what[32];
        o.device = "soft";
        snprintf(what, sizeof what, "row %u", i);
        expect_refused(what, sluice_open(&node, &o, &e), &e, nodes[i].text);
        assert_null(node);
    }
}

/* SLUICE_WITHOUT of the environment: a word that is none is an error, and an empty list is none at all. */
TEST(a_technique_that_does_not_exist_is_named) {
    static const struct {
        const char *list, *text;
    } rows[] = {
        {"luck", "SLUICE_WITHOUT: 'luck' is none of inline wr-batch signalling wc-batch srq "
                 "coalesce rendezvous extended"},
        {"inline,srqs", "SLUICE_WITHOUT: 'srqs' is none of inline wr-batch signalling wc-batch "
                        "srq coalesce rendezvous extended"},
        {",inline", "SLUICE_WITHOUT: '' is none of inline wr-batch signalling wc-batch srq "
                    "coalesce rendezvous extended"},
        {"inline,wr-batch,signalling,wc-batch,srq,coalesce,rendezvous", NULL},
        {"", NULL},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        sluice_node_options o = NODE(.device = "soft");
        sluice_node *node = NULL;
        sluice_error e = {0};
        setenv("SLUICE_WITHOUT", rows[i].list, 1);
        int status = sluice_open(&node, &o, &e);
        unsetenv("SLUICE_WITHOUT");
        if (rows[i].text) {
            expect_refused(rows[i].list, status, &e, rows[i].text);
        } else {
            assert_int_equal(status, 0);
            sluice_close(node, 0);
        }
    }
}
