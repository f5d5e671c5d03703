/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * perf.c - see perf.h.
 *
 * The server sleeps between READY and the first data message: the client measures the floor on
 * both CPUs in between, and a spinning server would be in its way.
 */
#include "perf.h"

#include <stdio.h>
#include <string.h>

#include "bench/floor.h"
#include "common/clock.h"
#include "core/techniques.h"

/* ---- command line ------------------------------------------------------------------------------ */

#define COMMON_OPTIONS 20
#define OPTIONS_LIMIT 32

#define TECHNIQUES_X(name, text, what) text,
static const char *const technique_names[] = {TECHNIQUES(TECHNIQUES_X) NULL};
#undef TECHNIQUES_X
/* In the order of sluice_rendezvous. */
static const char *const rendezvous_names[] = {"auto", "read", "write", NULL};

static size_t common_options(struct perf *p, struct option *list) {
    struct perf_options *o = &p->o;
    const struct option common[COMMON_OPTIONS] = {
        {'p', "port", "PORT", OPTION_NUMBER, &o->port, &o->have_port, 0, 65535, NULL,
         "port to listen on or to connect to; 0 lets the server pick\none (default 18515)"},
        {'s', "size", "BYTES", OPTION_SIZE, &o->size, &o->have_size, 0, PERF_SIZE_MAX, NULL,
         "size of a message, K and M allowed"},
        {'a', "all", NULL, OPTION_FLAG, &o->all, NULL, 0, 0, NULL,
         "all sizes: the powers of two from 1 to 8M"},
        {'n', "iterations", "N", OPTION_NUMBER, &o->iterations, &o->have_iterations, 1,
         UINT64_C(1) << 40, NULL, "how many to measure (default: about a second's worth)"},
        {'D', "duration", "SECONDS", OPTION_SECONDS, &o->duration_ns, &o->have_duration, 1000000,
         UINT64_C(86400) * 1000000000, NULL, "measure for so long instead of -n"},
        {'w', "warm-up", "N", OPTION_NUMBER, &o->warmup, &o->have_warmup, 0, UINT64_C(1) << 40,
         NULL, "how many to run before, unmeasured"},
        {'q', "sessions", "N", OPTION_NUMBER, &o->sessions, NULL, 1, CONTROL_SESSIONS_MAX, NULL,
         "client: so many sessions; server: be ready for so many, if\nmore than 4000"},
        {0, "each", NULL, OPTION_FLAG, &o->each, NULL, 0, 0, NULL, p->tool->each},
        {0, "in-turn", NULL, OPTION_FLAG, &o->in_turn, NULL, 0, 0, NULL, p->tool->in_turn},
        {0, "json", NULL, OPTION_FLAG, &o->json, NULL, 0, 0, NULL,
         "one JSON object per size on standard output, nothing else"},
        {0, "wait", NULL, OPTION_FLAG, &o->wait, NULL, 0, 0, NULL,
         "client: wait for a server that is not there yet"},
        {0, "resume", "SECONDS", OPTION_SECONDS, &o->resume_ns, NULL, ENDPOINT_RESUME_MIN_NS,
         ENDPOINT_RESUME_MAX_NS, NULL,
         "on both sides: a session that loses its connection has so\nlong to get another one"},
        {0, "keep", NULL, OPTION_FLAG, &o->keep, NULL, 0, 0, NULL,
         "server: serve one client after the other until stopped"},
        {0, "bind", "ADDRESS", OPTION_TEXT, &o->bind, NULL, 0, 0, NULL,
         "server: the local address to listen on (default: any)"},
        {0, "device", "NAME", OPTION_TEXT, &o->device, NULL, 0, 0, NULL,
         "auto, soft, or the name of an RDMA device"},
        {0, "cpu", "N", OPTION_NUMBER, &o->cpu, &o->have_cpu, 0, 8191, NULL,
         "run on this CPU (default: the first that no other node\nor tool of this host has taken)"},
        {0, "mode", "MODE", OPTION_CHOICE, &o->mode, NULL, 0, 0, endpoint_mode_names,
         "spin, adaptive or block: how to wait (default spin)"},
        {0, "without", "LIST", OPTION_SET, &o->without, NULL, 0, 0, technique_names,
         "leave techniques out, on this side: inline, wr-batch,\nsignalling, wc-batch, srq,"
         " coalesce, rendezvous, extended; with commas"},
        {0, "rendezvous", "WAY", OPTION_CHOICE, &o->rendezvous, NULL, 0, 0, rendezvous_names,
         "how large messages go: auto, read or write (default auto)"},
        {0, "rendezvous-above", "BYTES", OPTION_SIZE, &o->rendezvous_above, NULL, 1, PERF_SIZE_MAX,
         NULL, "which messages are large (default: by transport)"},
    };
    size_t n = 0;
    for (; n < COMMON_OPTIONS && common[n].name != NULL; n++)
        list[n] = common[n];
    return n;
}

static int client_address(struct perf *p) {
    bool had_port;
    const char *wrong = units_addresses(p->o.host, (int64_t)p->o.port, p->address, &had_port);
    if (wrong != NULL)
        return tool_usage("'%.80s' is not an address to connect to: %s", p->o.host, wrong);
    if (had_port && p->o.have_port)
        return tool_usage("the port is given twice: with -p and in '%.80s'", p->o.host);
    return 0;
}

static int server_address(struct perf *p) {
    const char *host = p->o.bind != NULL ? p->o.bind : "*";
    bool had_port;
    const char *wrong = units_address(host, (int64_t)p->o.port, p->address, &had_port);
    if (wrong == NULL && had_port)
        wrong = "no port here, use -p";
    if (wrong != NULL)
        return tool_usage("--bind: '%.80s' is not an address to listen on: %s", host, wrong);
    return 0;
}

/* Options that contradict each other or belong to the other side are errors, not ignored. */
static int check_options(struct perf *p) {
    const struct perf_options *o = &p->o;
    if (o->have_iterations && o->have_duration)
        return tool_usage("-n and -D exclude each other: give a number or a time");
    if (o->all && o->have_size)
        return tool_usage("-a and -s exclude each other: all sizes or one");
    if (o->requests != 0 && o->both_ways)
        return tool_usage("--requests and -b exclude each other");
    if (o->region && o->copy)
        return tool_usage("--region and --copy exclude each other");
    if (o->requests != 0 && (o->region || o->copy))
        return tool_usage("--region and --copy are for messages, not for --requests");
    if (o->requests != 0 && o->host == NULL)
        return tool_usage("--requests is for the client: the server does what it asks for");
    if (o->each && o->in_turn)
        return tool_usage("--each and --in-turn exclude each other");
    if ((o->each || o->in_turn) && o->host == NULL)
        return tool_usage("--each and --in-turn are for the client: the server does as it does");
    if ((o->each || o->in_turn) && o->sessions < 2)
        return tool_usage("--each and --in-turn need -q: there is one session");
    if (o->requests != 0 && o->sessions > 1)
        return tool_usage("--requests and -q exclude each other");
    if (o->wait && o->host == NULL)
        return tool_usage("--wait is for the client: the server waits in any case");
    if (o->host != NULL && o->keep)
        return tool_usage("--keep is for the server, and '%.80s' makes this the client", o->host);
    if (o->host != NULL && o->bind != NULL)
        return tool_usage("--bind is for the server, and '%.80s' makes this the client", o->host);
    return o->host != NULL ? client_address(p) : server_address(p);
}

static int read_options(struct perf *p, int argc, char **argv) {
    struct option list[OPTIONS_LIMIT];
    size_t count = common_options(p, list);
    for (size_t i = 0; i < p->tool->extra_count && count < OPTIONS_LIMIT; i++)
        list[count++] = p->tool->extra[i];
    struct options options = {.about = p->tool->about,
                              .usage = "[options]               the server\n"
                                       "[options] HOST[:PORT]   the client: it measures",
                              .list = list,
                              .count = count,
                              .notes = p->tool->notes,
                              .operands = &p->o.host,
                              .operands_max = 1};
    p->o.port = PERF_PORT;
    p->o.size = p->tool->default_size;
    int rc = options_main(&options, argc, argv);
    if (rc < 0 && check_options(p) != 0)
        return TOOL_USAGE;
    if (!p->o.each && p->o.sessions > 1)
        p->o.in_turn |= p->tool->in_turn_first;
    return rc;
}

/* Where none are given: about a second's worth, less where every message wakes somebody. */
static uint64_t default_iterations(const struct perf *p, uint64_t size) {
    uint64_t n = p->tool->default_bytes / (size == 0 ? 1 : size);
    uint64_t max = p->tool->iterations_max / (p->ep.options.mode == MODE_SPIN ? 1 : 10);
    if (n < p->tool->iterations_min)
        return p->tool->iterations_min;
    return n > max ? max : n;
}

uint64_t perf_iterations(const struct perf *p, uint64_t size) {
    if (p->o.have_duration)
        return 0;
    return p->o.have_iterations ? p->o.iterations : default_iterations(p, size);
}

uint64_t perf_first_ns(const struct perf *p) {
    return PERF_FIRST_NS + (p->ep.many.count > 0 ? MANY_DIAL_NS : 0);
}

uint64_t perf_warmup(const struct perf *p, uint64_t size) {
    if (p->o.have_warmup)
        return p->o.warmup;
    uint64_t n = (p->o.have_iterations ? p->o.iterations : default_iterations(p, size)) / 10;
    n = n < p->tool->default_warmup ? n : p->tool->default_warmup;
    uint64_t twice = 2 * p->o.sessions; /* each is used before what counts */
    return p->o.sessions > 1 && n < twice ? twice : n;
}

/* ---- client ------------------------------------------------------------------------------------ */

/* Between the two CPUs in use; where the server is on another host, between two of this one. */
static void measure_floor(struct perf *p) {
    bool same_host = p->peer.host != 0 && p->peer.host == pin_host_key();
    int mine = p->ep.pin.cpu >= 0 ? p->ep.pin.cpu : pin_other(-1);
    int other = same_host && p->peer.cpu >= 0 ? p->peer.cpu : pin_other(mine);
    struct floor_result floor;
    bool measured = pin_is_allowed(other) && floor_measure(mine, other, &floor) == 0;
    p->floor_ns = measured ? floor.p50_ns : -1;
    p->have_floor = true;
}

static bool cpu_is_shared(const struct perf *p, const struct control *peer) {
    return p->ep.options.mode == MODE_SPIN && peer->host != 0 && peer->host == pin_host_key() &&
           peer->cpu == p->ep.pin.cpu;
}

int perf_plan(struct perf *p, uint64_t size, uint64_t count, uint16_t flags) {
    struct control plan = {.kind = CONTROL_PLAN, .size = size, .count = count, .flags = flags};
    bool many = p->o.sessions > 1;
    if (count == 0)
        plan.flags |= CONTROL_UNTIL_END;
    if (many) {
        plan.flags |= CONTROL_MANY | (p->o.in_turn ? CONTROL_IN_TURN : 0);
        plan.sent = p->o.sessions;
    }
    int rc = endpoint_say(&p->ep, &plan);
    if (rc == 0)
        rc = endpoint_hear(&p->ep, &p->peer, CONTROL_READY, NULL);
    if (rc == 0 && many)
        rc = many_dial(&p->ep, p->o.sessions, p->peer.checksum);
    if (rc != 0)
        return rc;
    p->ep.many.running = many;
    p->ep.data_size = size;
    if (cpu_is_shared(p, &p->peer))
        endpoint_share_cpu(&p->ep);
    if (!p->have_floor)
        measure_floor(p);
    return tool_stopped() ? TOOL_FAILED : 0;
}

/* Of the software device's two. */
static const char *way(const struct perf *p) {
    sluice_session_info session = {.size = sizeof session};
    if (sluice_session_get_info(p->ep.session, &session) == 0 &&
        session.transport == SLUICE_TRANSPORT_TCP)
        return ", over TCP";
    return "";
}

void perf_heading(struct perf *p) {
    if (p->o.json || p->have_heading)
        return;
    p->have_heading = true;
    sluice_node_info info = {.size = sizeof info};
    int status = sluice_node_get_info(p->ep.node, &info);
    char mine[32] = "not pinned", theirs[32] = "not pinned";
    if (p->ep.pin.cpu >= 0)
        snprintf(mine, sizeof mine, "CPU %d", p->ep.pin.cpu);
    if (p->peer.cpu >= 0)
        snprintf(theirs, sizeof theirs, "CPU %d", p->peer.cpu);
    char sessions[64] = "";
    if (p->o.sessions > 1)
        snprintf(sessions, sizeof sessions, ", %llu sessions%s", (unsigned long long)p->o.sessions,
                 p->o.in_turn ? " in turn"
                 : p->o.each  ? ", each"
                              : "");
    printf("# %s: device %s%s%s, mode %s, %s, server %s%s\n", tool_name(),
           status == 0 ? info.device : "unknown",
           status == 0 && info.software != 0 ? " (software, not a NIC)" : "", way(p),
           endpoint_mode_name(&p->ep), mine, theirs, sessions);
    p->tool->heading(p);
}

static int run_sizes(struct perf *p) {
    uint64_t max = p->ep.message_bytes_max;
    if (!p->o.all && p->o.size > max)
        return tool_fail("-s: messages of %llu bytes are more than this session carries: %llu",
                         (unsigned long long)p->o.size, (unsigned long long)max);
    uint64_t size = p->o.all ? 1 : p->o.size;
    uint64_t last = !p->o.all ? size : max < PERF_ALL_MAX ? max : PERF_ALL_MAX;
    for (;;) {
        p->have_floor = false;
        int rc = p->tool->run(p, size);
        if (rc == 0)
            rc = tool_flush();
        if (rc != 0)
            return rc;
        if (size == 0 || size > last / 2)
            return 0;
        size *= 2;
    }
}

static int client(struct perf *p) {
    int rc = endpoint_dial(&p->ep, p->address);
    if (rc == 0)
        rc = run_sizes(p);
    if (!tool_stopped())
        endpoint_hangup(&p->ep);
    return rc;
}

/* ---- server ------------------------------------------------------------------------------------ */

static int serve_plan(struct perf *p, const struct control *plan) {
    if (plan->size > p->ep.message_bytes_max)
        return endpoint_fail_both(&p->ep,
                                  "the client asks for messages of %llu bytes, the session"
                                  " carries %llu",
                                  (unsigned long long)plan->size,
                                  (unsigned long long)p->ep.message_bytes_max);
    p->ep.data_size = plan->size;
    if (cpu_is_shared(p, plan))
        endpoint_share_cpu(&p->ep);
    bool many = (plan->flags & CONTROL_MANY) != 0;
    int rc = many ? many_expect(&p->ep, plan->sent) : 0;
    if (rc != 0)
        return rc;
    struct control ready = {
        .kind = CONTROL_READY, .flags = many ? CONTROL_MANY : 0, .checksum = p->ep.many.token};
    p->ep.many.running = many;
    rc = endpoint_say(&p->ep, &ready);
    if (rc == 0)
        rc = p->tool->serve(p, plan);
    p->ep.many.running = false;
    return rc;
}

static int serve_client(struct perf *p) {
    uint64_t rounds = 0;
    int rc = 0;
    for (;;) {
        struct control plan;
        bool ended = false;
        rc = endpoint_hear(&p->ep, &plan, CONTROL_PLAN, &ended);
        if (rc != 0 || ended)
            break;
        rc = serve_plan(p, &plan);
        if (rc != 0)
            break;
        rounds++;
    }
    p->ep.share_cpu = false; /* the next client may be on another CPU */
    if (rc == 0 && rounds == 0)
        rc = tool_fail("the client %s left without asking for anything", p->ep.peer);
    return rc;
}

static int server(struct perf *p) {
    int rc = endpoint_listen(&p->ep, p->address);
    if (rc != 0)
        return rc;
    do {
        rc = endpoint_accept(&p->ep);
        if (rc != 0)
            return rc;
        rc = serve_client(p);
        if (!tool_stopped())
            endpoint_hangup(&p->ep);
    } while (p->o.keep && !tool_stopped());
    return rc;
}

int perf_main(struct perf *p, const struct perf_tool *tool, int argc, char **argv) {
    p->tool = tool;
    int rc = read_options(p, argc, argv);
    if (rc >= 0)
        return rc;
    struct endpoint_options options = {
        .device = p->o.device,
        .mode = p->o.mode,
        .pin = true,
        .wait = p->o.wait,
        .cpu = p->o.have_cpu ? (int64_t)p->o.cpu : -1,
        .queue = ENDPOINT_QUEUE_MAX,
        .window = (uint32_t)p->o.window,
        .credits = (uint32_t)p->o.credits,
        .requests = (uint32_t)p->o.requests,
        .sessions = (uint32_t)p->o.sessions,
        .without = (uint32_t)p->o.without,
        .resume_ns = p->o.resume_ns,
        .rendezvous = (uint32_t)p->o.rendezvous,
        .rendezvous_above = p->o.rendezvous_above,
        .tool = tool->id,
    };
    rc = endpoint_open(&p->ep, &options);
    if (rc == 0) {
        clock_start();
        rc = p->o.host != NULL ? client(p) : server(p);
        endpoint_close(&p->ep);
    }
    return rc;
}
