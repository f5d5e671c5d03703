/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * history_peer - one end of a session that outlives its connection, and the history of what it gave, was told and got.
 *
 *   history_peer listen|dial:PORT SEED COUNT FILE
 *
 * Gives COUNT messages, requests and puts, chosen by the seed, and answers what comes. Says "port N", "at N" now and then, "done
 * arrives=N" when all have their outcome: so many of them the other end gets. "until N" on its input: when it has got so many it
 * writes down which puts are in its memory, says "whole" and waits for the end of its input. What breaks is said by
 * SLUICE_SOFT_FAULTS. One thread.
 */
#include "support/history.h"
#include "support/side.h"

enum { MOST = 4096, RECORDS = 1 << 16, STEP = 40 };

static struct {
    sluice_node *node;
    sluice_loop *loop;
    sluice_session session;
    sluice_region *mine, *own; /* what the other end writes to; where its bytes come from here */
    sluice_token token;        /* of the other end's */
    struct history history;
    uint64_t seed, wanted;
    unsigned count, given, told, arrived, arrives;
    bool up, opened, full, done, last, whole;
} me;

static uint32_t chance(uint32_t below) {
    me.seed = me.seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(me.seed >> 33) % below;
}

/* ---- what is given ------------------------------------------------------------------------------ */

static size_t size_of(unsigned number) {
    static const size_t sizes[] = {8, 9, 64, 200, 511, 3000, 8168, 8169, 20000, 100000};
    return sizes[number * 7 % (sizeof sizes / sizeof *sizes)];
}

static sluice_msg *numbered(unsigned number, size_t bytes) {
    sluice_msg *msg;
    uint64_t word = number;
    if (sluice_alloc(me.node, bytes, &msg) != 0)
        return NULL;
    it_fill(msg, number);
    memcpy(sluice_data(msg), &word, sizeof word);
    return msg;
}

/* It is whole, and this is its number. */
static unsigned number_of(sluice_msg *msg, size_t more) {
    uint64_t word;
    must_data(sluice_size(msg) >= sizeof word);
    memcpy(&word, sluice_data(msg), sizeof word);
    must_data(word < MOST);
    uint8_t *data = sluice_data(msg);
    memcpy(data, it_pattern(0, sizeof word, word), sizeof word);
    must_data(it_matches(msg, size_of((unsigned)word) + more, word));
    return (unsigned)word;
}

static int give_message(const sluice_send_options *o) {
    sluice_msg *msg = numbered(me.given, size_of(me.given));
    int status = msg ? sluice_send(me.session, msg, o) : SLUICE_EAGAIN;
    if (msg && status != 0)
        sluice_free(msg);
    return status;
}

static int give_request(const sluice_send_options *o) {
    sluice_msg *msg = numbered(me.given, size_of(me.given));
    int status = msg ? sluice_request(me.session, msg, o) : SLUICE_EAGAIN;
    if (msg && status != 0)
        sluice_free(msg);
    return status;
}

static int give_put(const sluice_send_options *o) {
    uint64_t word = me.given + 1, at = 8ull * me.given;
    memcpy((uint8_t *)sluice_region_data(me.own) + at, &word, sizeof word);
    return sluice_put(me.session, me.own, at, sizeof word, &me.token, at, o);
}

static void give(void) {
    enum history_kind kind = (enum history_kind)(chance(5) ? chance(2) * 2 : HISTORY_REQUEST);
    const sluice_send_options *o =
        SLUICE_SEND(.tag = me.given + 1, .flags = chance(4) == 0 ? SLUICE_MORE : 0);
    int status = kind == HISTORY_MESSAGE ? give_message(o)
                 : kind == HISTORY_PUT   ? give_put(o)
                                         : give_request(o);
    must(status == 0 || status == SLUICE_EAGAIN);
    me.full = status != 0;
    if (me.full)
        return;
    history_add(&me.history, HISTORY_GIVEN, kind, me.given, 0);
    if (++me.given % STEP == 0)
        printf("at %u\n", me.given), fflush(stdout);
}

/* ---- what comes --------------------------------------------------------------------------------- */

static void told(enum history_kind kind, const sluice_event *event) {
    history_add(&me.history, HISTORY_TOLD, kind, (uint32_t)event->tag - 1, event->status);
    me.told++;
    me.arrives += kind != HISTORY_PUT && (event->status == 0 || event->status == SLUICE_EUNKNOWN);
}

static void arrived(enum history_kind kind, unsigned number) {
    history_add(&me.history, HISTORY_ARRIVED, kind, number, 0);
    me.arrived++;
}

static void on_message(const sluice_event *event) {
    if (me.opened) {
        arrived(HISTORY_MESSAGE, number_of(event->msg, 0));
        return;
    }
    must_data(event->bytes == sizeof me.token);
    memcpy(&me.token, sluice_data(event->msg), sizeof me.token);
    me.opened = true;
}

static void on_request(const sluice_event *event) {
    unsigned number = number_of(event->msg, 0);
    sluice_msg *msg = numbered(number, size_of(number) + 1);
    must(msg);
    arrived(HISTORY_REQUEST, number);
    must(sluice_reply(event->session, event->token, msg) == 0);
}

static void on_up(const sluice_event *event) {
    sluice_token token;
    me.session = event->session;
    me.up = true;
    if (event->tag > 0) {
        history_add(&me.history, HISTORY_UP, HISTORY_MESSAGE, 0, 0);
        return;
    }
    must(sluice_region_token(me.mine, 0, 8ull * MOST, SLUICE_MAY_WRITE, &token) == 0);
    must(sluice_send_copy(me.session, &token, sizeof token, NULL) == 0);
}

static void see(const sluice_event *event) {
    switch ((sluice_event_type)event->type) {
    case SLUICE_UP:
        on_up(event);
        return;
    case SLUICE_DOWN:
        history_add(&me.history, HISTORY_DOWN, HISTORY_MESSAGE, 0, 0);
        return;
    case SLUICE_CLOSED:
        history_add(&me.history, HISTORY_CLOSED, HISTORY_MESSAGE, 0, event->status);
        if (!me.last)
            fprintf(stderr, "closed: %s\n", sluice_reason_text(event->reason));
        must(me.last);
        return;
    case SLUICE_MESSAGE:
        on_message(event);
        return;
    case SLUICE_REQUEST:
        on_request(event);
        return;
    case SLUICE_SENT:
        told(HISTORY_MESSAGE, event);
        return;
    case SLUICE_REPLY:
        if (event->status == 0)
            must_data_equal(number_of(event->msg, 1), event->tag - 1);
        told(HISTORY_REQUEST, event);
        return;
    case SLUICE_DONE:
        told(HISTORY_PUT, event);
        return;
    case SLUICE_WRITABLE:
        me.full = false;
        return;
    case SLUICE_WAKE:
    case SLUICE_CONNECT:
    case SLUICE_LARGE:
    case SLUICE_NOTIFIED:
    case SLUICE_MOVED:
        must(!"an event of these");
    }
}

/* ---- its turns ----------------------------------------------------------------------------------- */

/* The next word of the test, if there is one. False: its end. */
static bool listen_to_test(void) {
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char line[64];
    if (poll(&p, 1, 0) <= 0)
        return true;
    if (!fgets(line, sizeof line, stdin))
        return false;
    must(sscanf(line, "until %lu", &me.wanted) == 1);
    me.last = true;
    return true;
}

static void say_what_is_so(void) {
    if (!me.done && me.given == me.count && me.told == me.given) {
        printf("done arrives=%u\n", me.arrives);
        fflush(stdout);
        me.done = true;
    }
    if (!me.last || me.whole || me.arrived < me.wanted)
        return;
    for (unsigned k = 0; k < MOST; k++) {
        uint64_t word;
        memcpy(&word, (uint8_t *)sluice_region_data(me.mine) + 8ull * k, sizeof word);
        must_data(word == 0 || word == k + 1);
        if (word != 0)
            history_add(&me.history, HISTORY_ARRIVED, HISTORY_PUT, k, 0);
    }
    me.whole = true;
    puts("whole");
    fflush(stdout);
}

static void connect_to(const char *where) {
    sluice_error e = {0};
    sluice_listener listener;
    const sluice_link_options *link =
        SLUICE_LINK(.loop = me.loop, .resume_ns = LIMIT_NS, .timeout_ns = LIMIT_NS,
                    .window_messages = chance(2) ? 0 : 4 + chance(40));
    if (strcmp(where, "listen") == 0) {
        must(sluice_listen(me.node, it_address(0), link, &listener, &e) == 0);
        printf("port %d\n", sluice_listener_port(listener));
        fflush(stdout);
    } else {
        must(sluice_dial(me.node, it_address(atoi(where + 5)), link, &me.session, &e) == 0);
    }
}

int main(int argc, char **argv) {
    sluice_error e = {0};
    must_end_process = true;
    must(argc == 5);
    me.seed = strtoull(argv[2], NULL, 10);
    me.count = (unsigned)atoi(argv[3]);
    must(me.count <= MOST && history_create(&me.history, argv[4], RECORDS));
    setvbuf(stdin, NULL, _IONBF, 0);
    must(sluice_open(&me.node, SLUICE_NODE(.device = it_device(), .workers = SLUICE_NO_WORKERS),
                     &e) == 0);
    must(sluice_loop_open(me.node, &me.loop, &e) == 0);
    must(sluice_region_open(me.node, NULL, 8ull * MOST, SLUICE_MAY_WRITE, &me.mine, &e) == 0);
    must(sluice_region_open(me.node, NULL, 8ull * MOST, 0, &me.own, &e) == 0);
    connect_to(argv[1]);
    while (listen_to_test()) {
        sluice_event events[16];
        for (unsigned n = chance(4); n > 0 && me.opened && !me.full && me.given < me.count; n--)
            give();
        int got = sluice_poll(me.loop, events, (int)(1 + chance(16)), MS);
        must(got >= 0);
        for (int i = 0; i < got; i++)
            see(&events[i]);
        say_what_is_so();
    }
    sluice_close(me.node, 0);
    history_close(&me.history);
    return verdict_status(0);
}
