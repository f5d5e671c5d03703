/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * history_walk_test.c - two processes, a session that outlives its connection, and whatever breaks that: their histories agree.
 *
 * By a seed are chosen what each end gives, at which of its requests a queue pair breaks, and when a process stands still.
 */
#include "support/history.h"
#include "support/peer.h"
#include "support/side.h"

#include <time.h>

#define COUNT "300"

static uint64_t seed;

static uint32_t chance(uint32_t below) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

/* Where queue pairs of a process break, of the first dozen that it makes. */
static void plan_faults(void) {
    static const char *const breaks[] = {"status=RETRY_EXC_ERR", "status=WR_FLUSH_ERR", "cut",
                                         "delay=2ms"};
    char plan[1024];
    size_t n = 0;
    for (unsigned qp = 1; qp <= 12; qp++)
        if (chance(2))
            n += (size_t)snprintf(plan + n, sizeof plan - n, "qp=%u send=%u %s;", qp,
                                  5 + chance(200), breaks[chance(4)]);
    if (n > 0)
        setenv("SLUICE_SOFT_FAULTS", plan, 1);
    else
        unsetenv("SLUICE_SOFT_FAULTS");
}

static void start(struct peer *peer, const char *where, const char *file) {
    char text[24];
    plan_faults();
    snprintf(text, sizeof text, "%u", chance(1u << 30));
    peer_run(peer, "history_peer", where, text, COUNT, file);
    unsetenv("SLUICE_SOFT_FAULTS");
}

/* For a moment, within which the other end notices nothing, or much. */
static void stand_still(const struct peer *peer) {
    struct timespec a_while = {.tv_nsec = (long)chance(100) * 1000000};
    must(kill(peer->pid, SIGSTOP) == 0);
    nanosleep(&a_while, NULL);
    must(kill(peer->pid, SIGCONT) == 0);
}

/* Until it has said that all it gave has an outcome; returns how many of these arrive. */
static long long await_done(struct peer *peers, unsigned which) {
    for (;;) {
        const char *line = peer_line(&peers[which]);
        if (strncmp(line, "done ", 5) == 0)
            return peer_number(&peers[which], "arrives");
        must(strncmp(line, "at ", 3) == 0);
        if (chance(4) == 0)
            stand_still(&peers[chance(2)]);
    }
}

static void check(uint64_t from, char files[2][64]) {
    struct history both[2];
    for (unsigned i = 0; i < 2; i++)
        must(history_read(&both[i], files[i]));
    for (unsigned i = 0; i < 2; i++) {
        uint32_t number;
        const char *wrong = history_wrong(&both[i], &both[!i], &number);
        if (wrong)
            verdict_wrong_data("seed %llu: what end %u gave as %u: %s", (unsigned long long)from, i,
                               number, wrong);
        must(!wrong);
    }
    for (unsigned i = 0; i < 2; i++)
        history_close(&both[i]);
}

static unsigned downs(const char *file) {
    struct history h;
    unsigned count = 0;
    must(history_read(&h, file));
    for (uint32_t i = 0; i < h.count; i++)
        count += h.at[i].what == HISTORY_DOWN;
    history_close(&h);
    return count;
}

static unsigned one_walk(uint64_t from) {
    char files[2][64], text[64];
    struct peer peers[2];
    long long arrive[2];
    seed = from;
    for (unsigned i = 0; i < 2; i++)
        snprintf(files[i], sizeof files[i], "/tmp/sluice-history.%d.%u", (int)getpid(), i);
    start(&peers[0], "listen", files[0]);
    peer_expect(&peers[0], "port ");
    snprintf(text, sizeof text, "dial:%s", peers[0].line + 5);
    start(&peers[1], text, files[1]);
    for (unsigned i = 0; i < 2; i++)
        arrive[i] = await_done(peers, i);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(text, sizeof text, "until %lld", arrive[!i]);
        peer_tell(&peers[i], text);
    }
    for (unsigned i = 0; i < 2; i++)
        peer_expect(&peers[i], "whole");
    for (unsigned i = 0; i < 2; i++)
        must(peer_join(&peers[i]) == 0);
    check(from, files);
    unsigned count = downs(files[0]);
    for (unsigned i = 0; i < 2; i++)
        unlink(files[i]);
    return count;
}

TEST(two_processes_agree_on_what_happened_whatever_breaks) {
    unsigned count = 0;
    for (uint64_t from = 1; from <= (it_long() ? 300 : 30); from++)
        count += one_walk(from);
    must(count > 30); /* or nothing was tried */
}
