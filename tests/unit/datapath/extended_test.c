/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * extended_test.c - small frames by extended verbs, on a device that has them: which go that way, and what happens when
 * the device does not take one. The software device has a shorter way unless it is like another one (SLUICE_SOFT_PROFILE).
 */
#include "support/pair.h"

#include <errno.h>

#include "core/wire/frame.h"
#include "datapath/tx/framed.h"
#include "fabric/fast.h"

static struct {
    int (*complete)(struct ibv_qp_ex *qp);
    void (*abort)(struct ibv_qp_ex *qp);
    unsigned posted;
    bool refuses;
} device;

static int counting_complete(struct ibv_qp_ex *qp) {
    if (device.refuses) {
        device.abort(qp);
        return ENOMEM;
    }
    device.posted++;
    return device.complete(qp);
}

/* What the device at hand is known for; another device's driver may have them or not. */
static bool must_have_them(void) {
    const char *like = getenv("SLUICE_SOFT_PROFILE");
    return like && (strcmp(like, "nic") == 0 || strncmp(like, "rxe", 3) == 0);
}

/* Counts its posts from now on. False: it has none of these verbs. */
static bool count_posts(struct side *side) {
    const struct session *s = pair_session(side);
    struct ibv_qp_ex *ex = (struct ibv_qp_ex *)(void *)s->connection->qp;
    bool shorter = fabric_is_software(side->node->fabric) && !fabric_profile(side->node->fabric);
    if (s->framed_end == 0 || shorter) {
        assert_false(must_have_them());
        return false;
    }
    memset(&device, 0, sizeof device);
    device.complete = ex->wr_complete;
    device.abort = ex->wr_abort;
    ex->wr_complete = counting_complete;
    return true;
}

static void open_connected(struct pair *p) {
    pair_open(p, PAIR_NODE(), PAIR_LINK());
    pair_connect(p, PAIR_LINK());
}

/* Each message that is inline with its header, and none else; in either case it is the one that was sent. */
TEST(what_goes_inline_goes_by_extended_verbs) {
    struct pair p;
    open_connected(&p);
    if (count_posts(&p.b)) {
        uint32_t end = pair_session(&p.b)->framed_end;
        assert_in_range(end - 1, 1, pair_session(&p.b)->connection->sq.inline_max - FRAME_BYTES);
        for (unsigned size = 0; size < end + 30; size++) {
            unsigned before = device.posted;
            bool tokens = framed_has_tokens(pair_session(&p.b));
            assert_int_equal(pair_send(&p.b, size, size, NULL), 0);
            assert_int_equal(device.posted - before, size < end && tokens);
            sluice_msg *msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
            assert_true(pair_check(msg, size, size));
            sluice_free(msg);
            pair_turns(&p, 2);
        }
    }
    pair_close(&p);
}

/* Then by a work request, in its turn. */
TEST(what_the_device_does_not_take_so_goes_by_a_work_request) {
    struct pair p;
    open_connected(&p);
    if (count_posts(&p.b)) {
        unsigned taken = 0;
        for (unsigned i = 0; i < 200; i++) {
            device.refuses = i / 3 % 2;
            /* Without a token, as when credits are on their way, it goes by a work request. */
            taken += !device.refuses && framed_has_tokens(pair_session(&p.b));
            assert_int_equal(pair_send(&p.b, 8 + i % 8, i, NULL), 0);
            sluice_msg *msg = pair_expect(&p, &p.a, SLUICE_MESSAGE).msg;
            assert_true(pair_check(msg, 8 + i % 8, i));
            sluice_free(msg);
            pair_turns(&p, 2);
        }
        assert_int_equal(device.posted, taken);
    }
    pair_close(&p);
}

TEST(a_node_without_them_has_plain_queue_pairs) {
    struct pair p;
    pair_without(WITHOUT_EXTENDED);
    open_connected(&p);
    bool shorter = fabric_is_software(p.a.node->fabric) && !fabric_profile(p.a.node->fabric);
    assert_int_equal(pair_session(&p.a)->framed_end != 0, shorter);
    assert_int_equal(pair_send(&p.b, 8, 1, NULL), 0);
    assert_true(pair_check(pair_expect(&p, &p.a, SLUICE_MESSAGE).msg, 8, 1));
    pair_close(&p);
}
