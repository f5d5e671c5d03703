/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * forked_nodes_test.c - nodes of a child of fork(): daemons, servers that fork ahead, children of
 * children; and what the child inherited stays the parent's.
 */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/test.h"
#include "support/wait.h"
#include "support/skip.h"
#include "support/verdict.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/sluice.h>

#include "common/sanitize.h"
#include "base/stats.h"

/* The thread sanitizer knows no threads in the child of a process that had some. */
static void threads_in_a_child(void) {
#ifdef SANITIZE_THREAD
    skip_with("the thread sanitizer cannot follow it");
#endif
}

static pid_t child_of(void (*run)(void *arg), void *arg) {
    fflush(NULL);
    pid_t pid = child_fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        must_end_process = true;
        run(arg);
        _exit(0);
    }
    return pid;
}

/* A node that serves, with the address of its listener. */
struct server {
    sluice_node *node;
    sluice_loop *loop;
    sluice_listener listener;
    char address[32];
};

static void server_open(struct server *s) {
    sluice_error e;
    must(sluice_open(&s->node, NULL, &e) == 0);
    must(sluice_loop_open(s->node, &s->loop, &e) == 0);
    must(sluice_listen(s->node, "127.0.0.1:0", SLUICE_LINK(.loop = s->loop), &s->listener, &e) ==
         0);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%d", sluice_listener_port(s->listener));
}

/* Sends one message to a server, whose loop this thread polls too, and sees it arrive. */
static void one_message(struct server *s, const char *text) {
    sluice_session session;
    sluice_error e;
    sluice_event event;
    bool up = false, arrived = false;
    must(sluice_dial(s->node, s->address, SLUICE_LINK(.loop = s->loop), &session, &e) == 0);
    while (!arrived) {
        must(sluice_poll(s->loop, &event, 1, SLUICE_OFF) == 1 && event.type != SLUICE_CLOSED);
        if (event.type == SLUICE_UP && event.session.id == session.id && !up) {
            up = true;
            must(sluice_send_copy(session, text, strlen(text) + 1, NULL) == 0);
        }
        if (event.type == SLUICE_MESSAGE) {
            arrived = true;
            must_data(strcmp(sluice_data(event.msg), text) == 0);
        }
    }
}

static void a_life(void *unused) {
    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct server s;
        server_open(&s);
        one_message(&s, "a life");
        sluice_close(s.node, 0);
    }
}

/* ---- daemons ------------------------------------------------------------------------------------- */

/* It forks twice, as daemon(3) does, and the parents are gone before it begins. */
static void a_daemon(void *arg) {
    int *told = arg;
    setsid();
    pid_t pid = fork();
    must(pid >= 0);
    if (pid > 0)
        return;
    a_life(NULL);
    must(write(*told, "k", 1) == 1);
}

TEST(a_daemon_opens_nodes_after_its_parent_closed_all) {
    int told[2];
    char word;
    a_life(NULL);
    assert_int_equal(pipe(told), 0);
    assert_int_equal(wait_exit(child_of(a_daemon, &told[1])), 0);
    close(told[1]);
    assert_int_equal(read(told[0], &word, 1), 1); /* 0: it ended without */
    close(told[0]);
    a_life(NULL);
}

/* ---- servers that fork ahead --------------------------------------------------------------------- */

static void a_worker(void *arg) {
    struct server *parents = arg, own;
    sluice_error e;
    sluice_session session;
    sluice_loop *loop;
    sluice_event event;
    sluice_msg *msg;
    server_open(&own);
    must(own.node != parents->node);
    one_message(&own, "of its own");
    /* And still the parent's, whatever the child has by now. */
    must(sluice_loop_open(parents->node, &loop, &e) == SLUICE_EFORKED);
    must(sluice_alloc(parents->node, 8, &msg) == SLUICE_EFORKED);
    must(sluice_poll(parents->loop, &event, 1, 0) == SLUICE_EFORKED);
    must(sluice_listener_port(parents->listener) == SLUICE_EFORKED);
    must(sluice_dial(parents->node, own.address, NULL, &session, &e) == SLUICE_EFORKED);
    must(e.status == SLUICE_EFORKED);
    sluice_unlisten(parents->listener);
    sluice_close(parents->node, 0);
    pid_t grandchild = child_fork();
    must(grandchild >= 0);
    if (grandchild == 0) {
        must(sluice_alloc(parents->node, 8, &msg) == SLUICE_EFORKED);
        must(sluice_alloc(own.node, 8, &msg) == SLUICE_EFORKED);
        a_life(NULL);
        return;
    }
    int status;
    must(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    one_message(&own, "and still");
    sluice_close(own.node, 0);
}

TEST(a_pre_forked_server_has_nodes_of_its_own_beside_the_parents) {
    struct server parent;
    pid_t workers[3];
    threads_in_a_child();
    server_open(&parent);
    for (int i = 0; i < 3; i++)
        workers[i] = child_of(a_worker, &parent);
    one_message(&parent, "meanwhile");
    for (int i = 0; i < 3; i++)
        assert_int_equal(wait_exit(workers[i]), 0);
    one_message(&parent, "and afterwards");
    sluice_close(parent.node, 0);
}

/* ---- while others are busy ------------------------------------------------------------------------ */

static atomic_bool enough;

static void *open_and_close(void *unused) {
    while (!atomic_load(&enough))
        a_life(unused);
    return NULL;
}

/* A lock that another thread holds at that moment would be held in the child for ever. */
TEST(a_fork_while_another_thread_opens_and_closes_leaves_the_child_whole) {
    pthread_t busy;
#ifdef __SANITIZE_ADDRESS__
    /* libasan of gcc 12 does not take its allocator's locks at fork(), as malloc() of glibc does. */
    skip_with("THE SANITIZER'S ALLOCATOR DOES NOT SURVIVE A FORK BESIDE OTHER THREADS");
#endif
    threads_in_a_child();
    atomic_store(&enough, false);
    assert_int_equal(pthread_create(&busy, NULL, open_and_close, NULL), 0);
    for (int i = 0; i < 20; i++)
        assert_int_equal(wait_exit(child_of(a_life, NULL)), 0);
    atomic_store(&enough, true);
    pthread_join(busy, NULL);
}

/* ---- what speaks for the parent ------------------------------------------------------------------- */

static void nobody_finds_the_parents_statistics(void *unused) {
    (void)unused;
    const struct stats_page *pages[4];
    must(stats_attach(getpid(), pages, 4) == -ENOENT);
    struct server own;
    server_open(&own);
    must(stats_attach(getpid(), pages, 4) == 1);
    sluice_close(own.node, 0);
}

TEST(a_child_shows_no_statistics_of_its_parent) {
    struct server parent;
    threads_in_a_child();
    server_open(&parent);
    assert_int_equal(wait_exit(child_of(nobody_finds_the_parents_statistics, NULL)), 0);
    sluice_close(parent.node, 0);
}
