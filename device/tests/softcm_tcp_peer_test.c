/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_tcp_peer_test.c - rdma_cm over TCP with a peer that is not this device: one that follows the standards otherwise, and
 * one that does not.
 */
#include "support/softcm_tcp.h"

#include "soft/cm/tcp.h"
#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/qp_tcp.h"
#include "support/iwarp.h"
#include "support/usage.h"

/* A listener of this device, and a socket to it. */
struct plain {
    struct ct_pair cm;
    struct sv_end end;
    int fd;
};

static void plain_open(struct plain *p) {
    ct_pair_listen(&p->cm);
    softcm_tcp_open(&p->end);
    p->fd = plain_dial(p->cm.port);
}

static void plain_close(struct plain *p) {
    close(p->fd);
    ct_pair_free(&p->cm);
    sv_close(&p->end);
}

/* It asks, in pieces, and its request is heard. */
static void ask(struct plain *p, bool peer_to_peer, size_t piece) {
    uint8_t request[IWARP_HANDSHAKE_MAX];
    plain_send(p->fd, request, plain_request(request, peer_to_peer), piece);
    struct rdma_cm_event *event = ct_expect(p->cm.passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    p->cm.passive = event->id;
    ct_assert_padded(&event->param.conn, "hand", 4, SOFT_CM_REQ_DATA);
    assert_int_equal(event->param.conn.responder_resources, 4);
    assert_int_equal(soft_ack_cm_event(event), 0);
}

static struct iwarp_handshake accepted(struct plain *p, struct iwarp_handshake_parser *parser) {
    softcm_tcp_move(p->cm.passive, &p->end);
    struct rdma_conn_param param = ct_param("yes", 3);
    param.qp_num = p->end.qp->qp_num;
    assert_int_equal(soft_accept(p->cm.passive, &param), 0);
    return plain_handshake(p->fd, true, parser);
}

static void send_frame(int fd, unsigned opcode, const void *payload, size_t bytes) {
    uint8_t frame[256];
    struct iwarp_ddp ddp = {.opcode = (uint8_t)opcode, .last = true, .msn = 1};
    plain_send(fd, frame, iwarp_frame(frame, &ddp, payload, bytes), 0);
}

static bool is_silent(int fd, int ms) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, ms) == 0;
}

static int closed(void **state) {
    plain_close(*state);
    return 0;
}

/* ---- dialers that follow the standards ----------------------------------------------------------------------- */

#define WITH(set_up, name) TEST_WITH(set_up, closed, name)

static int plain_opened(void **state) {
    static struct plain of_test;
    *state = &of_test;
    plain_open(*state);
    return 0;
}

WITH(plain_opened, a_request_in_single_bytes_is_heard) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    ask(p, true, 1);
    struct iwarp_handshake reply = accepted(p, &parser);
    assert_true(!reply.reject && reply.crc && reply.peer_to_peer && reply.rtr_write);
    assert_memory_equal(reply.data, "yes", 4);
    send_frame(p->fd, IWARP_WRITE, NULL, 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
}

/* However many the listener's application asks for: a dialer ends the stream on one READ too many. */
WITH(plain_opened, a_listener_asks_no_more_reads_than_its_dialer_serves) {
    struct plain *p = *state;
    struct iwarp_offer own = {.crc = true, .peer_to_peer = true, .ird = 1, .ord = 4};
    struct iwarp_handshake request = iwarp_handshake_request(&own, "hand", 4);
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    plain_send(p->fd, bytes, iwarp_handshake_put(bytes, &request), 0);
    p->cm.passive = ct_request(p->cm.passive_channel);
    softcm_tcp_move(p->cm.passive, &p->end);
    assert_int_equal(soft_qp_of(p->end.qp)->tcp->ord, 1);
}

/* What the listener posted waits for the dialer's first frame, whatever that is. */
WITH(plain_opened, a_listener_says_nothing_before_the_dialers_first_frame) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    uint8_t frame[256];
    int error;
    ask(p, true, 0);
    accepted(p, &parser);
    assert_int_equal(sv_send(&p->end, 1, 4096, 40, IBV_SEND_SIGNALED), 0);
    assert_true(is_silent(p->fd, 100));
    send_frame(p->fd, IWARP_SEND, "word", 4);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(sv_poll(p->end.rcq).byte_len, 4);
    size_t whole = iwarp_fpdu_bytes(IWARP_UNTAGGED_BYTES + 40);
    assert_int_equal(plain_receive(p->fd, frame, whole, &error), whole);
}

/* Who does not say that it begins is not waited for longer than it takes to be ready. */
WITH(plain_opened, a_dialer_without_a_first_frame_hears_the_listener) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    uint8_t frame[256];
    int error;
    ask(p, false, 0);
    struct iwarp_handshake reply = accepted(p, &parser);
    assert_false(reply.peer_to_peer);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(sv_send(&p->end, 1, 4096, 40, IBV_SEND_SIGNALED), 0);
    size_t whole = iwarp_fpdu_bytes(IWARP_UNTAGGED_BYTES + 40);
    assert_int_equal(plain_receive(p->fd, frame, whole, &error), whole);
}

/*
 * It is not asked for what this device asks of its own kind, though it serves READs: Soft-iWARP answers a READ of nothing
 * with what it sent before when it is busy.
 */
WITH(plain_opened, a_peer_of_another_kind_is_sent_what_was_posted_and_nothing_more) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    uint8_t frame[256];
    int error;
    ask(p, true, 0);
    assert_true(accepted(p, &parser).ord > 0);
    send_frame(p->fd, IWARP_WRITE, NULL, 0);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED), 0);
    assert_int_equal(sv_send(&p->end, 7, 4096, 40, IBV_SEND_SIGNALED), 0);
    assert_int_equal(sv_poll(p->end.scq).status, IBV_WC_SUCCESS);
    size_t whole = iwarp_fpdu_bytes(IWARP_UNTAGGED_BYTES + 40);
    assert_int_equal(plain_receive(p->fd, frame, whole, &error), whole);
    assert_true(is_silent(p->fd, 100));
    assert_true(soft_peer_is_plain(p->end.qp));
}

WITH(plain_opened, a_refusal_is_a_reply_and_the_end) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    ask(p, true, 0);
    assert_int_equal(soft_reject(p->cm.passive, "no", 2), 0);
    struct iwarp_handshake reply = plain_handshake(p->fd, true, &parser);
    assert_true(reply.reject);
    assert_memory_equal(reply.data, "no", 3);
    plain_expect_end(p->fd);
}

/* ---- and that do not ----------------------------------------------------------------------------------------- */

WITH(plain_opened, what_is_no_request_ends_the_connection_and_nobody_hears_of_it) {
    struct plain *p = *state;
    static const uint8_t wrong[][24] = {
        "GET / HTTP/1.1\r\nHost: x",
        "MPA ID Rep Frame\x40\x02",
        "MPA ID Req Frame\x40\x03",
        "MPA ID Req Frame\x40\x02\xff\xff",
        "MPA ID Req Frame\x50\x02\0\0",
        "MPA ID Req Frame\x40\x01\0\0\0\x0e\xc1\x40" /* with the beginning of a frame */};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int fd = plain_dial(p->cm.port);
        plain_send(fd, wrong[i], sizeof wrong[i], 0);
        plain_expect_end(fd);
        close(fd);
    }
    assert_false(ct_readable(p->cm.passive_channel, 0));
}

WITH(plain_opened, markers_are_refused) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    uint8_t request[IWARP_HANDSHAKE_MAX];
    size_t bytes = plain_request(request, true);
    request[16] |= 0x80;
    plain_send(p->fd, request, bytes, 0);
    assert_true(plain_handshake(p->fd, true, &parser).reject);
    plain_expect_end(p->fd);
}

/* Sockets that say nothing keep nobody out: the oldest of them go. */
WITH(plain_opened, silent_connections_keep_nobody_out) {
    struct plain *p = *state;
    enum { SILENT = 200 };
    struct iwarp_handshake_parser parser;
    int silent[SILENT];
    for (unsigned i = 0; i < SILENT; i++)
        silent[i] = plain_dial(p->cm.port);
    plain_expect_end(p->fd); /* it was the oldest */
    close(p->fd);
    p->fd = plain_dial(p->cm.port);
    ask(p, true, 0);
    accepted(p, &parser);
    for (unsigned i = 0; i < SILENT; i++)
        close(silent[i]);
}

/* Who is refused and stays has a descriptor for a second, and there may be many. */
WITH(plain_opened, refused_connections_hold_few_descriptors) {
    struct plain *p = *state;
    enum { REFUSED = 200 };
    uint8_t request[IWARP_HANDSHAKE_MAX];
    int fd[REFUSED];
    size_t bytes = plain_request(request, true);
    request[16] |= 0x80; /* markers */
    unsigned before = usage_entries("/proc/self/fd");
    for (unsigned i = 0; i < REFUSED; i++) {
        struct iwarp_handshake_parser parser;
        fd[i] = plain_dial(p->cm.port);
        plain_send(fd[i], request, bytes, 0);
        assert_true(plain_handshake(fd[i], true, &parser).reject);
    }
    assert_in_range(usage_entries("/proc/self/fd") - before, REFUSED, REFUSED + 70);
    softcm_until(usage_entries("/proc/self/fd") == before + REFUSED);
    for (unsigned i = 0; i < REFUSED; i++)
        close(fd[i]);
}

/* A dialer that is gone before it is accepted leaves nothing: the listener's application hears so from accept. */
WITH(plain_opened, a_dialer_that_ends_early_is_not_accepted) {
    struct plain *p = *state;
    ask(p, true, 0);
    close(p->fd);
    softcm_until(softcm_conn_state(p->cm.passive) == SOFT_CM_CONN_OVER);
    struct rdma_conn_param param = ct_param(NULL, 0);
    assert_fails(soft_accept(p->cm.passive, &param), EINVAL);
    p->fd = plain_dial(p->cm.port);
}

WITH(plain_opened, a_dialer_that_ends_instead_of_its_first_frame_has_refused) {
    struct plain *p = *state;
    struct iwarp_handshake_parser parser;
    ask(p, true, 0);
    accepted(p, &parser);
    close(p->fd);
    assert_int_equal(ct_take(p->cm.passive_channel, RDMA_CM_EVENT_REJECTED),
                     SOFT_CM_REJECT_CONSUMER);
    p->fd = plain_dial(p->cm.port);
}

/* ---- listeners ----------------------------------------------------------------------------------------------- */

enum answer { GARBAGE, NOTHING, SILENCE, MARKERS, OTHER_FORM };

static void answer_with(int fd, enum answer how) {
    struct iwarp_handshake_parser parser;
    struct iwarp_handshake request = plain_handshake(fd, false, &parser);
    struct iwarp_handshake reply = {.reply = true,
                                    .revision = 2,
                                    .crc = true,
                                    .enhanced = how != OTHER_FORM,
                                    .markers = how == MARKERS,
                                    .peer_to_peer = true,
                                    .rtr_write = true};
    uint8_t bytes[IWARP_HANDSHAKE_MAX] = "220 mail.example ready\r\n";
    assert_true(request.crc && request.peer_to_peer && request.rtr_write);
    if (how == GARBAGE)
        plain_send(fd, bytes, 24, 0);
    else if (how == MARKERS || how == OTHER_FORM)
        plain_send(fd, bytes, iwarp_handshake_put(bytes, &reply), 0);
}

TEST(a_listener_that_answers_otherwise_fails_the_dial_with_the_reason) {
    static const struct {
        enum answer how;
        int event, status;
    } rows[] = {{GARBAGE, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO},
                {NOTHING, RDMA_CM_EVENT_REJECTED, SOFT_CM_REJECT_TIMEOUT},
                {SILENCE, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT},
                {MARKERS, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO},
                {OTHER_FORM, RDMA_CM_EVENT_CONNECT_ERROR, -EPROTO}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint16_t port = 0;
        int listener = plain_listen(&port);
        struct rdma_event_channel *channel = soft_create_event_channel();
        struct rdma_cm_id *id = ct_connect(channel, port);
        int fd = plain_accept(listener);
        answer_with(fd, rows[i].how);
        if (rows[i].how != SILENCE)
            shutdown(fd, SHUT_WR);
        assert_int_equal(ct_take(channel, rows[i].event), rows[i].status);
        close(fd);
        close(listener);
        assert_int_equal(soft_destroy_id(id), 0);
        soft_destroy_event_channel(channel);
    }
}

/* A NIC has more than this device: what is told of it is what can be used. */
TEST(a_peer_of_greater_depths_is_connected_to) {
    struct iwarp_handshake_parser parser;
    struct iwarp_handshake reply = {.reply = true,
                                    .revision = 2,
                                    .crc = true,
                                    .enhanced = true,
                                    .peer_to_peer = true,
                                    .rtr_write = true,
                                    .ird = 200,
                                    .ord = 4};
    uint8_t bytes[IWARP_HANDSHAKE_MAX];
    struct sv_end end;
    uint16_t port = 0;
    int listener = plain_listen(&port);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct rdma_cm_id *id = ct_id(channel);
    softcm_tcp_open(&end);
    ct_resolve(id, port);
    struct rdma_conn_param param = ct_param(NULL, 0);
    param.qp_num = end.qp->qp_num;
    param.responder_resources = param.initiator_depth = 4;
    assert_int_equal(soft_connect(id, &param), 0);
    int fd = plain_accept(listener);
    (void)plain_handshake(fd, false, &parser);
    plain_send(fd, bytes, iwarp_handshake_put(bytes, &reply), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE), 0);
    softcm_tcp_move(id, &end);
    assert_int_equal(soft_establish(id), 0);
    assert_int_equal(soft_destroy_id(id), 0);
    sv_close(&end);
    soft_destroy_event_channel(channel);
    close(fd);
    close(listener);
}

int main(void) {
    return tests_run(softcm_tcp_setup, NULL);
}
