/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib_connect.c - sessions of the library, set up and closed between two processes: the figures of
 * raw_connect.c, with everything a session has on top of a connection.
 *
 * One process forks the other. The answering one has a library worker, or so many of them, the asking one a loop of its
 * own that it polls. With --handshake every session is authenticated. First one after another is set up and closed, without that
 * with --storm; then all at once, and each of them carries a message to and fro before it is closed. The answering process counts
 * what it sees of that: both fail if a session did not come up, carry its message and close at both ends.
 *
 *   lib-connect [--json] [--count N] [--handshake] [--storm] [--workers N] [--device NAME]
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/sluice.h>

#define COUNT_MAX 20000
#define CREDITS 16u /* raw-connect has as many receives */
#define FRAME 4096u
#define RECEIVE (256ull << 20)
#define LIMIT_NS 60000000000ull

static bool json, greet, storm;
static int count = 1000, workers = 1;
static const char *device = "soft";
static uint64_t taken[COUNT_MAX];

static const sluice_key key = {.id = 1, .bytes = 32, .secret = "0123456789abcdef0123456789abcdef"};

static void die(const char *what, const sluice_error *e) {
    fprintf(stderr, "lib-connect: %s%s%s\n", what, e ? ": " : "", e ? e->text : "");
    exit(1);
}

/* A session ended that should have come up. */
static void die_of(const sluice_event *event) {
    sluice_session_info info = {.size = sizeof info};
    bool known = sluice_session_get_info(event->session, &info) == SLUICE_OK;
    fprintf(stderr, "lib-connect: %s (%s)\n", known ? info.close_text : "",
            sluice_reason_text(event->reason));
    exit(1);
}

static sluice_node *open_node(uint32_t workers) {
    sluice_node *n;
    sluice_error e;
    uint64_t receive =
        5ull * ((uint64_t)count + 16) * (FRAME + 64); /* a session has 4 at the least */
    receive = receive < RECEIVE ? RECEIVE : receive;
    if (sluice_open(&n,
                    SLUICE_NODE(.name = "lib-connect", .device = device, .workers = workers,
                                .eager_bytes = FRAME, .sessions_max = (uint32_t)count + 16,
                                .memory_bytes_max = 4 * receive, .receive_bytes_max = receive,
                                .requests_max = (uint32_t)count + 16),
                    &e) != 0)
        die("open", &e);
    return n;
}

/* ---- the answering process ------------------------------------------------------------------- */

static _Atomic int came_up, echoed, gone;

static void echo(const sluice_event *event, void *arg) {
    (void)arg;
    came_up += event->type == SLUICE_UP;
    gone += event->type == SLUICE_CLOSED;
    if (event->type == SLUICE_MESSAGE && sluice_send(event->session, event->msg, NULL) == 0)
        echoed++;
}

/* Of the sessions that the other process has closed; its last ones may just be closing here. */
static void all_went_by(void) {
    int all = storm ? count : 2 * count;
    uint64_t limit = sluice_now() + LIMIT_NS;
    while (gone < all && sluice_now() < limit)
        usleep(1000);
    if (came_up == all && gone == all && echoed == count)
        return;
    fprintf(stderr, "lib-connect: of %d sessions %d came up here and %d closed, %d messages came\n",
            all, came_up, gone, echoed);
    exit(1);
}

static void answer(int sock) {
    sluice_node *n = open_node((uint32_t)workers);
    sluice_listener l;
    sluice_error e;
    char byte;
    if (sluice_listen(n, "127.0.0.1:0",
                      SLUICE_LINK(.handler = echo, .credits = CREDITS, .timeout_ns = LIMIT_NS,
                                  .key_count = greet, .keys = greet ? &key : NULL),
                      &l, &e) != 0)
        die("listen", &e);
    int port = sluice_listener_port(l);
    if (write(sock, &port, sizeof port) != sizeof port)
        exit(1);
    if (read(sock, &byte, 1) > 0) /* the other process is done; else it failed, and said why */
        all_went_by();
    sluice_close(n, 0);
}

/* ---- the asking process ---------------------------------------------------------------------- */

static sluice_session dial(sluice_node *n, sluice_loop *loop, const char *to) {
    sluice_session s;
    sluice_error e;
    if (sluice_dial(n, to,
                    SLUICE_LINK(.loop = loop, .credits = CREDITS, .timeout_ns = LIMIT_NS,
                                .key_count = greet, .keys = greet ? &key : NULL),
                    &s, &e) != 0)
        die("dial", &e);
    return s;
}

/* Polls until `wanted` events of this type came. */
static void await(sluice_loop *loop, sluice_event_type type, int wanted) {
    sluice_event events[64];
    uint64_t limit = sluice_now() + LIMIT_NS;
    while (wanted > 0) {
        int n = sluice_poll(loop, events, 64, 1000000000);
        if (n < 0 || sluice_now() > limit)
            die("no progress", NULL);
        for (int i = 0; i < n; i++) {
            if (events[i].type == SLUICE_CLOSED && type != SLUICE_CLOSED)
                die_of(&events[i]);
            wanted -= events[i].type == type;
        }
    }
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void show_rate(const char *name, double seconds) {
    double rate = count / seconds;
    if (json)
        printf("{\"figure\":\"%s\",\"count\":%d,\"per_s\":%.0f}\n", name, count, rate);
    else
        printf("%-30s %10.0f /s\n", name, rate);
}

static void show_times(const char *name, uint64_t *times) {
    qsort(times, (size_t)count, sizeof *times, by_value);
    double p50 = (double)times[count / 2] / 1e3, p99 = (double)times[count - 1 - count / 100] / 1e3;
    double most = (double)times[count - 1] / 1e3;
    if (json)
        printf("{\"figure\":\"%s\",\"count\":%d,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}\n",
               name, count, p50, p99, most);
    else
        printf("%-30s %10.1f us  p99 %.1f us, max %.1f us\n", name, p50, p99, most);
}

static double seconds_since(uint64_t start) {
    return (double)(sluice_now() - start) / 1e9;
}

/* Returns how long it took. */
static double one_after_another(sluice_node *n, sluice_loop *loop, const char *to) {
    uint64_t start = sluice_now();
    for (int i = 0; i < count; i++) {
        uint64_t begun = sluice_now();
        sluice_session s = dial(n, loop, to);
        await(loop, SLUICE_UP, 1);
        taken[i] = sluice_now() - begun;
        sluice_hangup(s, 0);
        await(loop, SLUICE_CLOSED, 1);
    }
    return seconds_since(start);
}

static void a_message_each(sluice_loop *loop, const sluice_session *sessions) {
    for (int i = 0; i < count; i++) {
        int status = sluice_send_copy(sessions[i], "a message", 9, NULL);
        if (status != SLUICE_OK)
            die(sluice_strerror(status), NULL);
    }
    await(loop, SLUICE_MESSAGE, count);
}

static void ask(int sock) {
    char to[32];
    int port;
    sluice_error e;
    sluice_loop *loop;
    double in_turn = 0;
    if (read(sock, &port, sizeof port) != sizeof port)
        exit(1); /* the other process said why */
    snprintf(to, sizeof to, "127.0.0.1:%d", port);
    sluice_node *n = open_node(SLUICE_NO_WORKERS);
    if (sluice_loop_open(n, &loop, &e) != 0)
        die("loop", &e);
    sluice_session *sessions = calloc((size_t)count, sizeof *sessions);
    if (!sessions)
        die("no memory", NULL);

    if (!storm)
        in_turn = one_after_another(n, loop, to);
    uint64_t start = sluice_now();
    for (int i = 0; i < count; i++)
        sessions[i] = dial(n, loop, to);
    await(loop, SLUICE_UP, count);
    double up = seconds_since(start);
    start = sluice_now();
    a_message_each(loop, sessions);
    double echoes = seconds_since(start);
    start = sluice_now();
    for (int i = 0; i < count; i++)
        sluice_hangup(sessions[i], 0);
    await(loop, SLUICE_CLOSED, count);
    double down = seconds_since(start);

    if (!storm)
        show_rate("one after another, up and down", in_turn);
    show_rate("all at once, up", up);
    show_rate("all at once, a message each", echoes);
    show_rate("all at once, down", down);
    if (!storm)
        show_times("set up", taken);
    free(sessions);
    sluice_close(n, 0);
    if (write(sock, "d", 1) != 1)
        exit(1);
}

int main(int argc, char **argv) {
    int pair[2], status = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--handshake") == 0)
            greet = true;
        else if (strcmp(argv[i], "--storm") == 0)
            storm = true;
        else if (strcmp(argv[i], "--workers") == 0 && i + 1 < argc)
            workers = atoi(argv[++i]);
        else if (strcmp(argv[i], "--count") == 0 && i + 1 < argc)
            count = atoi(argv[++i]);
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            device = argv[++i];
        else
            count = 0;
    }
    if (count < 1 || count > COUNT_MAX || workers < 1)
        return fprintf(stderr,
                       "usage: lib-connect [--json] [--count N] [--handshake] [--storm]"
                       " [--workers N] [--device NAME], up to %d sessions\n",
                       COUNT_MAX),
               2;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair", NULL);
    pid_t child = fork();
    if (child < 0)
        die("fork", NULL);
    close(pair[child != 0 ? 0 : 1]);
    if (child == 0) {
        answer(pair[0]);
        return 0;
    }
    ask(pair[1]);
    close(pair[1]);
    waitpid(child, &status, 0);
    return status != 0;
}
