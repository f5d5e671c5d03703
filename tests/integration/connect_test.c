/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * connect_test.c - how a session comes to be, or why not: nobody there, somebody else there,
 * refused, undecided, too many, forked, and handles of sessions that are gone.
 */
#include "support/child.h"
#include "support/side.h"
#include "support/wait.h"
#include "support/peer.h"

/* A port that was free a moment ago. */
static int free_port(void) {
    struct side side;
    sluice_listener listener;
    side_open(&side, false, NULL);
    int port = side_listen(&side, NULL, &listener);
    side_close(&side, 0);
    return port;
}

static void expect_refused_dial(struct side *side, int port, sluice_reason reason) {
    sluice_session session = side_dial(side, port, NULL);
    struct note note = side_expect(side, SLUICE_CLOSED);
    if (note.event.reason != reason)
        fprintf(stderr, "closed: %s (%s)\n", sluice_reason_text(note.event.reason),
                note.info.close_text);
    must(note.event.session.id == session.id);
    assert_int_equal(note.event.reason, reason);
    assert_true(note.event.status < 0);
    assert_true(note.info.close_text[0] != 0);
    side_expect_nothing(side); /* CLOSED is the last */
}

/* ---- nobody, or somebody else ------------------------------------------------------------------ */

BOTH_MODES(dialing_nobody_says_so) {
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    expect_refused_dial(&side, free_port(), SLUICE_REASON_NO_LISTENER);
    side_close(&side, 0);
}

BOTH_MODES(a_listener_that_speaks_something_else_is_recognised) {
    const char *const modes[] = {"garbage", "accept", "reject"};
    struct side side;
    side_open(&side, handlers_of(state), NULL);
    for (unsigned i = 0; i < 3; i++) {
        const char *words[] = {modes[i], NULL};
        struct peer peer;
        int err[2], saved = dup(2); /* it says its port on standard error */
        must(saved >= 0 && pipe2(err, O_CLOEXEC) == 0 && dup2(err[1], 2) == 2);
        peer_start(&peer, "foreign_peer", words);
        must(dup2(saved, 2) == 2);
        close(saved);
        close(err[1]);
        close(peer.out);
        peer.out = err[0];
        int port = atoi(strrchr(peer_expect(&peer, "listening on "), ':') + 1);
        /* a refusal without a word could be anybody's */
        expect_refused_dial(&side, port,
                            i == 2 ? SLUICE_REASON_NO_LISTENER : SLUICE_REASON_NOT_SLUICE);
        peer_kill(&peer);
    }
    side_close(&side, 0);
}

BOTH_MODES(a_dialer_that_speaks_something_else_is_refused) {
    struct couple c;
    char port[16];
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, NULL, &c.listener);
    snprintf(port, sizeof port, "%d", c.port);
    struct peer peer;
    peer_run(&peer, "foreign_peer", "dial", port);
    siginfo_t info;
    struct note note;
    do                                          /* our loop must be polled for the answer */
        must(!side_next(&c.a, &note, 20 * MS)); /* the application hears nothing of it */
    while (waitid(P_PID, (id_t)peer.pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
           info.si_pid == 0);
    assert_int_equal(peer_join(&peer), 0);
    couple_connect(&c, NULL); /* and the listener is as good as before */
    couple_close(&c);
}

BOTH_MODES(addresses_are_checked) {
    struct side side;
    sluice_error e;
    sluice_session session;
    sluice_listener listener, second;
    const char *const bad[] = {"",           "127.0.0.1",       "127.0.0.1:",   ":77",
                               "x:y",        "127.0.0.1:99999", "127.0.0.1:-1", "[::1:77",
                               "1.2.3.4:5x", "127.0.0.1:0",     "sluice://",    "127.0.0.1:77 "};
    side_open(&side, handlers_of(state), NULL);
    sluice_link_options link = side_link(&side, NULL);
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        memset(&e, 0, sizeof e);
        int status = sluice_dial(side.node, bad[i], &link, &session, &e);
        if (status != SLUICE_EADDRESS && status != SLUICE_EINVAL)
            print_error("dial \"%s\": %d\n", bad[i], status);
        assert_true(status == SLUICE_EADDRESS || status == SLUICE_EINVAL);
        assert_int_equal(e.status, status);
        assert_true(e.text[0] != 0);
    }
    assert_int_equal(sluice_listen(side.node, "192.0.2.77:0", &link, &listener, &e),
                     SLUICE_EADDRESS); /* not an address of this host */
    assert_int_equal(sluice_listen(side.node, it_address(0), &link, &listener, &e), 0);
    char address[80];
    snprintf(address, sizeof address, "%s", it_address(sluice_listener_port(listener)));
    assert_int_equal(sluice_listen(side.node, address, &link, &second, &e), SLUICE_EADDRESS);
    assert_true(e.text[0] != 0);
    struct side other; /* nor from another node */
    side_open(&other, handlers_of(state), NULL);
    sluice_link_options other_link = side_link(&other, NULL);
    assert_int_equal(sluice_listen(other.node, address, &other_link, &second, &e), SLUICE_EADDRESS);
    sluice_unlisten(listener); /* free again, for whoever comes next */
    must(sluice_listener_port(listener) < 0);
    int status;
    uint64_t until = sluice_now() + LIMIT_NS;
    do
        status = sluice_listen(other.node, address, &other_link, &second, &e);
    while (status == SLUICE_EADDRESS && sluice_now() < until);
    assert_int_equal(status, 0);
    side_close(&other, 0);
    side_close(&side, 0);
}

BOTH_MODES(every_way_to_write_an_address_works) {
    const struct {
        const char *scheme, *host;
    } ways[] = {{"", it_host()}, {"sluice://", it_host()}, {"", it_name()}};
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    sluice_link_options at_a = side_link(&c.a, NULL), at_b = side_link(&c.b, NULL);
    sluice_error e;
    assert_int_equal(sluice_listen(c.a.node, "*:0", &at_a, &c.listener, &e), 0);
    for (unsigned i = 0; i < 3; i++) {
        char address[320];
        snprintf(address, sizeof address, "%s%s:%d", ways[i].scheme, ways[i].host,
                 sluice_listener_port(c.listener));
        assert_int_equal(sluice_dial(c.b.node, address, &at_b, &c.at_b, &e), 0);
        side_expect(&c.b, SLUICE_UP);
        struct note up = side_expect(&c.a, SLUICE_UP);
        sluice_session_info info = {.size = sizeof info};
        assert_int_equal(sluice_session_get_info(up.event.session, &info), 0);
        assert_non_null(strstr(info.peer, it_host()));
        sluice_hangup(c.at_b, 0);
        side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
        side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    }
    couple_close(&c);
}

/* ---- the application decides -------------------------------------------------------------------- */

BOTH_MODES(a_refusal_arrives_with_code_and_text) {
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "code=4711",
             handlers_of(state) ? "polled" : "handlers");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    for (unsigned i = 0; i < 3; i++) {
        sluice_session session = side_dial(&side, port, NULL);
        struct note note = side_expect(&side, SLUICE_CLOSED);
        assert_true(note.event.session.id == session.id);
        assert_int_equal(note.event.reason, SLUICE_REASON_REFUSED);
        assert_int_equal(note.event.status, SLUICE_EREJECTED);
        assert_int_equal(note.event.vendor, 4711);
        assert_int_equal(note.info.close_code, 4711);
        assert_string_equal(note.info.close_text, "not today");
        const char *asked = peer_expect(&peer, "asked ");
        assert_non_null(strstr(asked, it_host()));
        peer_expect(&peer, "closed "); /* the refused session ends there too */
    }
    side_close(&side, 0);
    peer_quit(&peer);
}

BOTH_MODES(accepting_sets_the_argument) {
    struct couple c;
    int mark;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK}, &c.listener);
    for (unsigned i = 0; i < 3; i++) {
        c.at_b = side_dial(&c.b, c.port, NULL);
        struct note asked = side_expect(&c.a, SLUICE_CONNECT);
        c.at_a = asked.event.session;
        assert_int_equal(sluice_send_copy(c.at_a, "x", 1, NULL), SLUICE_ECLOSED); /* not yet up */
        assert_int_equal(sluice_accept(c.at_a, &mark), 0);
        assert_int_equal(sluice_accept(c.at_a, &mark), SLUICE_ECLOSED); /* answered */
        assert_int_equal(sluice_refuse(c.at_a, 1, "x"), SLUICE_ECLOSED);
        struct note up = side_expect(&c.a, SLUICE_UP);
        assert_ptr_equal(up.event.arg, &mark);
        assert_true(up.event.session.id == c.at_a.id);
        side_expect(&c.b, SLUICE_UP);
        must(side_send(&c.b, c.at_b, 10, 1, 0) == 0);
        struct note note = side_expect(&c.a, SLUICE_MESSAGE);
        assert_ptr_equal(note.event.arg, &mark);
        note_free(&note);
        sluice_hangup(c.at_a, 0);
        note = side_expect(&c.a, SLUICE_CLOSED);
        assert_ptr_equal(note.event.arg, &mark);
        side_expect_closed(&c.b, SLUICE_REASON_PEER_CLOSE);
    }
    couple_close(&c);
}

BOTH_MODES(an_undecided_request_ends_in_time_on_both_sides) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.flags = SLUICE_ASK, .timeout_ns = 300 * MS},
                         &c.listener);
    uint64_t start = sluice_now();
    c.at_b = side_dial(&c.b, c.port, NULL);
    c.at_a = side_expect(&c.a, SLUICE_CONNECT).event.session;
    side_expect_closed(&c.a, SLUICE_REASON_TIMEOUT);
    assert_uint_in_range(sluice_now() - start, 250 * MS, 5000 * MS);
    side_expect_closed(&c.b, SLUICE_REASON_TIMEOUT);
    assert_int_equal(sluice_accept(c.at_a, NULL), SLUICE_ECLOSED); /* too late */
    couple_close(&c);
}

BOTH_MODES(a_dialer_gives_up_in_time) {
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "ask");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    uint64_t start = sluice_now();
    side_dial(&side, port, &(sluice_link_options){.timeout_ns = 300 * MS});
    side_expect_closed(&side, SLUICE_REASON_TIMEOUT);
    assert_uint_in_range(sluice_now() - start, 250 * MS, 5000 * MS);
    peer_expect(&peer, "asked ");
    start = sluice_now();
    if (it_iwarp()) {
        peer_expect(&peer, "closed ");
        peer_tell(&peer, "accept");
        peer_expect(&peer, "accepted status=-3");
    } else { /* rdma_cm does not tell it before it answers that nobody waits any more */
        peer_tell(&peer, "accept");
        peer_expect(&peer, "accepted status=0");
        peer_expect(&peer, "closed ");
    }
    assert_uint_in_range(sluice_now() - start, 0, 3000 * MS);
    side_close(&side, 0);
    peer_quit(&peer);
}

/* Its kernel answers nothing, its memory stays mapped: only time tells. */
BOTH_MODES(a_stopped_peer_is_given_up_and_served_when_it_continues) {
    struct peer peer;
    struct side side;
    peer_run(&peer, "session_peer", "listen", "echo");
    int port = atoi(peer_expect(&peer, "port "));
    side_open(&side, handlers_of(state), NULL);
    sluice_session session = side_dial(&side, port, NULL);
    side_expect(&side, SLUICE_UP);
    peer_expect(&peer, "up ");
    kill(peer.pid, SIGSTOP);
    siginfo_t info;
    must(waitid(P_PID, (id_t)peer.pid, &info, WSTOPPED) == 0);
    side_dial(&side, port, &(sluice_link_options){.timeout_ns = 300 * MS});
    side_expect_closed(&side, SLUICE_REASON_TIMEOUT);
    uint64_t sent = 0; /* the live session fills its window and waits */
    int status;
    while ((status = side_send(&side, session, 1000, sent, sent + 1)) == 0)
        sent++;
    assert_int_equal(status, SLUICE_EAGAIN);
    kill(peer.pid, SIGCONT);
    uint64_t back = 0, outcomes = 0;
    bool writable = false;
    while (back < sent || outcomes < sent || !writable) {
        struct note note;
        must_data(side_next(&side, &note, LIMIT_NS));
        if (note.event.type == SLUICE_MESSAGE)
            must(it_matches(note.msg, 1000, back++));
        else if (note.event.type == SLUICE_SENT) {
            must(note.event.status == 0);
            must_data_equal(note.event.tag, ++outcomes);
        } else {
            must(note.event.type == SLUICE_WRITABLE && !writable);
            writable = true;
        }
        note_free(&note);
    }
    side_close(&side, 0);
    /* of the dial that was given up it may hear or not; then of ours */
    while (strncmp(peer_line(&peer), "closed ", 7) != 0 || peer_number(&peer, "received") == 0)
        ;
    peer_quit(&peer);
}

/* ---- many, and gone --------------------------------------------------------------------------- */

BOTH_MODES(a_hundred_sessions_at_once) {
    enum { N = 100 };
    static sluice_session dialed[N];
    static uint32_t got[N], up_at_a;
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, &(sluice_link_options){.credits = 4}, &c.listener);
    up_at_a = 0;
    memset(got, 0, sizeof got);
    for (uintptr_t i = 0; i < N; i++)
        dialed[i] =
            side_dial(&c.b, c.port, &(sluice_link_options){.credits = 4, .arg = (void *)(i + 1)});
    for (unsigned up = 0; up < N; up++) {
        struct note note = side_expect(&c.b, SLUICE_UP);
        uintptr_t i = (uintptr_t)note.event.arg - 1;
        must(i < N && note.event.session.id == dialed[i].id);
        must(side_send(&c.b, dialed[i], 100 + i, i, 0) == 0);
    }
    for (unsigned n = 0; n < N;) { /* one message for each session, right after its UP */
        struct note note;
        must(side_next(&c.a, &note, LIMIT_NS));
        if (note.event.type == SLUICE_UP) {
            up_at_a++;
        } else {
            must(note.event.type == SLUICE_MESSAGE);
            size_t i = sluice_size(note.msg) - 100;
            must(i < N && got[i]++ == 0 && it_matches(note.msg, 100 + i, i));
            n++;
        }
        note_free(&note);
    }
    assert_int_equal(up_at_a, N);
    sluice_node_info info = {.size = sizeof info};
    assert_int_equal(sluice_node_get_info(c.b.node, &info), 0);
    assert_int_equal(info.sessions, N);
    for (unsigned i = 0; i < N; i += 2)
        sluice_hangup(dialed[i], 0);
    for (unsigned i = 0; i < N / 2; i++)
        side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    for (unsigned i = 0; i < N / 2; i++)
        side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    for (unsigned i = 1; i < N; i += 2) /* the others never noticed */
        must(side_send(&c.b, dialed[i], 100 + i, i, 0) == 0);
    for (unsigned i = 1; i < N; i += 2) {
        struct note note = side_expect(&c.a, SLUICE_MESSAGE);
        note_free(&note);
    }
    couple_close(&c);
}

BOTH_MODES(more_sessions_than_the_node_may_have) {
    struct couple c;
    couple_open(&c, handlers_of(state), SLUICE_NODE(.sessions_max = 3));
    c.port = side_listen(&c.a, NULL, &c.listener);
    sluice_session sessions[3], more;
    for (unsigned i = 0; i < 3; i++) {
        sessions[i] = side_dial(&c.b, c.port, NULL);
        side_expect(&c.b, SLUICE_UP);
        side_expect(&c.a, SLUICE_UP);
    }
    sluice_link_options link = side_link(&c.b, NULL);
    sluice_error e;
    assert_int_equal(sluice_dial(c.b.node, it_address(c.port), &link, &more, &e), SLUICE_ELIMIT);
    struct side third; /* the listening node has its limit too */
    side_open(&third, handlers_of(state), NULL);
    third.partner = &c.a;
    side_dial(&third, c.port, &(sluice_link_options){.flags = SLUICE_ONCE});
    side_expect_closed(&third, SLUICE_REASON_BUSY);
    sluice_hangup(sessions[1], 0);
    side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    sluice_node_info info = {.size = sizeof info};
    uint64_t until = sluice_now() + LIMIT_NS; /* put away after the event was looked at */
    for (struct note note; info.sessions != 2;) {
        must(!side_next(&c.a, &note, 0) && sluice_now() < until);
        must(sluice_node_get_info(c.a.node, &info) == 0);
    }
    side_dial(&third, c.port, NULL); /* a place is free again */
    side_expect(&third, SLUICE_UP);
    side_expect(&c.a, SLUICE_UP);
    side_close(&third, 0);
    couple_close(&c);
}

/* Both of its ends do, from UP on, and still in CLOSED. */
BOTH_MODES(a_session_says_what_carries_it) {
    unsigned expected = !it_soft() ? SLUICE_TRANSPORT_DEVICE
                        : it_tcp() ? SLUICE_TRANSPORT_TCP
                                   : SLUICE_TRANSPORT_SHARED_MEMORY;
    sluice_session_info info = {.size = sizeof info};
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, NULL);
    assert_int_equal(sluice_session_get_info(c.at_b, &info), 0);
    assert_int_equal(info.transport, expected);
    sluice_hangup(c.at_b, 0);
    assert_int_equal(side_expect(&c.a, SLUICE_CLOSED).info.transport, expected);
    couple_close(&c);
}

BOTH_MODES(handles_of_the_dead_answer_closed) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, NULL);
    sluice_session old = c.at_b;
    sluice_hangup(old, 0);
    side_expect_closed(&c.b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&c.a, SLUICE_REASON_PEER_CLOSE);
    couple_connect(&c, NULL); /* likely in the same place */
    sluice_session_info info = {.size = sizeof info};
    uint64_t until = sluice_now() + LIMIT_NS; /* the event is taken back at the next turn */
    while (sluice_session_get_info(old, &info) != SLUICE_ECLOSED)
        must(sluice_now() < until);
    assert_int_equal(side_send(&c.b, old, 8, 1, 1), SLUICE_ECLOSED);
    assert_int_equal(sluice_send_copy(old, "x", 1, NULL), SLUICE_ECLOSED);
    assert_int_equal(sluice_accept(old, NULL), SLUICE_ECLOSED);
    assert_int_equal(sluice_refuse(old, 1, NULL), SLUICE_ECLOSED);
    sluice_hangup(old, 0); /* does not touch the living */
    must(side_send(&c.b, c.at_b, 8, 1, 0) == 0);
    struct note note = side_expect(&c.a, SLUICE_MESSAGE);
    note_free(&note);
    sluice_session at_b = c.at_b;
    couple_close(&c); /* of the node too */
    assert_int_equal(sluice_send_copy(at_b, "x", 1, NULL), SLUICE_ECLOSED);
    assert_int_equal(sluice_session_get_info(at_b, &info), SLUICE_ECLOSED);
    assert_true(sluice_listener_port(c.listener) < 0);
    sluice_hangup(at_b, 0);
    sluice_unlisten(c.listener);
}

/* ---- fork ---------------------------------------------------------------------------------------- */

BOTH_MODES(a_forked_child_is_told_and_the_parent_works_on) {
    struct couple c;
    sluice_msg *msg;
    couple_open(&c, handlers_of(state), NULL);
    couple_connect(&c, NULL);
    must(sluice_alloc(c.b.node, 100, &msg) == 0);
    for (unsigned i = 0; i < 3; i++) {
        fflush(NULL);
        pid_t pid = child_fork();
        must(pid >= 0);
        if (pid == 0) {
            must_end_process = true;
            sluice_msg *mine;
            sluice_loop *loop;
            sluice_session session;
            sluice_listener listener;
            sluice_error e;
            sluice_link_options link = side_link(&c.b, NULL);
            must(sluice_send(c.at_b, msg, NULL) == SLUICE_EFORKED);
            must(sluice_send_copy(c.at_b, "x", 1, NULL) == SLUICE_EFORKED);
            must(sluice_alloc(c.b.node, 100, &mine) == SLUICE_EFORKED);
            must(sluice_loop_open(c.b.node, &loop, &e) == SLUICE_EFORKED);
            must(sluice_dial(c.b.node, "127.0.0.1:9", &link, &session, &e) == SLUICE_EFORKED);
            must(sluice_listen(c.b.node, "127.0.0.1:0", &link, &listener, &e) == SLUICE_EFORKED);
            if (c.b.loop)
                must(sluice_poll(c.b.loop, NULL, 0, 0) == SLUICE_EFORKED);
            sluice_hangup(c.at_b, 0);
            sluice_unlisten(c.listener);
            sluice_close(c.b.node, 0);
            _exit(0);
        }
        assert_int_equal(wait_exit(pid), 0);
        must(side_send(&c.b, c.at_b, 50000, i, 0) == 0);
        struct note note = side_expect(&c.a, SLUICE_MESSAGE);
        must(it_matches(note.msg, 50000, i));
        note_free(&note);
    }
    sluice_free(msg);
    couple_close(&c);
}
