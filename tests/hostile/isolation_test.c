/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * isolation_test.c - an honest pair measures its worst round trip, how long it takes to set up another session and to
 * open and close a region, while a hostile process does its worst: of the same user, and of another one where that can
 * be had. At the end of each, descriptors, threads and memory of the victim are what they were, and what became of the
 * hostile sessions is true.
 *
 * An attack that seems to delay does so again when it is made again. In a network namespace of its own, where it may:
 * names that are taken away here would be missing elsewhere.
 */
#include "support/side.h"
#include "support/peer.h"
#include "support/network.h"

#include <inttypes.h>

#include "core/wire/token.h"
#include "hostile/attack.h"
#include "hostile/command.h"
#include "hostile/victim.h"

#define ROUNDS 200 /* round trips that must have been made under each attack */
#define FILL 0x5a

static bool own_namespace;

static void start(struct peer *peer, unsigned i, unsigned uid) {
    const sluice_token *given = victim_token(FILL);
    struct token token;
    char line[200];
    must(token_get(&token, given));
    (void)command_start(peer, uid);
    snprintf(line, sizeof line, "attack %u %u %u %u %d %" PRIx64 " %" PRIx32, i, victim_port(),
             victim_welcome(), victim_qpn(), (int)getpid(), token.addr, token.rkey);
    peer_tell(peer, line);
    peer_expect(peer, "ready");
}

/* Whoever has a name as of somebody's control socket is not believed. */
static void the_tool_is_told_nothing(void) {
    char command[512], said[512] = "";
    snprintf(command, sizeof command, "%s/sluice-soft ctl %d status 2>&1", getenv("SLUICE_BIN_DIR"),
             ATTACK_FORGED);
    FILE *tool = popen(command, "re");
    must(tool && fread(said, 1, sizeof said - 1, tool) > 0);
    must(WEXITSTATUS(pclose(tool)) == 1);
    must(strstr(said, "process 1 ") && !strstr(said, "forged"));
}

static void zeros_are_delivered(void) {
    uint64_t until = sluice_now() + LIMIT_NS;
    while (atomic_load(&victim_seen.large) == 0) {
        must(sluice_now() < until);
        sched_yield();
    }
    must_data(atomic_load(&victim_seen.wrong) == 0);
}

static void what_ended_is_true(const struct attack *attack) {
    uint32_t reasons = atomic_load(&victim_seen.reasons);
    if (reasons & ~attack->reasons)
        fprintf(stderr, "%s: reasons 0x%x, expected 0x%x\n", attack->name, reasons,
                attack->reasons);
    must((reasons & ~attack->reasons) == 0);
    must(atomic_load(&victim_seen.closed) == atomic_load(&victim_seen.ups));
    must(victim_untouched(FILL));
}

/* True: it delayed nobody. */
static bool withstands(unsigned i, unsigned uid, struct victim_worst *worst) {
    const struct attack *attack = attack_get(i);
    struct peer peer;
    victim_forget();
    victim_serve(attack->need);
    victim_move();
    victim_begin();
    start(&peer, i, uid);
    (void)victim_take();
    if (attack->flags & ATTACK_STOPS)
        must(kill(peer.pid, SIGSTOP) == 0);
    if (attack->flags & ATTACK_HUNG_UP)
        victim_hang_up();
    *worst = victim_measure(attack->flags & ATTACK_ONCE);
    if (attack->flags & ATTACK_ZEROS)
        zeros_are_delivered();
    if (attack->flags & ATTACK_FORGES)
        the_tool_is_told_nothing();
    victim_go_on(it_long() ? 100 * ROUNDS : ROUNDS);
    struct victim_worst more = victim_take();
    victim_worse(worst, &more);
    siginfo_t end;
    if (attack->flags & ATTACK_DIES) /* so far must it have come */
        must(waitid(P_PID, (id_t)peer.pid, &end, WEXITED | WNOWAIT) == 0);
    peer_kill(&peer);
    victim_end();
    what_ended_is_true(attack);
    victim_tell(attack->name, uid, worst);
    /* A process of our own may be inside of memory, for which a call waits; a stranger is not. */
    return victim_withstood(worst) &&
           (!command_is_stranger(uid) || worst->memory_ns < VICTIM_BOUND_NS / 2);
}

static bool can_be_made(const struct attack *attack, unsigned uid) {
    return (own_namespace || !(attack->flags & ATTACK_NAMES)) &&
           (command_is_stranger(uid) || !(attack->flags & ATTACK_STRANGER));
}

TEST(nobody_delays_an_honest_pair) {
    unsigned uid;
    if (!own_namespace)
        fprintf(stderr, "SKIPPED in part: needs root for a network namespace of its own\n");
    victim_open();
    for (unsigned turn = 0; command_user(turn, &uid); turn++) {
        struct victim_worst all = {0}, worst;
        for (unsigned i = 0; i < attack_count(); i++) {
            unsigned tries = 1;
            if (!can_be_made(attack_get(i), uid))
                continue;
            while (!withstands(i, uid, &worst) && tries < VICTIM_TRIES)
                tries++;
            assert_uint_in_range(tries, 1, VICTIM_TRIES - 1);
            victim_worse(&all, &worst);
        }
        victim_tell("the worst of all attacks", uid, &all);
    }
    victim_close();
}

int main(void) {
    must_end_process = true; /* the honest pair has a thread of its own */
    if (!command_separate())
        return 77;
    own_namespace = getenv("HOSTILE_STRANGERS") || network_separate();
    return tests_run(NULL, NULL);
}
