/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib_busy.c - messages between two processes that sleep while they wait, on a machine that has other work: programs that
 * spin, of the same priority. A thread that gives its CPU up there gets it back when the scheduler says so, so the figure
 * is how often a message needs that. The mean counts, as a median hides the messages that waited.
 *
 * One end asks, the other answers with as many bytes (one-way: half of a round trip) or with 64 (request), or the asking
 * end reads the other's memory (get). --plain: the same over plain TCP, by calls that wait; a get is a request of 64 bytes
 * whose answer is the memory.
 *
 *   lib-busy [--plain] [--load N] [--mode block|adaptive|spin] [--above BYTES] [--credits N] [--json]
 *            one-way|request|get BYTES SECONDS
 *
 * --above: messages above so many bytes are announced, and not cut into frames; --credits: frames on their way.
 *
 * Prints nanoseconds, and how often the threads of both ends gave up their CPUs, and lost them, for a message.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice/memory.h>
#include <sluice/sluice.h>

#define LOAD_MAX 64
#define SMALL 64u
#define ROUNDS_MAX 2000000u
#define WARM_NS 200000000u /* before the figures */

enum what { ONE_WAY, REQUEST, GET };

static enum what what;
static bool plain, json;
static uint64_t bytes, above;
static uint32_t credits;
static uint32_t mode = SLUICE_IDLE_BLOCK;
static double seconds;
static uint64_t *taken;
static unsigned rounds;
static pid_t load[LOAD_MAX], answerer;
static unsigned loads;

static void must(int ok, const char *call) {
    if (ok)
        return;
    perror(call);
    exit(1);
}

static void die(const char *call, const char *why) {
    fprintf(stderr, "lib-busy: %s: %s\n", call, why);
    exit(1);
}

static uint64_t now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- the load and the figures -------------------------------------------------------------------------------- */

/* Before there is anything that a fork would copy; they spin later. */
static void make_load(void) {
    for (unsigned i = 0; i < loads; i++) {
        load[i] = fork();
        must(load[i] >= 0, "fork");
        if (load[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            raise(SIGSTOP);
            for (volatile uint64_t turns = 0;; turns++)
                continue;
        }
        waitpid(load[i], NULL, WUNTRACED);
    }
}

static void start_load(void) {
    for (unsigned i = 0; i < loads; i++)
        kill(load[i], SIGCONT);
}

static void end_load(void) {
    for (unsigned i = 0; i < loads; i++) {
        kill(load[i], SIGKILL);
        waitpid(load[i], NULL, 0);
    }
}

struct switches {
    uint64_t gave, lost;
};

/* Of the threads that a process has now. */
static void add_switches(pid_t pid, struct switches *sum) {
    char path[80], line[128];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    must(tasks != NULL, path);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        unsigned long n;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/status", (int)pid, task->d_name);
        FILE *status = task->d_name[0] != '.' ? fopen(path, "re") : NULL;
        while (status && fgets(line, sizeof line, status)) {
            if (sscanf(line, "voluntary_ctxt_switches: %lu", &n) == 1)
                sum->gave += n;
            else if (sscanf(line, "nonvoluntary_ctxt_switches: %lu", &n) == 1)
                sum->lost += n;
        }
        if (status)
            fclose(status);
    }
    closedir(tasks);
}

static struct switches both(void) {
    struct switches sum = {0};
    add_switches(getpid(), &sum);
    add_switches(answerer, &sum);
    return sum;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void report(const struct switches *before) {
    struct switches after = both();
    if (rounds == 0)
        die("no round", "too short a time");
    uint64_t sum = 0;
    for (unsigned i = 0; i < rounds; i++)
        sum += taken[i];
    qsort(taken, rounds, sizeof *taken, by_value);
    double n = rounds, way = what == ONE_WAY ? 2 : 1; /* messages in a round */
    const char *text = json ? "{\"mean_ns\":%.0f,\"p50_ns\":%.0f,\"p99_ns\":%.0f,\"max_ns\":%.0f,"
                              "\"rounds\":%u,\"gave\":%.2f,\"lost\":%.2f}\n"
                            : "mean %.0f p50 %.0f p99 %.0f max %.0f ns, %u rounds; a message: gave "
                              "its CPU %.2f, lost %.2f times\n";
    printf(text, (double)sum / n / way, (double)taken[rounds / 2] / way,
           (double)taken[(uint64_t)rounds * 99 / 100] / way, (double)taken[rounds - 1] / way,
           rounds, (double)(after.gave - before->gave) / n / way,
           (double)(after.lost - before->lost) / n / way);
}

/* One round after the other, for some seconds. */
static void measure(void (*round)(void *), void *with) {
    taken = malloc(ROUNDS_MAX * sizeof *taken);
    must(taken != NULL, "malloc");
    for (uint64_t end = now() + WARM_NS; now() < end;)
        round(with);
    start_load();
    struct switches before = both();
    uint64_t begun = now(), end = begun + (uint64_t)(seconds * 1e9);
    while (begun < end && rounds < ROUNDS_MAX) {
        round(with);
        uint64_t done = now();
        taken[rounds++] = done - begun;
        begun = done;
    }
    report(&before);
    end_load();
}

/* ---- plain TCP ----------------------------------------------------------------------------------------------- */

struct stream {
    int fd;
    uint8_t *buf;
    size_t there, back;
};

static bool take(struct stream *s, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(s->fd, s->buf + at, n - at, 0);
        if (got == 0)
            return false;
        must(got > 0, "recv");
        at += (size_t)got;
    }
    return true;
}

static void put(struct stream *s, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t put = send(s->fd, s->buf + at, n - at, MSG_NOSIGNAL);
        must(put > 0, "send");
        at += (size_t)put;
    }
}

static void plain_round(void *with) {
    struct stream *s = with;
    put(s, s->there);
    (void)take(s, s->back);
}

static void run_plain(void) {
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof addr;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&addr, sizeof addr) == 0 && listen(listener, 1) == 0 &&
             getsockname(listener, (struct sockaddr *)&addr, &length) == 0,
         "listen");
    struct stream s = {.buf = malloc(bytes + SMALL),
                       .there = what == GET ? SMALL : bytes,
                       .back = what == REQUEST ? SMALL : bytes};
    must(s.buf != NULL, "malloc");
    memset(s.buf, 1, bytes + SMALL);
    answerer = fork();
    must(answerer >= 0, "fork");
    if (answerer == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    s.fd = answerer == 0 ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
    must(s.fd >= 0, "socket");
    must(answerer == 0 || connect(s.fd, (struct sockaddr *)&addr, sizeof addr) == 0, "connect");
    must(setsockopt(s.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, "TCP_NODELAY");
    if (answerer == 0) {
        while (take(&s, s.there))
            put(&s, s.back);
        _exit(0);
    }
    measure(plain_round, &s);
    close(s.fd);
}

/* ---- the library --------------------------------------------------------------------------------------------- */

struct end {
    sluice_node *node;
    sluice_loop *loop;
    sluice_region *region;
    sluice_session session;
    sluice_token token;
};

static void open_end(struct end *e) {
    sluice_error error;
    if (sluice_open(&e->node,
                    SLUICE_NODE(.name = "lib-busy", .device = "soft", .workers = SLUICE_NO_WORKERS,
                                .idle = mode, .rendezvous_bytes = above),
                    &error) != 0 ||
        sluice_loop_open(e->node, &e->loop, &error) != 0 ||
        sluice_region_open(e->node, NULL, bytes, SLUICE_MAY_READ, &e->region, &error) != 0)
        die("open", error.text);
}

static sluice_msg *message(struct end *e, uint64_t size) {
    sluice_msg *m;
    int status = sluice_alloc(e->node, size, &m);
    if (status != 0)
        die("sluice_alloc", sluice_strerror(status));
    return m;
}

static void fine(int status, const char *call) {
    if (status != 0)
        die(call, sluice_strerror(status));
}

static sluice_event next(struct end *e) {
    sluice_event event;
    while (sluice_poll(e->loop, &event, 1, SLUICE_OFF) != 1)
        continue;
    return event;
}

static void answer(struct end *e, int port_to) {
    sluice_listener listener;
    sluice_error error;
    open_end(e);
    if (sluice_listen(e->node, "127.0.0.1:0", SLUICE_LINK(.loop = e->loop, .credits = credits),
                      &listener, &error) != 0)
        die("listen", error.text);
    int port = sluice_listener_port(listener);
    must(write(port_to, &port, sizeof port) == sizeof port, "write");
    for (;;) {
        sluice_event event = next(e);
        if (event.type == SLUICE_UP) {
            sluice_token token;
            fine(sluice_region_token(e->region, 0, bytes, SLUICE_MAY_READ, &token), "token");
            fine(sluice_send_copy(event.session, &token, sizeof token, NULL), "send");
        } else if (event.type == SLUICE_MESSAGE) {
            fine(sluice_send(event.session, message(e, bytes), NULL), "send");
        } else if (event.type == SLUICE_REQUEST) {
            fine(sluice_reply(event.session, event.token, message(e, SMALL)), "reply");
        } else if (event.type == SLUICE_CLOSED) {
            break;
        }
    }
    sluice_close(e->node, 0);
}

static void round_of(void *with) {
    struct end *e = with;
    const sluice_send_options *tagged = SLUICE_SEND(.tag = 1);
    if (what == ONE_WAY)
        fine(sluice_send(e->session, message(e, bytes), NULL), "send");
    else if (what == REQUEST)
        fine(sluice_request(e->session, message(e, bytes), tagged), "request");
    else
        fine(sluice_get(e->session, e->region, 0, bytes, &e->token, 0, tagged), "get");
    int done = what == ONE_WAY ? SLUICE_MESSAGE : what == REQUEST ? SLUICE_REPLY : SLUICE_DONE;
    sluice_event event = next(e);
    if (event.type != done || event.status != 0)
        die("round", sluice_event_name(event.type));
}

static void run_library(void) {
    int pair[2], port;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    struct end e = {0};
    answerer = fork();
    must(answerer >= 0, "fork");
    if (answerer == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer(&e, pair[1]);
        _exit(0);
    }
    must(read(pair[0], &port, sizeof port) == sizeof port, "the other end");
    char address[40];
    sluice_error error;
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    open_end(&e);
    if (sluice_dial(e.node, address, SLUICE_LINK(.loop = e.loop, .credits = credits), &e.session,
                    &error) != 0)
        die("dial", error.text);
    sluice_event event;
    while ((event = next(&e)).type != SLUICE_MESSAGE)
        if (event.type != SLUICE_UP)
            die("dial", sluice_reason_text(event.reason));
    memcpy(&e.token, sluice_data(event.msg), sizeof e.token);
    measure(round_of, &e);
    sluice_close(e.node, 1000000000);
}

/* ---- options ------------------------------------------------------------------------------------------------- */

static int usage(void) {
    fprintf(stderr, "usage: lib-busy [--plain] [--load N] [--mode block|adaptive|spin]"
                    " [--above BYTES] [--credits N] [--json] one-way|request|get BYTES SECONDS\n");
    return 2;
}

/* The value of a word in a list, or -1. */
static int word(const char *const list[], const char *w) {
    for (int i = 0; list[i]; i++)
        if (strcmp(list[i], w) == 0)
            return i;
    return -1;
}

int main(int argc, char **argv) {
    static const char *const modes[] = {"default", "adaptive", "spin", "block", NULL};
    static const char *const whats[] = {"one-way", "request", "get", NULL};
    int at = 1;
    for (; at < argc && argv[at][0] == '-'; at++) {
        if (strcmp(argv[at], "--plain") == 0)
            plain = true;
        else if (strcmp(argv[at], "--json") == 0)
            json = true;
        else if (strcmp(argv[at], "--load") == 0 && at + 1 < argc)
            loads = (unsigned)strtoul(argv[++at], NULL, 0);
        else if (strcmp(argv[at], "--above") == 0 && at + 1 < argc)
            above = strtoull(argv[++at], NULL, 0);
        else if (strcmp(argv[at], "--credits") == 0 && at + 1 < argc)
            credits = (uint32_t)strtoul(argv[++at], NULL, 0);
        else if (strcmp(argv[at], "--mode") == 0 && at + 1 < argc && word(modes, argv[at + 1]) > 0)
            mode = (uint32_t)word(modes, argv[++at]);
        else
            return usage();
    }
    if (argc != at + 3 || word(whats, argv[at]) < 0 || loads > LOAD_MAX)
        return usage();
    what = (enum what)word(whats, argv[at]);
    bytes = strtoull(argv[at + 1], NULL, 0);
    seconds = strtod(argv[at + 2], NULL);
    if (bytes == 0 || bytes > 64u << 20 || seconds <= 0)
        return usage();
    make_load();
    if (plain)
        run_plain();
    else
        run_library();
    waitpid(answerer, NULL, 0);
    return 0;
}
