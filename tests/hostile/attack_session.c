/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* attack_session.c - attacks by sessions with the victim's node. One thread. */
#include "support/side.h"

#include "hostile/attack.h"
#include "hostile/frame_speak.h"
#include "hostile/noise.h"
#include "soft/object/qp.h"

#define LINKS 16u
#define TRIES 20u
#define LANDINGS 62u
#define LANDING_BYTES (128u << 10)

static const struct link_terms plain;

/* In a session that is up on both sides; a busy victim may have had no time for the first tries. */
static void up(struct link *l, const struct attack_target *target, const struct link_terms *terms) {
    for (unsigned tries = 0; tries < TRIES; tries++) {
        if (link_dial(l, target->port, terms) && link_establish(l) && link_hear(l, FRAME_DATA))
            return;
        link_close(l);
    }
    must(!"a session");
}

static void announce(struct link *l, uint64_t number, uint64_t bytes) {
    const uint64_t words[FRAME_RTS_BYTES / 8] = {
        htole64(number | (uint64_t)FRAME_DATA << 16 | 2ull << 24)};
    const struct frame f = {.type = FRAME_RTS, .length = FRAME_RTS_BYTES, .total = bytes};
    must(link_say(l, f, words));
}

static void begin_message(struct link *l) {
    static const uint8_t bytes[100];
    const struct frame f = {.type = FRAME_FRAG,
                            .flags = FRAME_FIRST,
                            .total = LINK_MESSAGE_MAX,
                            .length = sizeof bytes};
    must(link_say(l, f, bytes));
}

/* ---- memory -------------------------------------------------------------------------------------------- */

/* Says that it is inside of the victim's memory. */
static void enter(struct link *l) {
    struct soft_qp *qp = soft_qp_of(l->qp);
    uint64_t until = sluice_now() + LINK_STEP_NS;
    while (!atomic_load(&qp->tx))
        must(sluice_now() < until);
    atomic_fetch_or(&atomic_load(&qp->tx)->tx.touching, 1);
}

void attack_stays_inside(const struct attack_target *target, unsigned dies) {
    struct link l;
    up(&l, target, &plain);
    enter(&l);
    attack_ready();
    if (dies)
        raise(SIGKILL);
    attack_stay();
}

void attack_inside_while_others_end(const struct attack_target *target, unsigned arg) {
    struct link inside, others[4];
    (void)arg;
    up(&inside, target, &plain);
    enter(&inside);
    for (;;) {
        for (unsigned i = 0; i < 4; i++) {
            up(&others[i], target, &plain);
            for (unsigned k = 0; k < 4; k++)
                announce(&others[i], k, LANDING_BYTES);
            must(link_hear(&others[i], FRAME_RTR));
        }
        for (unsigned i = 0; i < 4; i++)
            link_close(&others[i]);
        attack_ready();
    }
}

void attack_writes_nothing(const struct attack_target *target, unsigned arg) {
    struct link l;
    (void)arg;
    up(&l, target, &plain);
    announce(&l, 0, FORM_LARGE);
    must(link_hear(&l, FRAME_RTR));
    must(link_write_nothing(&l, 0));
    attack_stay();
}

void attack_reaches_before_hello(const struct attack_target *target, unsigned arg) {
    static const enum ibv_wr_opcode ways[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
                                              IBV_WR_ATOMIC_FETCH_AND_ADD};
    const struct link_terms greets = {.features = PRIVATE_DATA_FEATURE_HANDSHAKE};
    (void)arg;
    for (unsigned i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct link l;
        uint64_t until = sluice_now() + LINK_STEP_NS;
        must(link_dial(&l, target->port, &greets) && link_establish(&l));
        must(link_reach(&l, ways[i], target->address, target->rkey));
        while (l.done == 0) {
            link_poll(&l);
            must(sluice_now() < until);
        }
        must(l.status != IBV_WC_SUCCESS);
        link_close(&l);
    }
    attack_stay();
}

void attack_holds_landings(const struct attack_target *target, unsigned arg) {
    static struct link links[LINKS];
    (void)arg;
    for (unsigned i = 0; i < LANDINGS; i++) {
        struct link *l = &links[i / 4];
        if (i % 4 == 0)
            up(l, target, &plain);
        announce(l, i % 4, LANDING_BYTES);
    }
    must(link_hear(&links[0], FRAME_RTR));
    attack_stay();
}

void attack_begins_messages(const struct attack_target *target, unsigned arg) {
    static struct link links[LINKS];
    (void)arg;
    for (unsigned i = 0; i < LINKS; i++) {
        up(&links[i], target, &plain);
        begin_message(&links[i]);
    }
    attack_stay();
}

/* ---- time ---------------------------------------------------------------------------------------------- */

void attack_waits(const struct attack_target *target, unsigned deaf) {
    const struct link_terms terms = {.deaf = deaf};
    struct link l;
    unsigned tries = 1;
    for (; !link_dial(&l, target->port, &terms) || !link_establish(&l); tries++) {
        link_close(&l);
        must(tries < TRIES);
    }
    attack_stay();
}

void attack_half_opens(const struct attack_target *target, unsigned arg) {
    static struct link links[64];
    (void)arg;
    for (unsigned i = 0; i < sizeof links / sizeof links[0]; i++)
        (void)link_dial(&links[i], target->port, &plain); /* it may have had enough of them */
    attack_stay();
}

void attack_dies(const struct attack_target *target, unsigned step) {
    static const uint8_t hello[50];
    const struct link_terms terms = {.features = step == 6 ? PRIVATE_DATA_FEATURE_HANDSHAKE : 0};
    struct link l;
    attack_ready();
    link_dies_at(step);
    must(link_dial(&l, target->port, &terms) && link_establish(&l));
    if (step == 6) {
        must(link_say(&l, (struct frame){.type = FRAME_HELLO, .length = sizeof hello}, hello));
        link_step(6);
    }
    must(link_hear(&l, FRAME_DATA));
    link_step(7);
    begin_message(&l);
    link_step(8);
    link_close(&l);
    up(&l, target, &plain);
    announce(&l, 0, LANDING_BYTES);
    link_step(9);
    must(link_hear(&l, FRAME_RTR));
    link_step(10);
    must(!"a step at which it dies");
}

/* The modes of noise.h, without end. */
void attack_makes_noise(const struct attack_target *target, unsigned mode) {
    static const char *const modes[] = {"records", "frames", "flood", "vanish", "scribble"};
    for (;;) {
        noise_dial(modes[mode], target->port);
        attack_ready();
    }
}
