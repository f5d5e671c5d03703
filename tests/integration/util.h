/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * util.h - what the integration tests and their peer program share: a side (node, and a loop or
 * worker handlers behind the same calls), events that can be kept, patterns, and other processes
 * with a line-based conversation. Public interface only.
 *
 * Waiting never sleeps for a fixed time: it waits for events, up to LIMIT_NS.
 */
#ifndef INTEGRATION_UTIL_H
#define INTEGRATION_UTIL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sluice/memory.h>
#include <sluice/sluice.h>

#include "soft/fault/ctl.h"
#include "support/pattern.h"
#include "support/verdict.h"

#define IT_UNUSED __attribute__((unused))
#define LIMIT_NS 60000000000ull
#define MS 1000000ull

/* Set by programs that are not tests; one for all files of a program. */
bool it_no_cmocka __attribute__((weak));

#define must(expr)                                                                                 \
    do {                                                                                           \
        if (!(expr))                                                                               \
            it_fail(__FILE__, __LINE__, #expr);                                                    \
    } while (0)

static void it_fail(const char *file, int line, const char *what) {
    if (it_no_cmocka) {
        fprintf(stderr, "%s:%d: in pid %d: %s (errno %d)\n", file, line, (int)getpid(), what,
                errno);
        fflush(NULL);
        _exit(verdict_status(1));
    }
    print_error("%s (errno %d)\n", what, errno);
    _fail(file, line);
}

/* ---- patterns ----------------------------------------------------------------------------------- */

static inline uint8_t it_byte(size_t i, uint64_t seed) {
    return pattern_byte(i, seed);
}

/* A part of the pattern, in memory of this thread's own. */
#define IT_PART ((size_t)16384)

IT_UNUSED static const uint8_t *it_pattern(size_t from, size_t bytes, uint64_t seed) {
    static __thread uint8_t part[IT_PART];
    pattern_fill(part, from, bytes, seed);
    return part;
}

IT_UNUSED static void it_fill(sluice_msg *msg, uint64_t seed) {
    uint8_t *p = sluice_data(msg);
    for (size_t i = 0, n, bytes = sluice_size(msg); i < bytes; i += n) {
        n = bytes - i < IT_PART ? bytes - i : IT_PART;
        memcpy(p + i, it_pattern(i, n, seed), n);
    }
}

IT_UNUSED static bool it_matches(const sluice_msg *msg, size_t bytes, uint64_t seed) {
    const uint8_t *p = sluice_data(msg);
    if (sluice_size(msg) != bytes) {
        verdict_wrong_data("message %llu has %zu bytes, not %zu", (unsigned long long)seed,
                           sluice_size(msg), bytes);
        return false;
    }
    for (size_t i = 0; i < bytes; i += IT_PART) {
        size_t n = bytes - i < IT_PART ? bytes - i : IT_PART;
        const uint8_t *part = it_pattern(i, n, seed);
        if (memcmp(p + i, part, n) == 0)
            continue;
        size_t at = 0;
        while (at < n - 1 && p[i + at] == part[at])
            at++;
        verdict_wrong_data("message %llu: byte %zu of %zu differs", (unsigned long long)seed,
                           i + at, bytes);
        return false;
    }
    return true;
}

/* Sizes of a mixed stream: empty, tiny, one frame, several frames. */
IT_UNUSED static size_t it_mixed(uint64_t i) {
    static const size_t sizes[] = {0, 1, 100, 20000, 13, 4000, 70000, 0, 512, 200000};
    return sizes[i % (sizeof sizes / sizeof sizes[0])];
}

/* ---- where the tests run: the software device, or what the environment names ---------------------- */

/* The device of the nodes. */
IT_UNUSED static const char *it_device(void) {
    const char *device = getenv("SLUICE_DEVICE");
    return device && *device ? device : "soft";
}

/* A long search by hand (SLUICE_TEST_LONG=1), not one for every change. */
IT_UNUSED static bool it_long(void) {
    const char *text = getenv("SLUICE_TEST_LONG");
    return text && *text && strcmp(text, "0") != 0;
}

IT_UNUSED static bool it_soft(void) {
    return strcmp(it_device(), "soft") == 0;
}

/* The software device, told to be like that one. */
IT_UNUSED static bool it_like(const char *wanted) {
    const char *profile = getenv("SLUICE_SOFT_PROFILE");
    return it_soft() && profile && strcmp(profile, wanted) == 0;
}

/*
 * The target of a request that was refused hears why. Soft-RoCE's does on some kernels; on iWARP the end of the
 * connection may be there first.
 */
IT_UNUSED static bool it_tells_target(void) {
    return it_soft() && !it_like("rxe") && !it_like("iwarp");
}

/*
 * Soft-iWARP, or the software device being like it: a connection is there when a listener is asked, because the
 * two have greeted; and there are no atomics and no windows.
 */
IT_UNUSED static bool it_iwarp(void) {
    return strncmp(it_device(), "siw", 3) == 0 || it_like("iwarp");
}

/* What was sent is acknowledged, up to the credits, whether the peer's process runs or not. */
IT_UNUSED static bool it_answers_alone(void) {
    return !it_soft() || it_iwarp();
}

/* All that a region can give on that device. */
IT_UNUSED static uint32_t it_rights(void) {
    return SLUICE_MAY_READ | SLUICE_MAY_WRITE | (it_iwarp() ? 0 : SLUICE_MAY_ATOMIC);
}

/* The address of that device, numeric. The software device has every address of the host. */
IT_UNUSED static const char *it_host(void) {
    const char *host = getenv("SLUICE_TEST_HOST");
    return host && *host ? host : "127.0.0.1";
}

/* A name of that address. */
IT_UNUSED static const char *it_name(void) {
    const char *name = getenv("SLUICE_TEST_NAME");
    return name && *name ? name : "localhost";
}

/* "HOST:PORT", valid until the next call. */
IT_UNUSED static const char *it_address(int port) {
    static __thread char address[80];
    snprintf(address, sizeof address, "%s:%d", it_host(), port);
    return address;
}

static bool it_rnr_provoked; /* a test brought about that messages find no receive posted */

/* Of this process, whose other end has no exported call (soft/fault/ctl_client.h); -1: it has none. */
IT_UNUSED static int it_control_socket(void) {
    FILE *names = fopen("/proc/self/net/unix", "re");
    char line[256];
    int found = -1;
    must(names);
    while (found < 0 && fgets(line, sizeof line, names)) {
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        struct ucred who = {0};
        socklen_t size = sizeof who;
        char *name = strstr(line, "@" SOFT_CTL_PREFIX);
        if (!name)
            continue;
        size_t length = strcspn(name, "\n");
        memcpy(sun.sun_path + 1, name + 1, length - 1);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        must(fd >= 0);
        if (connect(fd, (struct sockaddr *)&sun,
                    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0 &&
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == getpid())
            found = fd;
        else
            close(fd);
    }
    fclose(names);
    return found;
}

/* How often that happened in this process, as its software device says; 0 where there is none. */
IT_UNUSED static unsigned long long it_rnr(void) {
    static __thread char answer[SOFT_CTL_PACKET + 1];
    unsigned long long count = 0;
    int fd = it_control_socket();
    if (fd < 0)
        return 0;
    must(send(fd, "status", 6, MSG_NOSIGNAL) == 6);
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    must(poll(&ready, 1, 30000) == 1);
    ssize_t got = recv(fd, answer, sizeof answer - 1, 0); /* it is in the first packet */
    answer[got > 0 ? got : 0] = 0;
    const char *at = strstr(answer, "\nrnr ");
    must(at && sscanf(at, "\nrnr %llu\n", &count) == 1);
    close(fd);
    return count;
}

/* ---- a side ------------------------------------------------------------------------------------- */

struct note { /* an event with what it lent */
    sluice_event event;
    sluice_msg *msg; /* ours */
    char peer[64];
    sluice_session_info info; /* UP and CLOSED */
    struct note *next;
};

struct side {
    bool handlers; /* a worker calls; else the test polls the loop */
    sluice_node *node;
    sluice_loop *loop;
    struct side *partner; /* polled while we wait, if it has a loop */
    _Atomic unsigned
        listeners_lost; /* events of listeners: they are counted, and come where they like */
    pthread_mutex_t lock;
    struct note *head, **tail; /* handlers: what was delivered */
    int bell;                  /* eventfd, one count per note */
};

/* Of a listener whose device is gone: there is no session with that id. */
static bool is_of_listener(const sluice_event *event) {
    sluice_session_info info = {.size = sizeof info};
    if (event->type != SLUICE_CLOSED || sluice_session_get_info(event->session, &info) == 0)
        return false;
    must(event->reason == SLUICE_REASON_DEVICE_REMOVED && event->status == SLUICE_EDEVICE);
    return true;
}

static void side_copy(struct note *note, const sluice_event *event) {
    memset(note, 0, sizeof *note);
    note->event = *event;
    if (event->type == SLUICE_MESSAGE || event->type == SLUICE_REQUEST ||
        event->type == SLUICE_REPLY) {
        note->msg = event->msg;
        sluice_keep(note->msg);
    } else if (event->type == SLUICE_CONNECT) {
        snprintf(note->peer, sizeof note->peer, "%s", event->peer->address);
    } else if (event->type == SLUICE_UP || event->type == SLUICE_CLOSED) {
        note->info.size = sizeof note->info;
        must(sluice_session_get_info(event->session, &note->info) == 0);
    }
}

IT_UNUSED static void side_handler(const sluice_event *event, void *arg) {
    struct side *side = arg;
    uint64_t one = 1;
    if (is_of_listener(event)) {
        atomic_fetch_add(&side->listeners_lost, 1);
        return;
    }
    struct note *note = malloc(sizeof *note);
    side_copy(note, event);
    pthread_mutex_lock(&side->lock);
    *side->tail = note;
    side->tail = &note->next;
    pthread_mutex_unlock(&side->lock);
    (void)!write(side->bell, &one, sizeof one);
}

IT_UNUSED static void side_open(struct side *side, bool handlers,
                                const sluice_node_options *given) {
    static const int no_pinning[] = {-1, -1, -1, -1};
    sluice_node_options o = given ? *given : (sluice_node_options){0};
    sluice_error e = {0};
    memset(side, 0, sizeof *side);
    side->handlers = handlers;
    side->tail = &side->head;
    side->bell = -1;
    pthread_mutex_init(&side->lock, NULL);
    o.size = sizeof o;
    o.device = it_device();
    o.workers = handlers ? 1 : SLUICE_NO_WORKERS;
    o.worker_cpus = handlers ? no_pinning : NULL;
    if (sluice_open(&side->node, &o, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_open");
    }
    if (handlers) {
        side->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
        must(side->bell >= 0);
    } else {
        must(sluice_loop_open(side->node, &side->loop, &e) == 0);
    }
}

/* Options for sessions of this side. */
IT_UNUSED static sluice_link_options side_link(struct side *side,
                                               const sluice_link_options *given) {
    sluice_link_options o = given ? *given : (sluice_link_options){0};
    o.size = sizeof o;
    if (side->handlers) {
        o.handler = side_handler;
        o.handler_arg = side;
    } else {
        o.loop = side->loop;
    }
    return o;
}

static bool side_take(struct side *side, struct note *out) {
    uint64_t count;
    if (!side->handlers) {
        sluice_event event;
        int n;
        while ((n = sluice_poll(side->loop, &event, 1, 0)) == 1 && is_of_listener(&event))
            atomic_fetch_add(&side->listeners_lost, 1);
        must(n >= 0);
        if (n == 1)
            side_copy(out, &event);
        return n == 1;
    }
    if (read(side->bell, &count, sizeof count) != sizeof count)
        return false;
    pthread_mutex_lock(&side->lock);
    struct note *note = side->head;
    side->head = note->next;
    if (!side->head)
        side->tail = &side->head;
    pthread_mutex_unlock(&side->lock);
    *out = *note;
    free(note);
    return true;
}

static int side_fd(struct side *side) {
    return side->handlers ? side->bell : sluice_fd(side->loop);
}

IT_UNUSED static void side_close(struct side *side, uint64_t grace_ns) {
    struct note note;
    if (!it_rnr_provoked)
        must(it_rnr() == 0);
    sluice_close(side->node, grace_ns);
    while (side->handlers && side_take(side, &note)) /* messages died with their node */
        ;
    if (side->bell >= 0)
        close(side->bell);
    pthread_mutex_destroy(&side->lock);
}

IT_UNUSED static void note_free(struct note *note) {
    sluice_free(note->msg);
    note->msg = NULL;
}

/*
 * The next event, sleeping on the descriptor meanwhile; false when limit_ns passed. A partner that
 * is polled by the same thread makes progress, and its events wait there.
 */
IT_UNUSED static bool side_next(struct side *side, struct note *out, uint64_t limit_ns) {
    uint64_t until = sluice_now() + limit_ns;
    for (;;) {
        if (side_take(side, out))
            return true;
        struct pollfd fds[2] = {{.fd = side_fd(side), .events = POLLIN}};
        nfds_t n = 1;
        if (side->partner && side->partner->loop) {
            must(sluice_poll(side->partner->loop, NULL, 0, 0) >= 0);
            fds[n++] = (struct pollfd){.fd = side_fd(side->partner), .events = POLLIN};
        }
        uint64_t now = sluice_now();
        if (now >= until)
            return false;
        /* Our loop may have been given something by the partner's turn, which does not show. */
        uint64_t ms = (until - now) / MS + 1;
        must(poll(fds, n, n == 2 ? 1 : (int)(ms > 60000 ? 60000 : ms)) >= 0 || errno == EINTR);
    }
}

IT_UNUSED static struct note side_expect(struct side *side, sluice_event_type type) {
    struct note note;
    if (!side_next(side, &note, LIMIT_NS)) {
        fprintf(stderr, "no event, expected %s\n", sluice_event_name(type));
        must(!"an event");
    }
    if (note.event.type != type) {
        fprintf(stderr, "%s (status %d, %s: %s), expected %s\n", sluice_event_name(note.event.type),
                note.event.status, sluice_reason_text(note.event.reason),
                note.event.type == SLUICE_CLOSED ? note.info.close_text : "",
                sluice_event_name(type));
        must(!"the right event");
    }
    return note;
}

/* CLOSED for this reason, and nothing else. */
IT_UNUSED static void side_expect_closed(struct side *side, sluice_reason reason) {
    struct note note = side_expect(side, SLUICE_CLOSED);
    if (note.event.reason != reason)
        fprintf(stderr, "closed: %s (%s), expected %s\n", sluice_reason_text(note.event.reason),
                note.info.close_text, sluice_reason_text((int)reason));
    must(note.event.reason == reason);
}

/*
 * No event, not in the loop's next turns either: what was put off by a turn would come before the second wake. Handlers
 * run on loops that nobody else can wake: there it is no event for a while that is long for any hand-over.
 */
IT_UNUSED static void side_expect_nothing(struct side *side) {
    struct note note;
    bool came = false;
    if (side->handlers)
        came = side_next(side, &note, 50 * MS);
    for (unsigned wakes = 0; !side->handlers && !came && wakes < 3; wakes++) {
        sluice_wake(side->loop);
        must(side_next(side, &note, LIMIT_NS));
        came = note.event.type != SLUICE_WAKE;
    }
    if (came) {
        fprintf(stderr, "%s came unexpectedly\n", sluice_event_name(note.event.type));
        must(!"silence");
    }
}

/* So many listeners ended with the device, and no more. */
IT_UNUSED static void side_expect_listeners_lost(struct side *side, unsigned count) {
    uint64_t until = sluice_now() + LIMIT_NS;
    while (atomic_load(&side->listeners_lost) < count) {
        struct note note;
        must(sluice_now() < until);
        must(!side_next(side, &note, MS));
    }
    side_expect_nothing(side);
    must(atomic_load(&side->listeners_lost) == count);
}

IT_UNUSED static int side_listen(struct side *side, const sluice_link_options *given,
                                 sluice_listener *out) {
    sluice_link_options o = side_link(side, given);
    sluice_listener listener;
    sluice_error e = {0};
    if (sluice_listen(side->node, it_address(0), &o, &listener, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_listen");
    }
    if (out)
        *out = listener;
    return sluice_listener_port(listener);
}

IT_UNUSED static sluice_session side_dial(struct side *side, int port,
                                          const sluice_link_options *given) {
    sluice_link_options o = side_link(side, given);
    sluice_session session = {0};
    sluice_error e = {0};
    if (sluice_dial(side->node, it_address(port), &o, &session, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_dial");
    }
    return session;
}

/* Sends a message of that pattern; the status of sluice_send(). */
IT_UNUSED static int side_send(struct side *side, sluice_session session, size_t bytes,
                               uint64_t seed, uint64_t tag) {
    sluice_msg *msg;
    must(sluice_alloc(side->node, bytes, &msg) == 0);
    it_fill(msg, seed);
    int status = sluice_send(session, msg, SLUICE_SEND(.tag = tag));
    if (status != 0)
        sluice_free(msg);
    return status;
}

/* Two sides of one process, connected. */
struct couple {
    struct side a, b; /* a listens, b dials */
    sluice_session at_a, at_b;
    sluice_listener listener;
    int port;
};

IT_UNUSED static void couple_open(struct couple *c, bool handlers,
                                  const sluice_node_options *node) {
    memset(c, 0, sizeof *c);
    side_open(&c->a, handlers, node);
    side_open(&c->b, handlers, node);
    c->a.partner = &c->b;
    c->b.partner = &c->a;
}

IT_UNUSED static void couple_connect(struct couple *c, const sluice_link_options *link) {
    if (c->port == 0)
        c->port = side_listen(&c->a, link, &c->listener);
    c->at_b = side_dial(&c->b, c->port, link);
    must(side_expect(&c->b, SLUICE_UP).event.session.id == c->at_b.id);
    c->at_a = side_expect(&c->a, SLUICE_UP).event.session;
}

IT_UNUSED static void couple_close(struct couple *c) {
    side_close(&c->b, 0);
    side_close(&c->a, 0);
}

/* ---- other processes ------------------------------------------------------------------------------ */

struct peer {
    pid_t pid;
    int in, out; /* its standard input and output */
    char line[512];
    char buffer[1024];
    size_t held;
};

extern char **environ;

/* Starts a program of the build; words end with NULL. */
IT_UNUSED static void peer_start(struct peer *peer, const char *program,
                                 const char *const words[]) {
    const char *bin = getenv("SLUICE_BIN_DIR");
    char path[512];
    char *argv[16] = {path};
    int in[2], out[2];
    must(bin);
    snprintf(path, sizeof path, "%s%s/%s", bin ? bin : ".",
             strncmp(program, "sluice-", 7) == 0 ? "" : "/../tests", program);
    for (unsigned i = 0; words[i]; i++) {
        must(i < 14);
        argv[i + 1] = (char *)(uintptr_t)words[i];
    }
    memset(peer, 0, sizeof *peer);
    must(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    must(posix_spawn(&peer->pid, path, &actions, NULL, argv, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    peer->in = in[1];
    peer->out = out[0];
}
#define peer_run(peer, program, ...)                                                               \
    peer_start(peer, program, (const char *const[]){__VA_ARGS__, NULL})

/* It said something, or ended. */
IT_UNUSED static bool peer_ready(struct peer *peer) {
    struct pollfd p = {.fd = peer->out, .events = POLLIN};
    must(poll(&p, 1, 0) >= 0);
    return p.revents != 0 || memchr(peer->buffer, '\n', peer->held) != NULL;
}

/*
 * The next line it prints, without its end. The kernel's connection manager repeats a message that was lost for about
 * LIMIT_NS, and one is lost now and then where an emulated machine gets no processor.
 */
IT_UNUSED static const char *peer_line(struct peer *peer) {
    uint64_t until = sluice_now() + 4 * LIMIT_NS;
    for (;;) {
        char *end = memchr(peer->buffer, '\n', peer->held);
        if (end) {
            size_t n = (size_t)(end - peer->buffer);
            must(n < sizeof peer->line);
            memcpy(peer->line, peer->buffer, n);
            peer->line[n] = 0;
            peer->held -= n + 1;
            memmove(peer->buffer, end + 1, peer->held);
            return peer->line;
        }
        struct pollfd p = {.fd = peer->out, .events = POLLIN};
        must(poll(&p, 1, 1000) >= 0 || errno == EINTR);
        if (p.revents) {
            ssize_t n =
                read(peer->out, peer->buffer + peer->held, sizeof peer->buffer - peer->held);
            must(n > 0); /* it ended without a word */
            peer->held += (size_t)n;
        }
        must(sluice_now() < until);
    }
}

/* Its next line begins with these words; returns the rest. */
IT_UNUSED static const char *peer_expect(struct peer *peer, const char *words) {
    const char *line = peer_line(peer);
    if (strncmp(line, words, strlen(words)) != 0)
        fprintf(stderr, "the peer said \"%s\", expected \"%s\"\n", line, words);
    must(strncmp(line, words, strlen(words)) == 0);
    return line + strlen(words);
}

/* The number behind "name=" in its last line. */
IT_UNUSED static long long peer_number(const struct peer *peer, const char *name) {
    size_t n = strlen(name);
    for (const char *at = peer->line; (at = strstr(at, name)) != NULL; at += n)
        if (at[n] == '=' && (at == peer->line || at[-1] == ' '))
            return atoll(at + n + 1);
    fprintf(stderr, "no %s in \"%s\"\n", name, peer->line);
    must(!"a number in the peer's line");
    return 0;
}

IT_UNUSED static void peer_tell(struct peer *peer, const char *command) {
    char line[256];
    int n = snprintf(line, sizeof line, "%s\n", command);
    must(write(peer->in, line, (size_t)n) == n);
}

/* Waits for its end; the status as waitpid() gives it. */
IT_UNUSED static int peer_join(struct peer *peer) {
    int status;
    close(peer->in); /* it ends when nobody talks to it any more */
    must(waitpid(peer->pid, &status, 0) == peer->pid);
    close(peer->out);
    return status;
}

IT_UNUSED static void peer_quit(struct peer *peer) {
    peer_tell(peer, "quit");
    int status = peer_join(peer);
    must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

IT_UNUSED static void peer_kill(struct peer *peer) {
    kill(peer->pid, SIGKILL);
    int status = peer_join(peer);
    must(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- counts --------------------------------------------------------------------------------------- */

IT_UNUSED static unsigned it_entries(const char *path) {
    DIR *dir = opendir(path);
    must(dir);
    unsigned n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

IT_UNUSED static size_t it_rss(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    size_t total = 0, resident = 0;
    must(file && fscanf(file, "%zu %zu", &total, &resident) == 2);
    fclose(file);
    return resident * 4096;
}

/* Every test of a list in both modes. */
#define BOTH_MODES(fn)                                                                             \
    {#fn "/polled", fn, NULL, NULL, (void *)(uintptr_t)0}, {                                       \
#fn "/handlers", fn, NULL, NULL, (void *)(uintptr_t)1                                      \
    }
#define handlers_of(state) (*(state) != NULL)

#endif
