/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib_many.c - many sessions of the library on one worker: what they carry together, what one that does
 * nothing costs in memory, and what all of them cost in CPU time while nothing happens.
 *
 * One process forks the other; each has one worker. The asking one opens the sessions, then keeps DEPTH
 * messages of 64 bytes on their way to and fro, each on the next session in turn, or with --each DEPTH messages
 * on every session; then it lets both processes rest and takes the CPU time each of them used. With --probe a third process has a
 * session of its own, on which it asks once a millisecond meanwhile: how long that takes beside the others.
 *
 *   lib-many [--json] [--sessions N] [--depth N] [--each] [--probe] [--seconds S] [--idle S] [--credits N] [--eager BYTES]
 *            [--mode spin|adaptive|block] [--device NAME]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sluice/sluice.h>

#define SESSIONS_MAX 20000u
#define BYTES 64
#define LIMIT_NS 60000000000ull

static bool json, each, probe;
static uint32_t sessions = 1000, depth = 128, credits, eager, mode = SLUICE_IDLE_ADAPTIVE;
static double seconds = 1, idle_seconds;
static const char *device = "soft";

struct usage { /* of one process */
    uint64_t cpu_ns, rss_bytes, registered_bytes;
};

static void die(const char *what, const sluice_error *e) {
    fprintf(stderr, "lib-many: %s%s%s\n", what, e ? ": " : "", e ? e->text : "");
    exit(1);
}

static sluice_node *open_node(uint32_t idle, uint32_t workers) {
    sluice_node *n;
    sluice_error e;
    if (sluice_open(&n,
                    SLUICE_NODE(.name = "lib-many", .device = device, .idle = idle,
                                .workers = workers, .eager_bytes = eager,
                                .sessions_max = sessions + 16, .requests_max = sessions + 16,
                                .memory_bytes_max = 16ull << 30),
                    &e) != 0)
        die("open", &e);
    return n;
}

static const sluice_link_options *link_options(sluice_handler handler) {
    static sluice_link_options o;
    o = (sluice_link_options){.size = sizeof o,
                              .handler = handler,
                              .credits = credits,
                              .timeout_ns = LIMIT_NS,
                              .window_messages = 2 * depth + 64};
    return &o;
}

static struct usage take_usage(sluice_node *n) {
    struct rusage used;
    sluice_node_info info = {.size = sizeof info};
    unsigned long pages = 0;
    getrusage(RUSAGE_SELF, &used);
    FILE *statm = fopen("/proc/self/statm", "re");
    if (!statm || fscanf(statm, "%*u %lu", &pages) != 1 || sluice_node_get_info(n, &info) != 0)
        die("what this process uses cannot be read", NULL);
    fclose(statm);
    return (struct usage){
        .cpu_ns = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000u +
                  (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000u,
        .rss_bytes = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE),
        .registered_bytes = info.memory_bytes,
    };
}

static void rest(double s) {
    struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&ts, NULL);
}

/* ---- the answering process ------------------------------------------------------------------- */

static void echo(const sluice_event *event, void *arg) {
    (void)arg;
    int status = event->type == SLUICE_MESSAGE ? sluice_send(event->session, event->msg, NULL) : 0;
    if (status != 0 && status != SLUICE_ECLOSED)
        die(sluice_strerror(status), NULL);
}

static void answer(int sock) {
    sluice_node *n = open_node(mode, 1);
    sluice_listener l;
    sluice_error e;
    char command;
    if (sluice_listen(n, "127.0.0.1:0", link_options(echo), &l, &e) != 0)
        die("listen", &e);
    int port = sluice_listener_port(l);
    if (write(sock, &port, sizeof port) != sizeof port)
        exit(1);
    while (read(sock, &command, 1) > 0) {
        struct usage usage = take_usage(n);
        if (write(sock, &usage, sizeof usage) != sizeof usage)
            break;
    }
    sluice_close(n, 0);
}

/* ---- the one that asks once a millisecond ---------------------------------------------------- */

struct latency {
    double p50_us, p99_us;
};

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void expect(sluice_loop *loop, sluice_event_type type) {
    sluice_event event;
    uint64_t limit = sluice_now() + LIMIT_NS;
    int got;
    while ((got = sluice_poll(loop, &event, 1, LIMIT_NS)) == 0 || event.type != type)
        if (got < 0 || (got == 1 && event.type == SLUICE_CLOSED) || sluice_now() > limit)
            die("the third process's session does not answer", NULL);
}

static void ask_each_millisecond(int sock, sluice_loop *loop, sluice_session session) {
    static uint64_t took[60000];
    uint32_t count = 0;
    char word;
    if (read(sock, &word, 1) != 1)
        exit(1);
    for (uint64_t due = sluice_now(); recv(sock, &word, 1, MSG_DONTWAIT) < 0; due += 1000000) {
        while (sluice_now() < due && mode == SLUICE_IDLE_SPIN)
            ;
        if (sluice_now() < due)
            rest((double)(due - sluice_now()) / 1e9);
        uint64_t start = sluice_now();
        if (sluice_send_copy(session, "ask", 3, NULL) != 0)
            die("the third process cannot send", NULL);
        expect(loop, SLUICE_MESSAGE);
        took[count++ % 60000] = sluice_now() - start;
        due = due + 1000000 < sluice_now() ? sluice_now() : due;
    }
    count = count < 60000 ? count : 60000;
    qsort(took, count, sizeof *took, by_value);
    struct latency latency = {count > 0 ? (double)took[count / 2] / 1e3 : -1,
                              count > 0 ? (double)took[count - 1 - count / 100] / 1e3 : -1};
    if (write(sock, &latency, sizeof latency) != sizeof latency)
        exit(1);
}

static void ask_beside(int sock) {
    char to[32];
    int port;
    sluice_error e;
    sluice_loop *loop;
    sluice_session session;
    sluice_node *n = open_node(mode, SLUICE_NO_WORKERS);
    if (read(sock, &port, sizeof port) != sizeof port)
        exit(1);
    snprintf(to, sizeof to, "127.0.0.1:%d", port);
    if (sluice_loop_open(n, &loop, &e) != 0)
        die("loop", &e);
    sluice_link_options o = *link_options(NULL);
    o.loop = loop;
    if (sluice_dial(n, to, &o, &session, &e) != 0)
        die("dial", &e);
    expect(loop, SLUICE_UP);
    ask_each_millisecond(sock, loop, session);
    sluice_close(n, 0);
}

/* ---- the asking process ---------------------------------------------------------------------- */

static sluice_session all[SESSIONS_MAX];
static _Atomic uint32_t up, closed, reason, vendor; /* of the first that closed */
static char why[sizeof((sluice_session_info *)0)->close_text];
static _Atomic uint64_t echoes, sent;
static _Atomic bool stop;

/* came: the session that just had one back. */
static void send_next(const sluice_session *came) {
    static const char text[BYTES] = "a message of 64 bytes";
    uint64_t i = atomic_fetch_add_explicit(&sent, 1, memory_order_relaxed);
    int status =
        sluice_send_copy(came && each ? *came : all[i % sessions], text, sizeof text, NULL);
    if (status != 0)
        die(sluice_strerror(status), NULL);
}

static void on_event(const sluice_event *event, void *arg) {
    (void)arg;
    up += event->type == SLUICE_UP;
    if (event->type == SLUICE_CLOSED && closed == 0) {
        sluice_session_info info = {.size = sizeof info};
        reason = event->reason;
        vendor = event->vendor;
        if (sluice_session_get_info(event->session, &info) == 0)
            memcpy(why, info.close_text, sizeof why);
    }
    closed += event->type == SLUICE_CLOSED;
    if (event->type != SLUICE_MESSAGE)
        return;
    atomic_fetch_add_explicit(&echoes, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&stop, memory_order_relaxed))
        send_next(&event->session);
}

static struct usage theirs(int sock) {
    struct usage usage;
    if (write(sock, "u", 1) != 1 || read(sock, &usage, sizeof usage) != sizeof usage)
        exit(1); /* the other process said why */
    return usage;
}

/* A thousand sockets are more than some limits: then the reason is what the device says. */
static void die_closed(const char *what) {
    if (closed > 0)
        fprintf(stderr, "lib-many: a session closed: %s (%u%s)\n",
                *why ? why : sluice_reason_text((int)reason), vendor,
                vendor == EMFILE ? ", too many open files: ulimit -n" : "");
    die(what, NULL);
}

static void open_sessions(sluice_node *n, const char *to) {
    sluice_error e;
    uint64_t limit = sluice_now() + LIMIT_NS;
    for (uint32_t i = 0; i < sessions; i++)
        if (sluice_dial(n, to, link_options(on_event), &all[i], &e) != 0)
            die("dial", &e);
    while (up < sessions && closed == 0 && sluice_now() < limit)
        rest(0.001);
    if (up < sessions)
        die_closed("the sessions do not come up");
}

/* The third process is told to begin and to end, and says how long its messages took. */
static struct latency told(int prober, char word) {
    struct latency latency = {0};
    if (probe && write(prober, &word, 1) != 1)
        exit(1);
    if (probe && word == 'e' && read(prober, &latency, sizeof latency) != sizeof latency)
        exit(1);
    return latency;
}

static double rate(int prober, struct latency *latency) {
    for (uint32_t i = 0; i < (each ? depth * sessions : depth); i++)
        send_next(NULL);
    rest(seconds / 5);
    (void)told(prober, 'b');
    uint64_t before = echoes, start = sluice_now();
    rest(seconds);
    double per_s = (double)(echoes - before) * 1e9 / (double)(sluice_now() - start);
    *latency = told(prober, 'e');
    stop = true;
    uint64_t limit = sluice_now() + LIMIT_NS;
    while (echoes < sent && closed == 0 && sluice_now() < limit)
        rest(0.001);
    if (echoes < sent)
        die_closed("messages are missing");
    return per_s;
}

static double percent(uint64_t before_ns, uint64_t after_ns) {
    return (double)(after_ns - before_ns) / 1e7 / idle_seconds;
}

static void ask(int sock, int prober) {
    char to[32];
    int port;
    struct latency latency = {0};
    double idle_theirs = -1, idle_mine = -1;
    if (read(sock, &port, sizeof port) != sizeof port)
        exit(1);
    snprintf(to, sizeof to, "127.0.0.1:%d", port);
    if (probe && write(prober, &port, sizeof port) != sizeof port)
        exit(1);
    sluice_node *n = open_node(mode, 1);
    struct usage none = theirs(sock);
    open_sessions(n, to);
    struct usage some = theirs(sock);
    double per_s = seconds > 0 ? rate(prober, &latency) : -1;
    if (idle_seconds > 0) {
        rest(0.2); /* what adaptive spinning is left */
        struct usage mine = take_usage(n), other = theirs(sock);
        rest(idle_seconds);
        idle_mine = percent(mine.cpu_ns, take_usage(n).cpu_ns);
        idle_theirs = percent(other.cpu_ns, theirs(sock).cpu_ns);
    }
    double rss = ((double)some.rss_bytes - (double)none.rss_bytes) / sessions;
    double registered = ((double)some.registered_bytes - (double)none.registered_bytes) / sessions;
    if (json)
        printf("{\"sessions\":%u,\"echoes_per_s\":%.0f,\"rss_per_session\":%.0f,"
               "\"registered_per_session\":%.0f,\"idle_cpu_percent\":%.3f,"
               "\"idle_cpu_percent_dialer\":%.3f,\"probe_p50_us\":%.1f,\"probe_p99_us\":%.1f}\n",
               sessions, per_s, rss, registered, idle_theirs, idle_mine, latency.p50_us,
               latency.p99_us);
    else
        printf("%u sessions: %.0f messages to and fro a second, %.1f KiB resident and %.1f KiB"
               " registered a session, at rest %.3f %% of a CPU (dialer: %.3f %%)\n",
               sessions, per_s, rss / 1024, registered / 1024, idle_theirs, idle_mine);
    if (probe && !json)
        printf("one message a millisecond beside them: p50 %.1f us, p99 %.1f us\n", latency.p50_us,
               latency.p99_us);
    sluice_close(n, 0);
}

/* ---- the program ----------------------------------------------------------------------------- */

static int usage(void) {
    fprintf(stderr,
            "usage: lib-many [--json] [--sessions N] [--depth N] [--each] [--probe] [--seconds S]"
            " [--idle S]\n                [--credits N] [--eager BYTES]"
            " [--mode spin|adaptive|block] [--device NAME]\n");
    return 2;
}

static bool option(const char *name, const char *value) {
    static const char *const modes[] = {"", "adaptive", "spin", "block"};
    if (strcmp(name, "--sessions") == 0)
        return (sessions = (uint32_t)atoi(value)) >= 1 && sessions <= SESSIONS_MAX;
    if (strcmp(name, "--depth") == 0)
        return (depth = (uint32_t)atoi(value)) >= 1 && depth <= 4096;
    if (strcmp(name, "--seconds") == 0)
        return (seconds = atof(value)) >= 0 && seconds <= 60;
    if (strcmp(name, "--idle") == 0)
        return (idle_seconds = atof(value)) >= 0 && idle_seconds <= 600;
    if (strcmp(name, "--credits") == 0)
        return (credits = (uint32_t)atoi(value)) > 0;
    if (strcmp(name, "--eager") == 0)
        return (eager = (uint32_t)atoi(value)) > 0;
    if (strcmp(name, "--device") == 0)
        return (device = value) != NULL;
    if (strcmp(name, "--mode") == 0)
        for (mode = 1; mode < 4; mode++)
            if (strcmp(value, modes[mode]) == 0)
                return true;
    return false;
}

/* Another process, which does that with one end of a pair; returns the other end. */
static int start(void (*run)(int sock), int not_its) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair", NULL);
    pid_t child = fork();
    if (child < 0)
        die("fork", NULL);
    close(pair[child == 0 ? 0 : 1]);
    if (child != 0)
        return pair[0];
    if (not_its >= 0)
        close(not_its);
    run(pair[1]);
    exit(0);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--each") == 0)
            each = true;
        else if (strcmp(argv[i], "--probe") == 0)
            probe = true;
        else if (i + 1 >= argc || !option(argv[i], argv[i + 1]))
            return usage();
        else
            i++;
    }
    int answering = start(answer, -1), prober = probe ? start(ask_beside, answering) : -1;
    ask(answering, prober);
    close(answering);
    close(prober);
    int failed = 0, status;
    for (int i = 0; i < 1 + probe; i++)
        failed |= wait(&status) < 0 || status != 0;
    return failed;
}
