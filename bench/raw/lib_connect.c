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
 * With --restart the answering process then closes its node while all sessions are up, which has to close every one of them,
 * or is killed; and listens again. The other dials each session again when it is closed, and all have to come back. It is a storm,
 * too.
 *
 *   lib-connect [--json] [--count N] [--handshake] [--storm] [--restart close|kill] [--workers N] [--device NAME]
 */
#define _GNU_SOURCE
#include <signal.h>
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
#define PAUSE_NS 50000000ull /* of one whose server is not there, before it dials again */

static bool json, greet, storm;
static enum { RESTART_NOT, RESTART_CLOSE, RESTART_KILL } restart;
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

/* What the two processes say to each other: a port to listen at, or DONE; where it listens, and since when. */
#define DONE (-1)
struct served {
    int port;
    uint64_t since_ns;
};

struct answering {
    pid_t pid;
    int sock;
};

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

static void say(int sock, const void *what, size_t bytes) {
    if (write(sock, what, bytes) != (ssize_t)bytes)
        exit(1); /* the other process failed, and said why */
}

/* Below those that systems give to who asks for none. */
static int some_port(int i) {
    return 10000 + (getpid() * 7 + i * 101) % 20000;
}

/* At this port, or 0 for any; tells the other process which one it is, and since when. */
static sluice_node *serve(int sock, int port) {
    sluice_node *n = open_node((uint32_t)workers);
    sluice_listener l;
    sluice_error e;
    char at[32];
    int status = -1;
    /* One that is to listen again has a port that no dial goes out by meanwhile. */
    for (int i = 0; i < (restart && port == 0 ? 100 : 1) && status != 0; i++) {
        snprintf(at, sizeof at, "127.0.0.1:%d", restart && port == 0 ? some_port(i) : port);
        status =
            sluice_listen(n, at,
                          SLUICE_LINK(.handler = echo, .credits = CREDITS, .timeout_ns = LIMIT_NS,
                                      .key_count = greet, .keys = greet ? &key : NULL),
                          &l, &e);
    }
    if (status != 0)
        die("listen", &e);
    struct served served = {.port = sluice_listener_port(l), .since_ns = sluice_now()};
    say(sock, &served, sizeof served);
    return n;
}

/* With all its sessions up: each has been told that it is closed when the call returns. */
static void close_with_all(sluice_node *n) {
    sluice_close(n, 0);
    if (gone == came_up)
        return;
    fprintf(stderr, "lib-connect: of %d sessions %d had their event when the node was closed\n",
            came_up, gone);
    exit(1);
}

static void answer(int sock) {
    sluice_node *n = NULL;
    int port = 0;
    while (read(sock, &port, sizeof port) ==
           sizeof port) { /* it says where to listen, or that it is done */
        if (n && port != DONE)
            close_with_all(n);
        if (port == DONE)
            break;
        came_up = gone = echoed = 0;
        n = serve(sock, port);
    }
    if (port == DONE)
        all_went_by();
    sluice_close(n, 0);
}

/* other: an end of the asking process's own, -1: none. */
static struct answering start_answering(int other) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair", NULL);
    pid_t child = fork();
    if (child < 0)
        die("fork", NULL);
    close(pair[child != 0 ? 0 : 1]);
    if (child != 0)
        return (struct answering){.pid = child, .sock = pair[1]};
    if (other >= 0)
        close(other);
    answer(pair[0]);
    exit(0);
}

/* ---- the asking process ---------------------------------------------------------------------- */

/* The place that the session has in the list of them, if there is one, comes with each event of it. */
static sluice_session dial(sluice_node *n, sluice_loop *loop, const char *to,
                           sluice_session *place) {
    sluice_session s;
    sluice_error e;
    if (sluice_dial(n, to,
                    SLUICE_LINK(.loop = loop, .arg = place, .credits = CREDITS,
                                .timeout_ns = LIMIT_NS, .key_count = greet,
                                .keys = greet ? &key : NULL),
                    &s, &e) != 0)
        die("dial", &e);
    if (place)
        *place = s;
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
        sluice_session s = dial(n, loop, to, NULL);
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

/* ---- a server that starts again -------------------------------------------------------------- */

struct redial {
    sluice_session **places; /* of those that are to be dialed again, the first `count` */
    bool *back;              /* of each place */
    int count, up;
    uint64_t due_ns;
};

/* Those that are closed are dialed at once; when one finds no server, after a pause. */
static void on_restart(struct redial *redial, const sluice_session *first,
                       const sluice_event *event) {
    bool *back = &redial->back[(sluice_session *)event->arg - first];
    if (event->type == SLUICE_UP) {
        *back = true;
        redial->up++;
    }
    if (event->type != SLUICE_CLOSED)
        return;
    redial->up -= *back;
    *back = false;
    switch (event->reason) {
    case SLUICE_REASON_PEER_CLOSE: /* the node closes its sessions one by one, and then is closed */
    case SLUICE_REASON_NODE_CLOSED:
    case SLUICE_REASON_PEER_LOST:
        break;
    case SLUICE_REASON_NO_LISTENER:
        redial->due_ns = sluice_now() + PAUSE_NS;
        break;
    default:
        die_of(event);
    }
    redial->places[redial->count++] = event->arg;
}

/* Until all are up again. Returns how long the last one took from when there was a server. */
static double come_back(sluice_node *n, sluice_loop *loop, const char *to, int sock,
                        const sluice_session *first) {
    struct redial redial = {.places = calloc((size_t)count, sizeof(sluice_session *)),
                            .back = calloc((size_t)count, sizeof(bool))};
    struct served served = {.port = 0};
    sluice_event events[64];
    uint64_t limit = sluice_now() + LIMIT_NS;
    if (!redial.places || !redial.back)
        die("no memory", NULL);
    while (redial.up < count) {
        int got = sluice_poll(loop, events, 64, PAUSE_NS);
        if (got < 0 || sluice_now() > limit)
            die("they do not come back", NULL);
        for (int i = 0; i < got; i++)
            on_restart(&redial, first, &events[i]);
        while (redial.count > 0 && sluice_now() >= redial.due_ns)
            dial(n, loop, to, redial.places[--redial.count]);
    }
    if (read(sock, &served, sizeof served) != sizeof served)
        exit(1);
    free(redial.places);
    free(redial.back);
    return seconds_since(served.since_ns);
}

/* The process that answers from now on, and the way to it. */
static void start_again(struct answering *answering, struct answering *next, int port) {
    if (restart == RESTART_KILL) {
        kill(answering->pid, SIGKILL);
        waitpid(answering->pid, NULL, 0);
        close(answering->sock);
        *answering = *next;
    }
    say(answering->sock, &port, sizeof port);
}

/* ---- everything in its turn ------------------------------------------------------------------ */

struct took {
    double in_turn, up, echoes, back, down;
};

static void show(const struct took *took) {
    if (!storm)
        show_rate("one after another, up and down", took->in_turn);
    show_rate("all at once, up", took->up);
    show_rate("all at once, a message each", took->echoes);
    if (restart)
        show_rate(restart == RESTART_KILL ? "killed, all up again" : "closed, all up again",
                  took->back);
    show_rate("all at once, down", took->down);
    if (!storm)
        show_times("set up", taken);
}

static void storm_of(struct took *took, sluice_node *n, sluice_loop *loop, const char *to,
                     sluice_session *sessions) {
    uint64_t start = sluice_now();
    for (int i = 0; i < count; i++)
        dial(n, loop, to, &sessions[i]);
    await(loop, SLUICE_UP, count);
    took->up = seconds_since(start);
    start = sluice_now();
    a_message_each(loop, sessions);
    took->echoes = seconds_since(start);
}

static void ask(struct answering *answering, struct answering *next) {
    char to[32];
    struct served served = {.port = 0};
    struct took took = {.up = 0};
    sluice_error e;
    sluice_loop *loop;
    say(answering->sock, &served.port, sizeof served.port);
    if (read(answering->sock, &served, sizeof served) != sizeof served)
        exit(1); /* the other process said why */
    snprintf(to, sizeof to, "127.0.0.1:%d", served.port);
    sluice_node *n = open_node(SLUICE_NO_WORKERS);
    if (sluice_loop_open(n, &loop, &e) != 0)
        die("loop", &e);
    sluice_session *sessions = calloc((size_t)count, sizeof *sessions);
    if (!sessions)
        die("no memory", NULL);

    if (!storm)
        took.in_turn = one_after_another(n, loop, to);
    storm_of(&took, n, loop, to, sessions);
    if (restart) {
        start_again(answering, next, served.port);
        took.back = come_back(n, loop, to, answering->sock, sessions);
        a_message_each(loop, sessions);
    }
    uint64_t start = sluice_now();
    for (int i = 0; i < count; i++)
        sluice_hangup(sessions[i], 0);
    await(loop, SLUICE_CLOSED, count);
    took.down = seconds_since(start);

    show(&took);
    free(sessions);
    sluice_close(n, 0);
    served.port = DONE;
    say(answering->sock, &served.port, sizeof served.port);
}

static bool is_restart(const char *how) {
    restart = strcmp(how, "kill") == 0 ? RESTART_KILL : RESTART_CLOSE;
    storm = true;
    return restart == RESTART_KILL || strcmp(how, "close") == 0;
}

int main(int argc, char **argv) {
    int status = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--handshake") == 0)
            greet = true;
        else if (strcmp(argv[i], "--storm") == 0)
            storm = true;
        else if (strcmp(argv[i], "--restart") == 0 && i + 1 < argc)
            count = is_restart(argv[++i]) ? count : 0;
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
                       " [--restart close|kill] [--workers N] [--device NAME], up to %d sessions\n",
                       COUNT_MAX),
               2;
    struct answering answering = start_answering(-1), next = {.sock = -1};
    if (restart ==
        RESTART_KILL) /* threads of the library do not survive a fork: the next server is one from before */
        next = start_answering(answering.sock);
    ask(&answering, &next);
    close(answering.sock);
    waitpid(answering.pid, &status, 0);
    return status != 0;
}
