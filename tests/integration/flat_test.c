/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * flat_test.c - what a node uses does not grow with what it has done: sessions that come and go while others carry
 * messages of all sizes, requests, and memory sent in place. Registered memory, descriptors, threads and resident
 * memory are at the end what they were when it was warm: after 400 sessions, or half of the traffic. Where threads
 * take turns as they like, any stretch may bring a new most of what was ever out at once, and an arena for it. That
 * ends, and what leaks does not: so a stretch in which something grew is followed by another one, but not for ever.
 *
 * FLAT_CYCLES sessions are opened and closed (default 1200), and traffic goes for FLAT_SECONDS (default 2); both with
 * a loop that is polled and with a worker. The long one, ten minutes of traffic:
 *
 *   FLAT_CYCLES=10000 FLAT_SECONDS=300 SLUICE_DEVICE=soft build/release/tests/flat_test
 */
#include "support/side.h"

#include <sluice/memory.h>

#include "common/sanitize.h"
#include "support/tasks.h"
#include "support/usage.h"

/*
 * What is made once, when it is needed first, is no growth: an arena that is added ahead, which on the software
 * device is a descriptor, with the thread that adds it; what the registration cache watches with; pages of rings
 * that are gone round for the first time, which is why there are few sessions here.
 */
enum { NAMES = 512, PAIRS = 3, WARM = 400, ROUNDS = 400, STRETCHES = 4 };

static const sluice_node_options small = {.sessions_max = 64};

static uint64_t number(const char *name, uint64_t usual) {
    const char *value = getenv(name);
    return value && *value ? strtoull(value, NULL, 10) : usual;
}

/* ---- what is used ---------------------------------------------------------------------------------- */

struct level {
    uint64_t fds, threads, registered, resident;
    char fd[NAMES][48]; /* what each is */
};

static int by_name(const void *a, const void *b) {
    return strcmp(a, b);
}

static void level_of(struct couple *c, struct level *level) {
    memset(level, 0, sizeof *level);
    for (int fd = 0; fd < NAMES; fd++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, level->fd[level->fds], sizeof level->fd[0] - 1) > 0) {
            char *unique = strpbrk(level->fd[level->fds], "[("); /* an inode, or "(deleted)" */
            if (unique)
                *unique = 0;
            level->fds++;
        }
    }
    qsort(level->fd, level->fds, sizeof level->fd[0], by_name);
    level->threads = tasks_alive();
    level->resident = usage_resident();
    struct side *sides[] = {&c->a, &c->b};
    for (int i = 0; i < 2; i++) {
        sluice_node_info info = {.size = sizeof info};
        must(sluice_node_get_info(sides[i]->node, &info) == 0);
        level->registered += info.memory_bytes;
    }
}

static void print_level(const char *when, const struct level *l) {
    print_message("%s: %llu KiB registered, %llu descriptors, %llu threads, %llu KiB resident\n",
                  when, (unsigned long long)l->registered / 1024, (unsigned long long)l->fds,
                  (unsigned long long)l->threads, (unsigned long long)l->resident / 1024);
}

/* Descriptors by kind, where the two differ. */
static void print_fds(const struct level *before, const struct level *now) {
    uint64_t i = 0, k = 0;
    while (i < before->fds || k < now->fds) {
        int order = i == before->fds ? 1 : k == now->fds ? -1 : strcmp(before->fd[i], now->fd[k]);
        if (order < 0)
            print_message("gone: %s\n", before->fd[i]);
        if (order > 0)
            print_message("new: %s\n", now->fd[k]);
        i += order <= 0;
        k += order >= 0;
    }
}

static bool is_flat(const struct level *before, const struct level *now) {
    return now->fds <= before->fds && now->threads <= before->threads &&
           now->registered <= before->registered;
}

static bool is_resident(const struct level *before, const struct level *now) {
#if defined(SANITIZE_ADDRESS) || defined(SANITIZE_THREAD) /* those keep freed memory */
    (void)before, (void)now;
    return true;
#else
    return now->resident <= before->resident + (4u << 20);
#endif
}

/* What is put away after the last event may take a turn or two more. */
static bool stays_at(struct couple *c, const struct level *before, bool last) {
    static struct level now;
    uint64_t until = sluice_now() + (last ? 10000 : 1000) * MS;
    struct note note;
    do {
        must(!side_next(&c->a, &note, MS) && !side_next(&c->b, &note, MS));
        level_of(c, &now);
    } while (!is_flat(before, &now) && sluice_now() < until);
    print_level("end", &now);
    print_fds(before, &now);
    return is_flat(before, &now) && is_resident(before, &now);
}

/* Stretches of work until one leaves all as it was. */
static void is_flat_at_last(struct couple *c, void (*work)(struct couple *c, uint64_t *i),
                            uint64_t *i) {
    static struct level before;
    bool flat = false;
    for (int stretch = 1; !flat && stretch <= STRETCHES; stretch++) {
        struct note note;
        must(!side_next(&c->a, &note, 20 * MS) && !side_next(&c->b, &note, 20 * MS));
        level_of(c, &before);
        print_level("warm", &before);
        work(c, i);
        flat = stays_at(c, &before, stretch == STRETCHES);
    }
    assert_true(flat);
}

/* ---- sessions that come and go ---------------------------------------------------------------------- */

static void a_session(struct couple *c, uint64_t i) {
    couple_connect(c, NULL);
    if (i % 3) {
        size_t bytes = i % 3 == 1 ? 100 : 40000;
        must(side_send(&c->b, c->at_b, bytes, i, 0) == 0);
        struct note note = side_expect(&c->a, SLUICE_MESSAGE);
        must(it_matches(note.msg, bytes, i));
        note_free(&note);
    }
    bool dialer = i % 2;
    sluice_hangup(dialer ? c->at_b : c->at_a, 0);
    side_expect_closed(dialer ? &c->b : &c->a, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(dialer ? &c->a : &c->b, SLUICE_REASON_PEER_CLOSE);
}

static void sessions(struct couple *c, uint64_t *i) {
    for (uint64_t end = *i + number("FLAT_CYCLES", 1200); *i < end; (*i)++)
        a_session(c, *i);
}

BOTH_MODES(sessions_that_come_and_go_leave_nothing) {
    struct couple c;
    uint64_t i = 0;
    couple_open(&c, handlers_of(state), &small);
    for (; i < WARM; i++)
        a_session(&c, i);
    is_flat_at_last(&c, sessions, &i);
    couple_close(&c);
}

/* ---- traffic of every kind, while others come and go ------------------------------------------------- */

static void a_message(struct couple *c, sluice_session from, uint64_t i) {
    static const size_t sizes[] = {0, 64, 3000, 9000, 70000, 300000, 1500000};
    size_t bytes = sizes[i % (sizeof sizes / sizeof sizes[0])];
    must(side_send(&c->b, from, bytes, i, i + 1) == 0);
    struct note note = side_expect(&c->a, SLUICE_MESSAGE);
    must(it_matches(note.msg, bytes, i));
    note_free(&note);
    must(side_expect(&c->b, SLUICE_SENT).event.status == 0);
}

/* Memory that is mapped and unmapped, registered meanwhile where that is possible. */
static void a_message_in_place(struct couple *c, sluice_session from, uint64_t i) {
    size_t bytes = 20000 + i % 7 * 4096;
    void *memory = malloc(bytes);
    must(memory);
    memset(memory, (int)(i & 255), bytes);
    const sluice_piece piece = {memory, bytes, NULL};
    sluice_send_options o = {.size = sizeof o, .tag = i + 1, .flags = SLUICE_IN_PLACE};
    must(sluice_send_pieces(from, &piece, 1, &o) == 0);
    struct note note = side_expect(&c->a, SLUICE_MESSAGE);
    must_data_equal(sluice_size(note.msg), bytes);
    must_data_bytes(sluice_data(note.msg), memory, bytes);
    note_free(&note);
    must(side_expect(&c->b, SLUICE_SENT).event.status == 0);
    free(memory);
}

static void a_request(struct couple *c, sluice_session from, uint64_t i) {
    sluice_msg *msg;
    must(sluice_alloc(c->b.node, 100 + i % 5000, &msg) == 0);
    it_fill(msg, i);
    must(sluice_request(from, msg, SLUICE_SEND(.tag = i + 1)) == 0);
    struct note note = side_expect(&c->a, SLUICE_REQUEST);
    must(sluice_reply(note.event.session, note.event.token, note.msg) == 0);
    note = side_expect(&c->b, SLUICE_REPLY);
    must(note.event.status == 0 && it_matches(note.msg, 100 + i % 5000, i));
    note_free(&note);
}

static sluice_session pairs[PAIRS];

/* Half of the time; so many rounds in any case, however slow the machine is. */
static void traffic(struct couple *c, uint64_t *i) {
    uint64_t until = sluice_now() + number("FLAT_SECONDS", 2) * 500000000u, least = *i + ROUNDS;
    for (; sluice_now() < until || *i < least; (*i)++) {
        sluice_session from = pairs[*i % PAIRS];
        switch (*i % 20) {
        case 0:
            a_session(c, *i);
            break;
        case 7:
            a_message_in_place(c, from, *i);
            break;
        case 11:
        case 12:
            a_request(c, from, *i);
            break;
        default:
            a_message(c, from, *i);
        }
    }
}

BOTH_MODES(mixed_traffic_uses_no_more_and_more) {
    struct couple c;
    uint64_t i = 0;
    couple_open(&c, handlers_of(state), &small);
    for (int k = 0; k < PAIRS; k++) {
        couple_connect(&c, NULL);
        pairs[k] = c.at_b;
    }
    traffic(&c, &i);
    is_flat_at_last(&c, traffic, &i);
    print_message("%llu rounds\n", (unsigned long long)i);
    couple_close(&c);
}
