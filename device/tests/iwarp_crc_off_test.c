/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * iwarp_crc_off_test.c - SLUICE_SOFT_CRC: a connection has check values where either end asks for them; a byte that changes on the way is
 * found by nobody where neither does. Listener and dialer are processes of their own, each with its setting.
 */
#include "support/fault.h"
#include "support/network.h"
#include "support/softcm_tcp.h"

#include "soft/iwarp/qp_tcp.h"
#include "support/rows.h"

#define BYTES 40u

struct how {
    const char *listener, *dialer; /* NULL: not set */
    bool checked;
};

static const struct how *how;

static void set(const char *setting) {
    softcm_tcp_setup(NULL);
    if (setting)
        setenv("SLUICE_SOFT_CRC", setting, 1);
    else
        unsetenv("SLUICE_SOFT_CRC");
}

static bool is_checked(struct sv_end *e) {
    const struct soft_tcp *tcp = soft_qp_of(e->qp)->tcp;
    must(tcp->tx.crc == tcp->rx.crc);
    return tcp->tx.crc;
}

/* Its second message is not what it sent. */
static void dial(int fd) {
    set(how->dialer);
    struct rdma_event_channel *channel = soft_create_event_channel();
    struct sv_end e;
    struct rdma_cm_id *id = ct_id(channel);
    ct_resolve(id, (uint16_t)sv_hear(fd));
    softcm_tcp_open(&e);
    struct rdma_conn_param param = ct_param("ask", 3);
    must(soft_connect(id, &param) == 0);
    must(ct_take(channel, RDMA_CM_EVENT_CONNECT_RESPONSE) == 0);
    softcm_tcp_move(id, &e);
    must(is_checked(&e) == how->checked);
    fault_plan("qp=1 send=2 corrupt");
    must(soft_establish(id) == 0);
    sv_fill(e.buf + 4096, BYTES, 1);
    must(sv_send(&e, 1, 4096, BYTES, IBV_SEND_SIGNALED) == 0);
    must(sv_poll(e.scq).status == IBV_WC_SUCCESS);
    must(sv_send(&e, 2, 4096, BYTES, IBV_SEND_SIGNALED) == 0);
    must((sv_poll(e.scq).status == IBV_WC_SUCCESS) == !how->checked);
    must(sv_hear(fd) == 1); /* the other end saw what it had to */
    must(soft_destroy_id(id) == 0);
    sv_close(&e);
    soft_destroy_event_channel(channel);
}

static void listen_for_it(void) {
    struct sv_child dialer = sv_fork(dial); /* before the device is in use here */
    set(how->listener);
    struct softcm_tcp_pair p = {0};
    ct_pair_listen(&p.cm);
    softcm_tcp_open(&p.passive);
    sv_tell(dialer.fd, p.cm.port);
    p.cm.passive = ct_request(p.cm.passive_channel);
    softcm_tcp_accept(&p);
    must(is_checked(&p.passive) == how->checked);
    must(ct_take(p.cm.passive_channel, RDMA_CM_EVENT_ESTABLISHED) == 0);
    struct ibv_wc wc = sv_poll(p.passive.rcq);
    must(wc.status == IBV_WC_SUCCESS && wc.byte_len == BYTES);
    sv_check(p.passive.buf, BYTES, 1);
    wc = sv_poll(p.passive.rcq);
    must((wc.status == IBV_WC_SUCCESS) == !how->checked);
    if (!how->checked) { /* it is told as any other */
        must(wc.byte_len == BYTES && p.passive.buf[64] == (sv_byte(0, 1) ^ 1));
        for (unsigned i = 1; i < BYTES; i++)
            must(p.passive.buf[64 + i] == sv_byte(i, 1));
    }
    sv_tell(dialer.fd, 1);
    must(sv_join(&dialer) == 0);
}

static void a_changed_byte_is_found(void **state) {
    how = *state;
    network_child("require", listen_for_it);
}

#define PAIRED(name, ...) ROW(name, a_changed_byte_is_found, how, __VA_ARGS__)

TEST_CASES(PAIRED(on_and_on_a_changed_byte_is_found, NULL, NULL, true),
           PAIRED(a_word_that_is_not_off_is_on, "0", "", true),
           PAIRED(if_the_listener_asks_it_is_found, "on", "off", true),
           PAIRED(if_the_dialer_asks_it_is_found, "off", "on", true),
           PAIRED(off_and_off_it_is_found_by_nobody, "off", "off", false));
