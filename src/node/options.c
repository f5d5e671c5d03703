/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * options.c - the options of the caller: read by size, checked, defaults filled in.
 *
 * A struct may come from an older or a newer header. A field that is missing is zero, which means default;
 * a field that this library does not know must be zero. Pure functions but for the program's name and the techniques
 * that SLUICE_WITHOUT leaves out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/settings.h"
#include "core/auth/keyring.h"
#include "core/techniques.h"
#include "node/node.h"

#define EAGER_DEFAULT 8192u
#define EAGER_MIN 512u
#define EAGER_MAX 65536u
#define MEMORY_DEFAULT (1ull << 30)
#define MESSAGE_DEFAULT (64ull << 20)
#define MESSAGE_MAX (1ull << 40)
#define SESSIONS_DEFAULT 4096u
#define WINDOW_MESSAGES_DEFAULT 128u
#define WINDOW_MESSAGES_MAX 65536u
#define WINDOW_BYTES_DEFAULT (16ull << 20)
#define TIMEOUT_DEFAULT 10000000000ull
#define CREDITS_MIN 4u
#define CREDITS_MAX 1024u
#define HANDSHAKES_DEFAULT 128u
#define REQUESTS_DEFAULT 1024u
#define KEEPALIVE_DEFAULT 10000000000ull
#define ACK_TIMEOUT_MAX 31u
#define IN_FLIGHT_DEFAULT 64u
#define IN_FLIGHT_MAX 256u
#define LINK_FLAGS                                                                                 \
    (SLUICE_ASK | SLUICE_ONCE | SLUICE_REUSE | SLUICE_RECEIVE_INTO | SLUICE_ISOLATED | SLUICE_WAIT)
#define RECEIVE_MIN (256u << 10)

#define TECHNIQUE_NAME(name, text, what) " " text

/* Copies what both sides know; false when the caller's struct holds something unknown. */
static bool read_sized(void *known, size_t known_bytes, const void *given) {
    size_t bytes;
    memcpy(&bytes, given, sizeof bytes);
    memset(known, 0, known_bytes);
    if (bytes < sizeof bytes || bytes > 4096)
        return false;
    memcpy(known, given, bytes < known_bytes ? bytes : known_bytes);
    for (size_t i = known_bytes; i < bytes; i++)
        if (((const uint8_t *)given)[i] != 0)
            return false;
    return true;
}

static uint32_t log2_down(uint64_t value) {
    return 63 - (uint32_t)__builtin_clzll(value);
}

static uint32_t log2_up(uint64_t value) {
    return value <= 1 ? 0 : log2_down(value - 1) + 1;
}

/* The bits of a list of techniques with commas between them; false: *word, of *bytes, is none. */
static bool techniques_read(const char *list, uint32_t *without, const char **word, size_t *bytes) {
    static const char *const names[TECHNIQUE_COUNT] = {
#define TECHNIQUES_X(name, text, what) [TECHNIQUE_##name] = text,
        TECHNIQUES(TECHNIQUES_X)
#undef TECHNIQUES_X
    };
    for (*word = list; **word; *word += *bytes + ((*word)[*bytes] == ',')) {
        unsigned i = 0;
        *bytes = strcspn(*word, ",");
        while (i < TECHNIQUE_COUNT &&
               (strlen(names[i]) != *bytes || strncmp(names[i], *word, *bytes) != 0))
            i++;
        if (i == TECHNIQUE_COUNT)
            return false;
        *without |= 1u << i;
    }
    return true;
}

#define REFUSE(...) return error_set(e, SLUICE_EINVAL, SLUICE_REASON_NONE, 0, __VA_ARGS__)

int options_node(struct node_options *out, const sluice_node_options *given, sluice_error *e) {
    sluice_node_options o = {0};
    if ((given && !read_sized(&o, sizeof o, given)) || o.reserved != 0)
        REFUSE("node options: size is not set, or a field this library does not know is");
    uint32_t eager = o.eager_bytes ? o.eager_bytes : EAGER_DEFAULT;
    uint64_t memory = o.memory_bytes_max ? o.memory_bytes_max : MEMORY_DEFAULT;
    uint64_t message = o.message_bytes_max ? o.message_bytes_max : MESSAGE_DEFAULT;
    uint32_t workers = o.workers == SLUICE_NO_WORKERS ? 0 : o.workers ? o.workers : 1;
    uint32_t sessions = o.sessions_max ? o.sessions_max : SESSIONS_DEFAULT;
    if (eager < EAGER_MIN || eager > EAGER_MAX)
        REFUSE("eager_bytes %u is not between %u and %u", eager, EAGER_MIN, EAGER_MAX);
    if (message > MESSAGE_MAX)
        REFUSE("message_bytes_max %llu is above %llu", (unsigned long long)message,
               (unsigned long long)MESSAGE_MAX);
    if (workers > WORKERS_MAX)
        REFUSE("workers %u is above %u", workers, WORKERS_MAX);
    if (o.idle > SLUICE_IDLE_BLOCK)
        REFUSE("idle %u is not one of sluice_idle", o.idle);
    if (sessions > SESSION_TABLE_MAX)
        REFUSE("sessions_max %u is above %u", sessions, SESSION_TABLE_MAX);
    if (memory < 1u << 20)
        REFUSE("memory_bytes_max %llu is below 1 MiB", (unsigned long long)memory);
    uint64_t receive = o.receive_bytes_max ? o.receive_bytes_max : memory / 4;
    if (receive < RECEIVE_MIN || receive > memory - RECEIVE_MIN)
        REFUSE("receive_bytes_max %llu is not between 256 KiB and memory_bytes_max less 256 KiB",
               (unsigned long long)receive);
    if (o.rendezvous > SLUICE_RENDEZVOUS_WRITE)
        REFUSE("rendezvous %u is not one of sluice_rendezvous", o.rendezvous);
    if (o.registrations > SLUICE_REGISTRATIONS_OFF)
        REFUSE("registrations %u is not one of sluice_registrations", o.registrations);
    if (o.soft_net > SLUICE_SOFT_NET_REQUIRE)
        REFUSE("soft_net %u is not one of sluice_soft_net", o.soft_net);
    *out = (struct node_options){
        .device = o.device,
        .workers = workers,
        .idle = o.idle ? o.idle : SLUICE_IDLE_ADAPTIVE,
        .eager_log2 = log2_down(eager),
        .sessions_max = sessions,
        .handshakes_max = o.handshakes_max ? o.handshakes_max : HANDSHAKES_DEFAULT,
        .requests_max = o.requests_max ? o.requests_max : REQUESTS_DEFAULT,
        .worker_cpus = o.worker_cpus,
        .memory_bytes_max = memory,
        .message_bytes_max = message,
        .receive_bytes_max = receive,
        .memory_numa = o.memory_numa,
        .sessions_chosen = o.sessions_max != 0,
        .rendezvous_bytes = o.rendezvous_bytes,
        .rendezvous = o.rendezvous,
        .registrations = o.registrations,
        .registration_bytes_max = o.registration_bytes_max ? o.registration_bytes_max : memory / 4,
        .soft_net = o.soft_net,
        .log = o.log,
        .log_arg = o.log_arg,
    };
    /* Peers negotiate powers of two; the exact limit stays with the sender. */
    out->message_log2 = log2_up(message);
    if (out->message_log2 < out->eager_log2)
        out->message_log2 = out->eager_log2;
    snprintf(out->name, sizeof out->name, "%s",
             o.name && *o.name ? o.name : program_invocation_short_name);
    const char *list = secure_getenv("SLUICE_WITHOUT"), *word;
    char sentence[SETTINGS_SENTENCE];
    size_t bytes = 0;
    if (settings_wrong(sentence, sizeof sentence))
        REFUSE("%s", sentence);
    if (list && !techniques_read(list, &out->without, &word, &bytes))
        REFUSE("SLUICE_WITHOUT: '%.*s' is none of" TECHNIQUES(TECHNIQUE_NAME), (int)bytes, word);
    return SLUICE_OK;
}

/* Units of 10 ms, rounded up; 0 = off. */
static int read_keepalive(uint32_t *out, uint64_t given, sluice_error *e) {
    uint64_t ns = given ? given : KEEPALIVE_DEFAULT;
    *out = 0;
    if (ns == SLUICE_OFF)
        return SLUICE_OK;
    if (ns < PRIVATE_DATA_KEEPALIVE_NS || ns > UINT16_MAX * PRIVATE_DATA_KEEPALIVE_NS)
        REFUSE("keepalive_ns %llu is not between 10 ms and 655 s", (unsigned long long)ns);
    *out = (uint32_t)((ns + PRIVATE_DATA_KEEPALIVE_NS - 1) / PRIVATE_DATA_KEEPALIVE_NS);
    return SLUICE_OK;
}

static int check_loops(const sluice_link_options *o, sluice_node *n, sluice_error *e) {
    if (o->loop && o->loop_count)
        REFUSE("a link has either a loop or several, not both");
    if (o->loop_count > STATS_LOOPS_MAX || (o->loop_count > 0 && !o->loops))
        REFUSE("loops: %u of them, or no array", o->loop_count);
    if (o->loop && o->loop->node != n)
        REFUSE("the loop belongs to another node");
    for (uint32_t i = 0; i < o->loop_count; i++)
        if (!o->loops[i] || o->loops[i]->node != n)
            REFUSE("loop %u is missing or belongs to another node", i);
    if (!o->handler && !o->loop && !o->loop_count)
        REFUSE("a link needs a handler, or a loop to poll");
    if (!o->loop && !o->loop_count && n->worker_count == 0)
        REFUSE("the node has no workers: the link needs a loop");
    return SLUICE_OK;
}

/* Refuses an option that has no meaning on that side, because it would be ignored. */
static int check_side(const sluice_link_options *o, bool dialing, sluice_error *e) {
    if (o->flags & ~LINK_FLAGS)
        REFUSE("unknown link flags 0x%x", o->flags & ~LINK_FLAGS);
    if (dialing && (o->flags & SLUICE_ASK))
        REFUSE("SLUICE_ASK is for listening: a dial asks, and is not asked");
    if (dialing && (o->flags & SLUICE_REUSE))
        REFUSE("SLUICE_REUSE is for listening: a dial takes no address");
    if (!dialing && (o->flags & SLUICE_ONCE))
        REFUSE("SLUICE_ONCE is for dialing: a listener tries nothing");
    if (!dialing && (o->flags & SLUICE_WAIT))
        REFUSE("SLUICE_WAIT is for dialing: a listener waits in any case");
    if ((o->flags & SLUICE_WAIT) && (o->flags & SLUICE_ONCE))
        REFUSE("SLUICE_WAIT tries again, and SLUICE_ONCE does not");
    if (!dialing && o->private_bytes > 0)
        REFUSE("private data is for dialing: a listener is shown it");
    return SLUICE_OK;
}

int options_link(struct link_config *out, sluice_node *n, const sluice_link_options *given,
                 bool dialing, sluice_error *e) {
    sluice_link_options o = {0};
    if (given && !read_sized(&o, sizeof o, given))
        REFUSE("link options: size is not set, or a field this library does not know is");
    int status = check_loops(&o, n, e);
    if (status != SLUICE_OK)
        return status;
    uint32_t keepalive;
    if ((status = read_keepalive(&keepalive, o.keepalive_ns, e)) != SLUICE_OK)
        return status;
    if ((status = check_side(&o, dialing, e)) != SLUICE_OK)
        return status;
    if (o.private_bytes > SLUICE_PRIVATE_MAX || (o.private_bytes > 0 && !o.private_data))
        REFUSE("private data of %u bytes: more than %u, or missing", o.private_bytes,
               SLUICE_PRIVATE_MAX);
    if (o.tos > 255)
        REFUSE("tos %u is above 255", o.tos);
    if (o.ack_timeout > ACK_TIMEOUT_MAX)
        REFUSE("ack_timeout %u is above %u", o.ack_timeout, ACK_TIMEOUT_MAX);
    uint32_t credits = o.credits ? o.credits : CREDITS_DEFAULT;
    uint32_t messages = o.window_messages ? o.window_messages : WINDOW_MESSAGES_DEFAULT;
    uint32_t requests = o.requests ? o.requests : IN_FLIGHT_DEFAULT;
    if (requests > IN_FLIGHT_MAX)
        REFUSE("requests %u is above %u", requests, IN_FLIGHT_MAX);
    if (credits < CREDITS_MIN || credits > CREDITS_MAX)
        REFUSE("credits %u is not between %u and %u", credits, CREDITS_MIN, CREDITS_MAX);
    if (messages > WINDOW_MESSAGES_MAX)
        REFUSE("window_messages %u is above %u", messages, WINDOW_MESSAGES_MAX);
    if ((int)credits > n->device_attr.max_qp_wr)
        REFUSE("credits %u is above the %d receives the device takes", credits,
               n->device_attr.max_qp_wr);
    *out = (struct link_config){
        .handler = o.handler,
        .handler_arg = o.handler_arg,
        .arg = o.arg,
        .loop = o.loop,
        .flags = o.flags,
        .window_messages = messages,
        .credits = credits,
        .window_bytes = o.window_bytes ? o.window_bytes : WINDOW_BYTES_DEFAULT,
        .timeout_ns = o.timeout_ns ? o.timeout_ns : TIMEOUT_DEFAULT,
        .resume_ns = o.resume_ns,
        .loops = o.loops,
        .loop_count = o.loop_count,
        .requests = requests,
        .keepalive = keepalive,
        .tos = o.tos,
        .ack_timeout = o.ack_timeout,
        .private_bytes = o.private_bytes,
        .dialing = dialing,
    };
    if (o.private_bytes > 0)
        memcpy(out->private_data, o.private_data, o.private_bytes);
    return keyring_make(&out->keys, &o, dialing, e);
}
