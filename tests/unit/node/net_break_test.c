/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * net_break_test.c - sessions over TCP that break, or do not come about: the reason is the true one.
 */
#include "support/fault.h"
#include "support/network.h"
#include "support/side.h"
#include "support/softcm_tcp.h"
#include "support/skip.h"

static bool own_network;

static sluice_session dial(struct side *side, int port, uint64_t timeout_ns) {
    return side_dial(side, port, &(sluice_link_options){.timeout_ns = timeout_ns});
}

static void expect_end(struct side *side, sluice_reason reason, const char *text) {
    struct note note = side_expect(side, SLUICE_CLOSED);
    if (note.event.reason != reason || !strstr(note.info.close_text, text))
        fail_msg("closed: %s (%s)", sluice_reason_text(note.event.reason), note.info.close_text);
}

/* ---- dials --------------------------------------------------------------------------------------------------- */

/* A web server, say. */
TEST(a_port_that_speaks_something_else_is_not_sluice) {
    struct side side;
    uint16_t port = 0;
    int listener = plain_listen(&port);
    side_open(&side, true, NULL);
    (void)side_dial(&side, port, NULL);
    int fd = plain_accept(listener);
    plain_send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, 0);
    expect_end(&side, SLUICE_REASON_NOT_SLUICE, "something else than iWARP");
    close(fd);
    close(listener);
    side_close(&side, 0);
}

/* ---- sessions ------------------------------------------------------------------------------------------------ */

/* All that arrives is as it was sent, up to the end. */
TEST(a_byte_that_changes_on_the_way_ends_the_session) {
    struct couple c;
    couple_open(&c, true, NULL);
    couple_connect(&c, NULL);
    fault_plan("qp=* send=4 corrupt");
    unsigned sent = 0, heard = 0;
    while (sent < 8 && side_send(&c.b, c.at_b, 1000, sent, 0) == 0)
        sent++;
    for (;;) {
        struct note note;
        must(side_next(&c.a, &note, LIMIT_NS));
        if (note.event.type == SLUICE_CLOSED) {
            assert_int_equal(note.event.reason, SLUICE_REASON_PEER_LOST);
            break;
        }
        if (note.event.type == SLUICE_MESSAGE)
            assert_true(it_matches(note.msg, 1000, heard++));
        note_free(&note);
    }
    assert_in_range(heard, 0, sent - 1);
    fault_clear();
    couple_close(&c);
}

/* ---- dials without a port ------------------------------------------------------------------------------------ */

#define FIRST_PORT 40000
#define PORTS 4

static void ports_take(int taken[PORTS]) {
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "w");
    must(file && fprintf(file, "%d %d", FIRST_PORT, FIRST_PORT + PORTS - 1) > 0);
    must(fclose(file) == 0);
    for (unsigned i = 0; i < PORTS; i++) {
        struct sockaddr_in addr = softcm_in("127.0.0.1", (uint16_t)(FIRST_PORT + i));
        taken[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(bind(taken[i], (struct sockaddr *)&addr, sizeof addr) == 0);
    }
}

/* It is tried again: others give theirs back. The test is the last, because few ports are left after it. */
TEST(a_dial_without_a_port_says_so_and_is_made_when_there_is_one) {
    int taken[PORTS];
    struct couple c;
    if (!own_network)
        skip_with("needs root for a network namespace of its own");
    couple_open(&c, true, NULL);
    c.port = side_listen(&c.a, NULL, &c.listener);
    ports_take(taken);
    (void)dial(&c.b, c.port, 200 * MS);
    expect_end(&c.b, SLUICE_REASON_DEVICE_ERROR, "no port left");
    sluice_session session = dial(&c.b, c.port, LIMIT_NS);
    sluice_session_info info = {.size = sizeof info};
    do
        must(sluice_session_get_info(session, &info) == 0);
    while (info.tries < 2);
    close(taken[0]);
    struct note note = side_expect(&c.b, SLUICE_UP);
    assert_int_equal(note.event.session.id, session.id);
    for (unsigned i = 1; i < PORTS; i++)
        close(taken[i]);
    couple_close(&c);
}

int main(void) {
    own_network = network_separate();
    setenv("SLUICE_SOFT_NET", "require", 1);
    setenv("SLUICE_DEVICE", "soft", 0);
    return tests_run(NULL, NULL);
}
