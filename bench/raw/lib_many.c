/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * lib_many.c - many sessions of the library on one worker: what they carry together, what one that does
 * nothing costs in memory, and what all of them cost in CPU time while nothing happens.
 *
 * One process forks the other; each has one worker. The asking one opens the sessions, then keeps DEPTH
 * messages of 64 bytes on their way to and fro, each on the next session in turn, or with --each DEPTH messages
 * on every session; then it lets both processes rest and takes the CPU time each of them used.
 *
 *   lib-many [--json] [--sessions N] [--depth N] [--each] [--seconds S] [--idle S] [--credits N] [--eager BYTES]
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

static bool json, each;
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

static sluice_node *open_node(uint32_t idle) {
    sluice_node *n;
    sluice_error e;
    if (sluice_open(&n,
                    SLUICE_NODE(.name = "lib-many", .device = device, .idle = idle,
                                .eager_bytes = eager, .sessions_max = sessions + 16,
                                .requests_max = sessions + 16, .memory_bytes_max = 16ull << 30),
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

/* ---- the answering process ------------------------------------------------------------------- */

static void echo(const sluice_event *event, void *arg) {
    (void)arg;
    int status = event->type == SLUICE_MESSAGE ? sluice_send(event->session, event->msg, NULL) : 0;
    if (status != 0 && status != SLUICE_ECLOSED)
        die(sluice_strerror(status), NULL);
}

static void answer(int sock) {
    sluice_node *n = open_node(mode);
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

static void rest(double s) {
    struct timespec ts = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&ts, NULL);
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

static double rate(void) {
    for (uint32_t i = 0; i < (each ? depth * sessions : depth); i++)
        send_next(NULL);
    rest(seconds / 5);
    uint64_t before = echoes, start = sluice_now();
    rest(seconds);
    double per_s = (double)(echoes - before) * 1e9 / (double)(sluice_now() - start);
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

static void ask(int sock) {
    char to[32];
    int port;
    double idle_theirs = -1, idle_mine = -1;
    if (read(sock, &port, sizeof port) != sizeof port)
        exit(1);
    snprintf(to, sizeof to, "127.0.0.1:%d", port);
    sluice_node *n = open_node(mode);
    struct usage none = theirs(sock);
    open_sessions(n, to);
    struct usage some = theirs(sock);
    double per_s = seconds > 0 ? rate() : -1;
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
               "\"idle_cpu_percent_dialer\":%.3f}\n",
               sessions, per_s, rss, registered, idle_theirs, idle_mine);
    else
        printf("%u sessions: %.0f messages to and fro a second, %.1f KiB resident and %.1f KiB"
               " registered a session, at rest %.3f %% of a CPU (dialer: %.3f %%)\n",
               sessions, per_s, rss / 1024, registered / 1024, idle_theirs, idle_mine);
    sluice_close(n, 0);
}

/* ---- the program ----------------------------------------------------------------------------- */

static int usage(void) {
    fprintf(stderr, "usage: lib-many [--json] [--sessions N] [--depth N] [--each] [--seconds S]"
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

int main(int argc, char **argv) {
    int pair[2];
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (strcmp(argv[i], "--each") == 0)
            each = true;
        else if (i + 1 >= argc || !option(argv[i], argv[i + 1]))
            return usage();
        else
            i++;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        die("socketpair", NULL);
    pid_t child = fork();
    if (child < 0)
        die("fork", NULL);
    close(pair[child == 0 ? 0 : 1]);
    if (child == 0) {
        answer(pair[1]);
        return 0;
    }
    ask(pair[0]);
    close(pair[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}
