/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * endpoint.c - the life of an endpoint: node, listener, session. Talking over the session is in
 * endpoint_talk.c.
 */
#define _GNU_SOURCE
#include "endpoint.h"
#include "core/techniques.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WAITING_NS UINT64_C(3000000000) /* a queued client is told "busy" after that */
#define ASLEEP_NS UINT64_C(20000000)    /* between looks for a signal */
#define WAITING_LOOKS 1023u             /* polls between two looks at the queue, less one */
#define HANGUP_NS UINT64_C(5000000000)  /* two repeats of a packet that was lost on RoCE */
#define CLOSE_NS UINT64_C(500000000)
#define QUIET_NS UINT64_C(30000000000)
#define LOOK_AT_DIAL_NS UINT64_C(200000000) /* one that waits for its server */
#define NOTE_AGAIN_NS UINT64_C(10000000000)
#define BUSY_CODE 1

const char *const endpoint_mode_names[] = {"spin", "adaptive", "block", NULL};

/* What ends a session is told by the tool, once; the library's warnings say it a second time. */
static void log_line(int level, const char *text, void *arg) {
    (void)arg;
    if (level == SLUICE_LOG_ERROR)
        tool_note("%s", text);
}

/* The techniques of these bits, for the library to read when it opens the node. */
static bool leave_out(uint32_t without) {
    static const char *const names[TECHNIQUE_COUNT] = {
#define TECHNIQUES_X(name, text, what) [TECHNIQUE_##name] = text,
        TECHNIQUES(TECHNIQUES_X)
#undef TECHNIQUES_X
    };
    char list[256] = "";
    size_t at = 0;
    for (unsigned i = 0; i < TECHNIQUE_COUNT; i++)
        if (without & 1u << i)
            at +=
                (size_t)snprintf(list + at, sizeof list - at, "%s%s", at > 0 ? "," : "", names[i]);
    return setenv("SLUICE_WITHOUT", list, 1) == 0;
}

#define SESSIONS_USUAL 4000u                 /* the library's default has room for more */
#define MEMORY_FOR_MANY (UINT64_C(16) << 30) /* a limit: taken is what sessions need */

static void want_sessions(sluice_node_options *node, uint32_t sessions) {
    if (sessions <= SESSIONS_USUAL)
        return;
    node->sessions_max = sessions + 2 * ENDPOINT_QUEUE_MAX;
    node->memory_bytes_max = MEMORY_FOR_MANY;
}

int endpoint_open(struct endpoint *ep, const struct endpoint_options *options) {
    static const uint32_t idle[] = {SLUICE_IDLE_SPIN, SLUICE_IDLE_ADAPTIVE, SLUICE_IDLE_BLOCK};
    memset(ep, 0, sizeof *ep);
    ep->options = *options;
    ep->pin = (struct pin){.cpu = -1, .claim_fd = -1};
    if (options->pin) {
        int rc = pin_claim(&ep->pin, options->cpu);
        if (rc != 0)
            return rc;
        if (options->mode == MODE_SPIN && (ep->pin.allowed < 2 || ep->pin.cpu < 0)) {
            tool_note("%s: adaptive mode instead of spin",
                      ep->pin.allowed < 2 ? "only one CPU may be used"
                                          : "every CPU is taken by another node or tool");
            ep->options.mode = MODE_ADAPTIVE;
        }
    }

    if (options->without != 0 && !leave_out(options->without))
        return tool_fail("no memory for the environment");
    sluice_error error;
    sluice_node_options node = {.size = sizeof node,
                                .name = tool_name(),
                                .device = options->device,
                                .workers = SLUICE_NO_WORKERS,
                                .idle = idle[ep->options.mode],
                                .rendezvous = options->rendezvous,
                                .rendezvous_bytes = options->rendezvous_above,
                                .log = log_line};
    want_sessions(&node, options->sessions);
    if (sluice_open(&ep->node, &node, &error) != 0) {
        pin_release(&ep->pin);
        return tool_fail("cannot open the device: %s", error.text);
    }
    if (sluice_loop_open(ep->node, &ep->loop, &error) != 0) {
        int rc = tool_fail("cannot open a loop: %s", error.text);
        endpoint_close(ep);
        return rc;
    }
    tool_stop_wakes(ep->loop);
    /* Only now: the threads of the node inherit the CPUs of the thread that opens it. */
    int rc = pin_apply(&ep->pin);
    if (rc != 0)
        endpoint_close(ep);
    return rc;
}

void endpoint_close(struct endpoint *ep) {
    tool_stop_wakes(NULL);
    if (ep->node != NULL)
        sluice_close(ep->node, tool_stopped() ? 0 : CLOSE_NS);
    ep->node = NULL;
    ep->loop = NULL;
    pin_release(&ep->pin);
}

const char *endpoint_mode_name(const struct endpoint *ep) {
    if (ep->share_cpu)
        return endpoint_mode_names[MODE_ADAPTIVE];
    return endpoint_mode_names[ep->options.mode];
}

void endpoint_share_cpu(struct endpoint *ep) {
    if (!ep->share_cpu && ep->options.cpu < 0 && ep->listening && pin_move(&ep->pin))
        return; /* the client is told with the answer to its plan */
    if (!ep->share_cpu)
        tool_note("CPU %d is the peer's too: adaptive mode instead of spin", ep->pin.cpu);
    ep->share_cpu = true;
}

/* ---- sessions ---------------------------------------------------------------------------------- */

sluice_link_options endpoint_link_options(const struct endpoint *ep) {
    return (sluice_link_options){.size = sizeof(sluice_link_options),
                                 .loop = ep->loop,
                                 .window_messages = ep->options.window,
                                 .credits = ep->options.credits,
                                 .requests = ep->options.requests,
                                 .resume_ns = ep->options.resume_ns};
}

int endpoint_listen(struct endpoint *ep, const char *address) {
    sluice_error error;
    sluice_link_options link = endpoint_link_options(ep);
    link.flags = SLUICE_ASK;
    if (sluice_listen(ep->node, address, &link, &ep->listener, &error) != 0) {
        bool whole = strncmp(error.text, "cannot listen", strlen("cannot listen")) == 0;
        return whole ? tool_fail("%s", error.text)
                     : tool_fail("cannot listen at %s: %s", address, error.text);
    }
    ep->listening = true;
    int port = sluice_listener_port(ep->listener);
    if (port < 0)
        return tool_fail("cannot listen at %s: %s", address, sluice_strerror(port));
    const char *colon = strrchr(address, ':');
    snprintf(ep->address, sizeof ep->address, "%.*s:%d", (int)(colon - address), address, port);
    fprintf(stderr, "listening on %s\n", ep->address);
    fflush(stderr);
    return 0;
}

static void begin_session(struct endpoint *ep, sluice_session session) {
    ep->session = session;
    ep->have_session = true;
    ep->up = ep->closed = ep->writable = false;
    ep->end_text[0] = ep->peer[0] = '\0';
    ep->quiet_since_ns = 0;
    ep->down = 0;
}

static void refuse_busy(sluice_session session) {
    /* It may have gone by itself. */
    sluice_refuse(session, BUSY_CODE, "busy with another client: try again later");
}

static void forget_waiting(struct endpoint *ep, uint32_t at) {
    ep->waiting_count--;
    memmove(&ep->waiting[at], &ep->waiting[at + 1],
            (ep->waiting_count - at) * sizeof ep->waiting[0]);
}

static void on_connect(struct endpoint *ep, sluice_session session) {
    uint32_t room = ep->options.queue;
    if (room == 0 && !ep->have_session)
        room = 1; /* the one that is served at once */
    if (room > ENDPOINT_QUEUE_MAX)
        room = ENDPOINT_QUEUE_MAX;
    if (ep->waiting_count >= room) {
        refuse_busy(session);
        return;
    }
    ep->waiting[ep->waiting_count++] =
        (struct waiting){.session = session, .since_ns = sluice_now()};
}

void endpoint_ended(struct endpoint *ep, const sluice_event *event) {
    sluice_session_info info = {.size = sizeof info};
    ep->closed = true;
    ep->up = false;
    ep->end = *event;
    if (sluice_session_get_info(event->session, &info) == 0)
        snprintf(ep->end_text, sizeof ep->end_text, "%.*s", (int)sizeof info.close_text - 1,
                 info.close_text);
}

static void on_closed(struct endpoint *ep, const sluice_event *event) {
    if (ep->listening && event->session.id == ep->listener.id) {
        ep->deaf = true;
        return;
    }
    if (ep->have_session && event->session.id == ep->session.id) {
        endpoint_ended(ep, event);
        return;
    }
    for (uint32_t i = 0; i < ep->waiting_count; i++)
        if (ep->waiting[i].session.id == event->session.id) {
            forget_waiting(ep, i);
            return;
        }
}

void endpoint_down(struct endpoint *ep, const sluice_event *event, const char *which) {
    bool down = event->type == SLUICE_DOWN;
    if (!down && event->tag == 0)
        return; /* its first one */
    ep->quiet_since_ns = 0;
    ep->down += down;
    ep->down -= !down && ep->down > 0;
    if (down)
        tool_note("%s lost its connection (%s): %g s for another one", which,
                  sluice_reason_text(event->reason), (double)ep->options.resume_ns / 1e9);
    else
        tool_note("%s goes on after %.3f s without a connection", which,
                  (double)event->value / 1e9);
}

void endpoint_event(struct endpoint *ep, const sluice_event *event) {
    bool mine = ep->have_session && event->session.id == ep->session.id;
    if (mine && (event->type == SLUICE_DOWN || event->type == SLUICE_UP))
        endpoint_down(ep, event, "the session");
    if (many_number(event) != 0)
        many_event(ep, event);
    if (many_number(event) != 0 && event->type != SLUICE_WRITABLE)
        return;
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        ep->up = mine || ep->up;
        return;
    case SLUICE_CLOSED:
        on_closed(ep, event);
        return;
    case SLUICE_WRITABLE:
        ep->writable = mine || many_number(event) != 0 || ep->writable;
        return;
    case SLUICE_CONNECT:
        if (!many_takes(ep, event))
            on_connect(ep, event->session);
        return;
    case SLUICE_MESSAGE: /* these are the caller's */
    case SLUICE_REQUEST:
    case SLUICE_REPLY:
    case SLUICE_DONE:
        return;
    case SLUICE_LARGE:    /* only where messages are asked about first: no session of these is */
    case SLUICE_DOWN:     /* endpoint_down() */
    case SLUICE_MOVED:    /* no tool moves one */
    case SLUICE_NOTIFIED: /* no tool notifies */
    case SLUICE_SENT:     /* no send of these tools has a tag */
    case SLUICE_WAKE:     /* the stop flag says the rest */
        return;
    }
}

static void note_peer(struct endpoint *ep) {
    sluice_session_info info = {.size = sizeof info};
    if (sluice_session_get_info(ep->session, &info) != 0)
        return; /* closed in the meantime: the next event says so */
    snprintf(ep->peer, sizeof ep->peer, "%.*s", (int)sizeof info.peer - 1, info.peer);
    ep->message_bytes_max = info.message_bytes_max;
}

int endpoint_accept(struct endpoint *ep) {
    for (;;) {
        if (!ep->have_session && ep->waiting_count > 0) {
            sluice_session next = ep->waiting[0].session;
            forget_waiting(ep, 0);
            if (sluice_accept(next, NULL) == 0)
                begin_session(ep, next);
            continue;
        }
        if (ep->have_session && ep->up) {
            note_peer(ep);
            return 0;
        }
        if (ep->have_session && ep->closed) {
            tool_note("a client went away before it was connected: %s",
                      sluice_reason_text(ep->end.reason));
            ep->have_session = false;
            continue;
        }
        if (ep->deaf)
            return tool_fail("cannot listen at %s any more: %s", ep->address,
                             sluice_reason_text(SLUICE_REASON_DEVICE_REMOVED));
        sluice_event event;
        if (endpoint_wait(ep, &event, SLUICE_OFF, -1, 0, NULL) < 0)
            return TOOL_FAILED;
    }
}

/*
 * Says what a dial that goes on has met, and again where that is something else for some time: who waits for a wrong address
 * sees it.
 */
static void note_wait(struct endpoint *ep, uint64_t *due_ns) {
    sluice_session_info info = {.size = sizeof info};
    if (ep->up || ep->closed || sluice_now() < *due_ns ||
        sluice_session_get_info(ep->session, &info) != 0 || info.close_text[0] == '\0' ||
        strcmp(info.close_text, ep->end_text) == 0)
        return;
    *due_ns = sluice_now() + NOTE_AGAIN_NS;
    snprintf(ep->end_text, sizeof ep->end_text, "%s", info.close_text);
    tool_note("waiting for %s: %s", ep->address, ep->end_text);
}

int endpoint_dial(struct endpoint *ep, const char *address) {
    sluice_error error;
    sluice_link_options link = endpoint_link_options(ep);
    sluice_session session;
    uint64_t note_due_ns = 0;
    if (ep->options.wait) {
        link.flags |= SLUICE_WAIT;
        link.timeout_ns = SLUICE_OFF;
    }
    snprintf(ep->address, sizeof ep->address, "%s", address);
    if (sluice_dial(ep->node, address, &link, &session, &error) != 0)
        return tool_fail("cannot connect to %s: %s", address, error.text);
    begin_session(ep, session);
    while (!ep->up && !ep->closed) {
        sluice_event event;
        uint64_t until = ep->options.wait ? sluice_now() + LOOK_AT_DIAL_NS : SLUICE_OFF;
        if (endpoint_wait(ep, &event, until, -1, 0, NULL) < 0)
            return TOOL_FAILED;
        if (ep->options.wait)
            note_wait(ep, &note_due_ns);
    }
    if (ep->closed)
        return endpoint_fail_closed(ep, NULL);
    ep->end_text[0] = '\0';
    note_peer(ep);
    return 0;
}

void endpoint_hangup(struct endpoint *ep) {
    if (!ep->have_session)
        return;
    many_end(ep);
    if (ep->closed && ep->end.session.id != ep->session.id)
        ep->closed = false; /* another one was lost, and this one is to be ended */
    if (!ep->closed) {
        uint64_t until = sluice_now() + HANGUP_NS + HANGUP_NS / 2;
        sluice_hangup(ep->session, HANGUP_NS);
        sluice_event event;
        while (!ep->closed && endpoint_wait(ep, &event, until, -1, 0, NULL) > 0)
            continue;
    }
    ep->have_session = false;
}

/* What to do about it, for the reasons where that is clear. */
static const char *hint(int reason, uint32_t vendor) {
    switch (reason) {
    case SLUICE_REASON_NO_LISTENER:
        return ": start the server first, and use the port it prints";
    case SLUICE_REASON_NOT_SLUICE:
        return ": something else listens there, check the port";
    case SLUICE_REASON_ADDRESS:
        if (vendor == EREMOTE)
            return ""; /* the text names the page that tells */
        return ": check the name or address";
    case SLUICE_REASON_UNREACHABLE:
    case SLUICE_REASON_TIMEOUT:
        return ": check that the host is up and that its server answers";
    case SLUICE_REASON_VERSION:
        return ": install the same release on both sides";
    case SLUICE_REASON_WRONG_DEVICE:
        return ": choose the other device with --device";
    default:
        return "";
    }
}

int endpoint_fail_closed(struct endpoint *ep, const char *during) {
    const char *reason = sluice_reason_text(ep->end.reason);
    const char *detail = ep->end_text;
    char text[320];
    bool more = detail[0] != '\0' && strcmp(detail, reason) != 0;
    snprintf(text, sizeof text, "%s%s%s%s", reason, more ? ": " : "", more ? detail : "",
             hint(ep->end.reason, ep->end.vendor));
    if (during == NULL)
        return tool_fail("cannot connect to %s: %s", ep->address, text);
    return tool_fail("the connection to %s ended %s: %s",
                     ep->peer[0] != '\0' ? ep->peer : ep->address, during, text);
}

/* ---- waiting ----------------------------------------------------------------------------------- */

/* Clients that queue too long get an answer. */
static void look_at_waiting(struct endpoint *ep, uint64_t now) {
    while (ep->waiting_count > 0 && ep->have_session &&
           now - ep->waiting[0].since_ns > WAITING_NS) {
        refuse_busy(ep->waiting[0].session);
        forget_waiting(ep, 0);
    }
}

/* Looks at those that wait while data flows: the clock is not read for every message. */
void endpoint_look_at_waiting(struct endpoint *ep) {
    if ((++ep->waiting_looks & WAITING_LOOKS) == 0)
        look_at_waiting(ep, sluice_now());
}

static int sleep_on(int loop_fd, int other_fd, short other_events, uint64_t wait_ns,
                    bool *other_ready) {
    struct pollfd fds[2] = {{.fd = loop_fd, .events = POLLIN},
                            {.fd = other_fd, .events = other_events}};
    struct timespec limit = {.tv_sec = (time_t)(wait_ns / 1000000000),
                             .tv_nsec = (long)(wait_ns % 1000000000)};
    int n = ppoll(fds, other_fd >= 0 ? 2 : 1, wait_ns == SLUICE_OFF ? NULL : &limit, NULL);
    if (n > 0 && other_fd >= 0 && fds[1].revents != 0)
        *other_ready = true;
    return n;
}

/*
 * Asleep whatever the mode, but inside of the library: a loop whose descriptor was asked for arms it in
 * every poll that finds nothing, for ever, and that would be measured too.
 */
static int poll_asleep(struct endpoint *ep, sluice_event *event, uint64_t wait_ns) {
    sluice_loop_set_idle(ep->loop, SLUICE_IDLE_BLOCK);
    int n = sluice_poll(ep->loop, event, 1, wait_ns < ASLEEP_NS ? wait_ns : ASLEEP_NS);
    sluice_loop_set_idle(ep->loop, SLUICE_IDLE_DEFAULT);
    return n;
}

int endpoint_wait(struct endpoint *ep, sluice_event *event, uint64_t until_ns, int other_fd,
                  short other_events, bool *other_ready) {
    bool ready = false;
    uint64_t wait = 0;
    for (;;) {
        int n = wait > 0 && other_fd < 0 ? poll_asleep(ep, event, wait)
                                         : sluice_poll(ep->loop, event, 1, 0);
        if (tool_stopped())
            return -1;
        if (n < 0)
            return tool_fail("the loop failed: %s", sluice_strerror(n)), -1;
        if (n > 0) {
            ep->quiet_since_ns = 0;
            endpoint_event(ep, event);
            return 1;
        }
        if (ready) {
            *other_ready = true;
            return 0;
        }
        uint64_t now = sluice_now();
        if (now >= until_ns)
            return 0;
        look_at_waiting(ep, now);
        wait = until_ns == SLUICE_OFF ? SLUICE_OFF : until_ns - now;
        if (ep->waiting_count > 0 && wait > WAITING_NS)
            wait = WAITING_NS;
        if (other_fd >= 0)
            sleep_on(sluice_fd(ep->loop), other_fd, other_events, wait, &ready);
    }
}

/* Called when nothing came for a while. Returns false when that was too long. */
static bool look_at_quiet(struct endpoint *ep) {
    uint64_t now = sluice_now();
    look_at_waiting(ep, now);
    if (ep->down > 0)
        return true; /* that has its own end */
    if (ep->quiet_since_ns == 0)
        ep->quiet_since_ns = now;
    return now - ep->quiet_since_ns < QUIET_NS;
}

/* The loop never sleeps in spin mode; here the peer needs the CPU, so sleep on its descriptor. */
static int poll_shared(struct endpoint *ep, sluice_event *events, int max, uint64_t wait_ns) {
    int n = sluice_poll(ep->loop, events, max, 0);
    if (n != 0 || tool_stopped())
        return n;
    bool unused;
    sleep_on(sluice_fd(ep->loop), -1, 0, wait_ns, &unused);
    return sluice_poll(ep->loop, events, max, 0);
}

/* The poll before this call found nothing, or was not made. */
int endpoint_poll_slow(struct endpoint *ep, sluice_event *events, int max, uint64_t wait_ns) {
    int n = 0;
    if (ep->share_cpu && tool_stopped() == 0)
        n = poll_shared(ep, events, max, wait_ns);
    if (n > 0) {
        ep->quiet_since_ns = 0;
        return n;
    }
    if (tool_stopped())
        return -1;
    if (n < 0) {
        tool_fail("the loop failed: %s", sluice_strerror(n));
        return -1;
    }
    if (!look_at_quiet(ep)) {
        tool_fail("nothing came from %s for %llu s", ep->peer,
                  (unsigned long long)(QUIET_NS / 1000000000));
        return -1;
    }
    return 0;
}
