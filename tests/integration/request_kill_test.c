/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * request_kill_test.c - kill -9 of the side that answers, at any moment: every request that was
 * accepted has exactly one outcome, before CLOSED, and one that says what is known.
 */
#include "support/child.h"
#include "support/side.h"

#define ROUNDS 12
#define REQUESTS 4096

/* The other process: answers what comes until it is killed. Every third answer is late. */
static void serve(int port_fd) {
    sluice_node *n;
    sluice_loop *loop;
    sluice_listener listener;
    sluice_error e;
    sluice_event events[16];
    uint64_t late[64], count = 0, seen = 0;
    must_end_process = true;
    must(sluice_open(&n, SLUICE_NODE(.device = it_device(), .workers = SLUICE_NO_WORKERS), &e) ==
         0);
    must(sluice_loop_open(n, &loop, &e) == 0);
    must(sluice_listen(n, it_address(0), SLUICE_LINK(.loop = loop), &listener, &e) == 0);
    int port = sluice_listener_port(listener);
    must(write(port_fd, &port, sizeof port) == sizeof port);
    for (;;) {
        int got = sluice_poll(loop, events, 16, 100 * MS);
        for (int i = 0; i < got; i++) {
            if (events[i].type != SLUICE_REQUEST)
                continue;
            if (seen++ % 3 == 0 && count < 32)
                late[count++] = events[i].token;
            else if (sluice_reply(events[i].session, events[i].token, events[i].msg) != 0)
                _exit(1);
            if (count == 32)
                while (count > 0)
                    must(sluice_reply_error(events[i].session, late[--count], 7) == 0);
        }
    }
}

static pid_t start_server(int *port) {
    int fds[2];
    char number[16];
    must(pipe(fds) == 0);
    snprintf(number, sizeof number, "%d", fds[1]);
    pid_t pid = child_fork();
    must(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "request_kill_test", "serve", number, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    must(read(fds[0], port, sizeof *port) == sizeof *port);
    close(fds[0]);
    return pid;
}

struct asker {
    sluice_session session;
    unsigned accepted, outcomes, good, seen[REQUESTS];
    bool up, full, closed;
};

static void asker_event(struct asker *a, const sluice_event *event) {
    must(!a->closed);
    if (event->type == SLUICE_UP) {
        a->up = true;
    } else if (event->type == SLUICE_WRITABLE) {
        a->full = false;
    } else if (event->type == SLUICE_REPLY) {
        must_data(event->tag >= 1 && event->tag <= a->accepted);
        must_data(a->seen[event->tag - 1]++ == 0);
        must(event->status == 0 || event->status == SLUICE_EREJECTED ||
             event->status == SLUICE_EUNKNOWN || event->status == SLUICE_ECLOSED);
        if (event->status == 0)
            must(it_matches(event->msg, event->tag % 5 ? 64 : 3000, event->tag));
        a->good += event->status == 0 || event->status == SLUICE_EREJECTED;
        a->outcomes++;
    } else {
        must(event->type == SLUICE_CLOSED);
        a->closed = true;
    }
}

TEST(each_request_has_one_outcome_when_the_peer_is_killed) {
    sluice_node *n;
    sluice_loop *loop;
    sluice_error e;
    unsigned unanswered = 0, answered = 0;
    must(sluice_open(&n, SLUICE_NODE(.device = it_device(), .workers = SLUICE_NO_WORKERS), &e) ==
         0);
    must(sluice_loop_open(n, &loop, &e) == 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        static struct asker a;
        int port, status;
        pid_t pid = start_server(&port);
        unsigned kill_at = round * round * 23; /* replies */
        bool killed = false;
        memset(&a, 0, sizeof a);
        must(sluice_dial(n, it_address(port), SLUICE_LINK(.loop = loop, .requests = 96), &a.session,
                         &e) == 0);
        uint64_t start = sluice_now();
        while (!a.closed) {
            sluice_event events[16];
            while (a.up && !a.full && a.accepted < REQUESTS) {
                sluice_msg *msg;
                uint64_t tag = a.accepted + 1;
                must(sluice_alloc(n, tag % 5 ? 64 : 3000, &msg) == 0);
                it_fill(msg, tag);
                int rc = sluice_request(a.session, msg, SLUICE_SEND(.tag = tag));
                if (rc != 0)
                    sluice_free(msg);
                a.accepted += rc == 0;
                if (rc == SLUICE_ECLOSED)
                    break;
                must(rc == 0 || rc == SLUICE_EAGAIN);
                a.full = rc == SLUICE_EAGAIN;
            }
            if (!killed && a.up && a.good >= kill_at && a.accepted > 0) {
                killed = true;
                must(kill(pid, SIGKILL) == 0);
            }
            int got = sluice_poll(loop, events, 16, 10 * MS);
            must(got >= 0);
            for (int i = 0; i < got; i++)
                asker_event(&a, &events[i]);
            must(sluice_now() - start < LIMIT_NS);
        }
        must(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        must_data(a.outcomes == a.accepted);
        unanswered += a.outcomes - a.good;
        answered += a.good;
    }
    must(unanswered > 0 && answered > 0);
    sluice_close(n, 0);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(atoi(argv[2]));
    return tests_run(NULL, NULL);
}
