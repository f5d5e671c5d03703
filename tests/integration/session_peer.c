/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * session_peer - the other process of the session tests.
 *
 *   session_peer listen|dial:PORT [handlers] [ask] [ACTION] [KEY=VALUE...]
 *
 * Actions: idle   nothing; messages are counted and thrown away
 *          echo   every message goes back
 *          sink   the i-th message of a session must be of pattern i and of the mixed sizes
 *          flood  sends messages of the mixed sizes until the end, and checks as sink does
 * Keys:    window, credits, eager, max, timeout_ms, keepalive_ms, code (refuses every request with it)
 *
 * Says on standard output: "port N", "up N", "asked ADDRESS", "closed ...". Commands on standard
 * input: "hangup GRACE_MS", "count", "accept", "quit"; its end means quit.
 *
 * One thread beside the library's; `flow` is its only state.
 */
#include "support/side.h"

#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>

enum action { IDLE, ECHO, SINK, FLOOD };
static const char *const actions[] = {"idle", "echo", "sink", "flood"};

struct pending { /* echoes that met a full window */
    sluice_msg *msg;
    struct pending *next;
};

static struct {
    struct side side;
    enum action action;
    long code; /* -1: accepts */
    sluice_session session;
    bool up, full;
    uint64_t received, bytes;
    uint64_t accepted, outcomes, succeeded, unknown, writables, eagains;
    uint8_t *seen; /* by tag */
    size_t seen_size;
    uint64_t last_succeeded; /* of those that fit a frame */
    uint32_t frame;
    struct pending *head, **tail;
    sluice_session asked;
} flow = {.code = -1, .tail = &flow.head};

static void say(const char *format, ...) {
    va_list list;
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
    fflush(stdout);
}

static bool sent(int status) {
    if (status == 0) {
        flow.accepted++;
        return true;
    }
    if (status == SLUICE_EAGAIN) {
        flow.eagains += !flow.full;
        flow.full = true;
    }
    must(status == SLUICE_EAGAIN || status == SLUICE_ECLOSED);
    return false;
}

static void flood(void) {
    while (flow.action == FLOOD && flow.up && !flow.full) {
        uint64_t i = flow.accepted;
        sluice_msg *msg;
        int status = sluice_alloc(flow.side.node, it_mixed(i), &msg);
        must(status == 0);
        it_fill(msg, i);
        status = sluice_send(flow.session, msg, SLUICE_SEND(.tag = i + 1));
        if (!sent(status)) {
            sluice_free(msg);
            if (status == SLUICE_ECLOSED)
                break;
        }
    }
}

static void echo(void) {
    while (flow.head && flow.up && !flow.full) {
        struct pending *p = flow.head;
        int status = sluice_send(flow.session, p->msg, SLUICE_SEND(.tag = flow.accepted + 1));
        if (!sent(status)) {
            if (status == SLUICE_EAGAIN)
                break;
            sluice_free(p->msg);
        }
        flow.head = p->next;
        if (!flow.head)
            flow.tail = &flow.head;
        free(p);
    }
}

static void drop_pending(void) {
    while (flow.head) {
        struct pending *p = flow.head;
        flow.head = p->next;
        sluice_free(p->msg);
        free(p);
    }
    flow.tail = &flow.head;
}

static void on_message(struct note *note) {
    flow.bytes += sluice_size(note->msg);
    if (flow.action == SINK || flow.action == FLOOD)
        must(it_matches(note->msg, it_mixed(flow.received), flow.received));
    flow.received++;
    if (flow.action != ECHO)
        return;
    struct pending *p = malloc(sizeof *p);
    *p = (struct pending){.msg = note->msg};
    note->msg = NULL;
    *flow.tail = p;
    flow.tail = &p->next;
}

static void on_closed(const struct note *note) {
    must(note->event.session.id == flow.session.id || !flow.up);
    say("closed reason=%d status=%d vendor=%u code=%u received=%llu bytes=%llu accepted=%llu "
        "outcomes=%llu succeeded=%llu unknown=%llu eagains=%llu writables=%llu text=%s",
        note->event.reason, note->event.status, note->event.vendor, note->info.close_code,
        (unsigned long long)flow.received, (unsigned long long)flow.bytes,
        (unsigned long long)flow.accepted, (unsigned long long)flow.outcomes,
        (unsigned long long)flow.succeeded, (unsigned long long)flow.unknown,
        (unsigned long long)flow.eagains, (unsigned long long)flow.writables,
        note->info.close_text);
    flow.up = flow.full = false;
    drop_pending();
}

/*
 * Each tag once; those that fit a frame and were sent, in their order. What is larger ends when the peer has
 * it, and at the end others may come before them.
 */
static void on_outcome(const sluice_event *event) {
    must_data(event->tag >= 1 && event->tag <= flow.accepted);
    if (event->tag >= flow.seen_size) {
        size_t size = 2 * event->tag + 1024;
        flow.seen = realloc(flow.seen, size);
        must(flow.seen);
        memset(flow.seen + flow.seen_size, 0, size - flow.seen_size);
        flow.seen_size = size;
    }
    must_data(!flow.seen[event->tag]);
    flow.seen[event->tag] = 1;
    flow.outcomes++;
    flow.unknown += event->status == SLUICE_EUNKNOWN;
    if (event->status != 0) {
        if (event->status != SLUICE_EUNKNOWN && event->status != SLUICE_ECLOSED)
            fprintf(stderr, "outcome %d of message %llu\n", event->status,
                    (unsigned long long)event->tag);
        must(event->status == SLUICE_EUNKNOWN || event->status == SLUICE_ECLOSED);
        return;
    }
    flow.succeeded++;
    if (event->bytes > flow.frame)
        return;
    must_data(event->tag > flow.last_succeeded);
    flow.last_succeeded = event->tag;
}

static void on_note(struct note *note) {
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_UP:
        flow.session = note->event.session;
        flow.frame = note->info.eager_bytes; /* by now it may be gone again */
        flow.up = true;
        flow.full = false;
        flow.received = flow.bytes = flow.accepted = flow.outcomes = flow.succeeded = 0;
        flow.unknown = flow.eagains = flow.writables = flow.last_succeeded = 0;
        if (flow.seen)
            memset(flow.seen, 0, flow.seen_size);
        say("up %llu", (unsigned long long)note->event.session.id);
        break;
    case SLUICE_CLOSED:
        on_closed(note);
        break;
    case SLUICE_MESSAGE:
        on_message(note);
        break;
    case SLUICE_SENT:
        on_outcome(&note->event);
        break;
    case SLUICE_WRITABLE:
        must(flow.full);
        flow.full = false;
        flow.writables++;
        break;
    case SLUICE_CONNECT:
        flow.asked = note->event.session;
        say("asked %s", note->peer);
        if (flow.code >= 0)
            must(sluice_refuse(flow.asked, (uint16_t)flow.code, "not today") == 0);
        break;
    case SLUICE_WAKE:
        break;
    default:
        must(!"an event of this kind");
    }
    note_free(note);
    echo();
    flood();
}

/* False: the end. */
static bool on_command(char *line) {
    if (strncmp(line, "hangup ", 7) == 0) {
        sluice_hangup(flow.session, strtoull(line + 7, NULL, 10) * MS);
    } else if (strcmp(line, "count") == 0) {
        say("count received=%llu accepted=%llu", (unsigned long long)flow.received,
            (unsigned long long)flow.accepted);
    } else if (strcmp(line, "accept") == 0) {
        say("accepted status=%d", sluice_accept(flow.asked, NULL));
    } else {
        must(strcmp(line, "quit") == 0);
        return false;
    }
    return true;
}

static bool read_commands(void) {
    static char buffer[512];
    static size_t held;
    ssize_t n = read(0, buffer + held, sizeof buffer - held);
    if (n <= 0)
        return false;
    held += (size_t)n;
    for (char *end; (end = memchr(buffer, '\n', held)) != NULL;) {
        *end = 0;
        bool more = on_command(buffer);
        held -= (size_t)(end + 1 - buffer);
        memmove(buffer, end + 1, held);
        if (!more)
            return false;
    }
    return true;
}

static uint64_t value_of(char **words, const char *key, uint64_t otherwise) {
    size_t n = strlen(key);
    for (; *words; words++)
        if (strncmp(*words, key, n) == 0 && (*words)[n] == '=')
            return strtoull(*words + n + 1, NULL, 10);
    return otherwise;
}

static bool has(char **words, const char *word) {
    for (; *words; words++)
        if (strcmp(*words, word) == 0)
            return true;
    return false;
}

int main(int argc, char **argv) {
    must_end_process = true;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind, stopped or not */
    signal(SIGPIPE, SIG_IGN);
    must(argc >= 2);
    for (unsigned i = 0; i < sizeof actions / sizeof actions[0]; i++)
        if (has(argv, actions[i]))
            flow.action = (enum action)i;
    uint64_t code = value_of(argv, "code", UINT64_MAX);
    flow.code = code == UINT64_MAX ? -1 : (long)code;
    side_open(&flow.side, has(argv, "handlers"),
              SLUICE_NODE(.eager_bytes = (uint32_t)value_of(argv, "eager", 0),
                          .message_bytes_max = value_of(argv, "max", 0)));
    sluice_link_options link = {
        .flags = has(argv, "ask") || flow.code >= 0 ? SLUICE_ASK : 0,
        .window_messages = (uint32_t)value_of(argv, "window", 0),
        .credits = (uint32_t)value_of(argv, "credits", 0),
        .timeout_ns = value_of(argv, "timeout_ms", 0) * MS,
        .keepalive_ns = value_of(argv, "keepalive_ms", 0) * MS,
    };
    if (strcmp(argv[1], "listen") == 0)
        say("port %d", side_listen(&flow.side, &link, NULL));
    else
        flow.session = side_dial(&flow.side, atoi(strchr(argv[1], ':') + 1), &link);
    for (bool run = true; run;) {
        struct note note;
        while (side_take(&flow.side, &note))
            on_note(&note);
        struct pollfd fds[2] = {{.fd = side_fd(&flow.side), .events = POLLIN},
                                {.fd = 0, .events = POLLIN}};
        must(poll(fds, 2, -1) >= 0 || errno == EINTR);
        if (fds[1].revents)
            run = read_commands();
    }
    drop_pending();
    free(flow.seen);
    side_close(&flow.side, 0);
    return 0;
}
