/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* noise.c - see noise.h. One thread; the numbers are the same in every run. */
#include "support/side.h"

#include "hostile/noise.h"
#include "soft/ipc/spinlock.h"
#include "soft/object/qp.h"
#include "soft/object/ring.h"

static const char *mode = "";
static uint64_t seed = 88172645463325252u;

static uint32_t random32(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

static bool mode_is(const char *name) {
    return strcmp(mode, name) == 0;
}

static void tamper(uint8_t *data, uint8_t *bytes, unsigned most) {
    unsigned kind = random32() % 8;
    for (unsigned i = random32() % 5 + (kind < 6); i > 0; i--)
        data[random32() % most] = (uint8_t)random32();
    if (kind == 0)
        *bytes = (uint8_t)(random32() % (most + 1));
    if (kind == 1)
        for (unsigned i = 0; i < most; i++)
            data[i] = (uint8_t)random32();
}

static struct link_terms terms(void) {
    return (struct link_terms){.deaf = mode_is("mute"),
                               .tamper = mode_is("records") ? tamper : NULL};
}

/* ---- what is done with a session --------------------------------------------------------------------- */

static bool post(struct link *l, const struct frame *f, size_t bytes) {
    return link_post(l, f, bytes, random32() % 16 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM);
}

static void frames(struct link *l) {
    uint32_t sequence = 1;
    for (unsigned i = 0; i < 14; i++) { /* within its credits */
        struct frame f = {.type = (uint8_t)(1 + random32() % 4), .sequence = sequence};
        size_t bytes = FRAME_BYTES + random32() % 4000;
        f.length = (uint32_t)(bytes - FRAME_BYTES);
        if (f.type == FRAME_FRAG) {
            f.flags = (uint8_t)(random32() % 5);
            f.total = random32() % 3 ? random32() % 20000 : UINT64_MAX - random32() % 3;
        }
        switch (random32() % 12) {
        case 0:
            f.sequence = random32();
            break;
        case 1:
            f.ack = random32() % 8;
            break;
        case 2:
            f.credits = (uint16_t)(random32() % 2000);
            break;
        case 3:
            f.length = random32() % 2 ? UINT32_MAX : random32() % 5000;
            break;
        case 4:
            f.type = (uint8_t)random32();
            break;
        case 5:
            bytes = random32() % FRAME_BYTES;
            break;
        case 6:
            for (unsigned k = 0; k < FRAME_BYTES; k++)
                ((uint8_t *)&f)[k] = (uint8_t)random32();
            break;
        default: /* in order, and believed */
            sequence += f.type == FRAME_DATA || f.type == FRAME_FRAG;
            break;
        }
        if (!post(l, &f, bytes))
            break;
    }
}

void noise_flood(struct link *l) {
    uint64_t until = sluice_now() + LINK_STEP_NS;
    for (uint32_t i = 1; sluice_now() < until;) {
        struct frame f = {.type = FRAME_DATA, .sequence = i, .length = 100};
        if (post(l, &f, FRAME_BYTES + 100))
            i++;
        if (link_ended(l))
            break;
    }
}

void noise_scribble(struct link *l) {
    struct soft_qp *qp = soft_qp_of(l->qp);
    uint64_t until = sluice_now() + LINK_STEP_NS;
    while (!atomic_load(&qp->tx) && sluice_now() < until)
        ;
    spin_lock(&qp->lock);
    struct soft_ring *rings[2] = {atomic_load(&qp->tx), atomic_load(&qp->rx)};
    for (unsigned r = 0; r < 2 && rings[r]; r++)
        for (unsigned i = 0; i < SOFT_RING_BYTES / 4; i++)
            __atomic_store_n((uint32_t *)(void *)rings[r] + i,
                             random32() % 3 ? random32() % 70 : random32(), __ATOMIC_RELAXED);
    spin_unlock(&qp->lock);
}

static void abuse(struct link *l) {
    if (mode_is("frames"))
        frames(l);
    else if (mode_is("flood"))
        noise_flood(l);
    else if (mode_is("scribble"))
        noise_scribble(l);
    if (!mode_is("vanish"))
        link_wait_for_the_end(LINK_END_NS);
}

/* ---- both roles ---------------------------------------------------------------------------------------- */

void noise_dial(const char *given, unsigned port) {
    struct link l;
    mode = given;
    must(it_soft() || !mode_is("scribble"));
    struct link_terms t = terms();
    if (link_dial(&l, port, &t)) {
        if (mode_is("half"))
            link_wait_for_the_end(LINK_END_NS);
        else if (link_establish(&l))
            abuse(&l);
    }
    link_close(&l);
}

void noise_serve(const char *given) {
    struct link l;
    mode = given;
    must(it_soft() || !mode_is("scribble"));
    struct link_terms t = terms();
    if (link_asked(&l, &t)) {
        if (mode_is("half"))
            link_wait_for_the_end(LINK_END_NS); /* never answers */
        else if (mode_is("records") && random32() % 3 == 0)
            link_refuse(&l, &t);
        else if (link_accept(&l, &t))
            abuse(&l);
    }
    link_close(&l);
}
