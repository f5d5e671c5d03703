/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * frames_test.c - every frame of the protocol said wrong, in each way that it can be, by a process of this user and by
 * one of another: its session ends for the reason that is true, or goes on where nothing was broken, and an honest pair
 * on the same loop does not notice.
 */
#include "hostile/command.h"
#include "hostile/frame_form.h"
#include "hostile/victim.h"

#define END_NS (20000 * MS)

static bool is_own(unsigned i) {
    return i < frame_form_own();
}

/* A type that the protocol gets must be added to what is said wrong. */
TEST(every_type_of_frame_is_said_wrong) {
    for (unsigned type = 1; type < FRAME_TYPES; type++) {
        unsigned own = 0, made = 0, stages = 0;
        if (frame_specimen[type].type != type)
            fail_msg("there is no specimen of frame type %u", type);
        for (unsigned i = 0; i < frame_form_count(); i++) {
            struct frame_form form;
            frame_form_get(i, &form);
            if (!form.name || form.type != type)
                continue;
            own += is_own(i);
            made += !is_own(i);
            stages |= 1u << form.stage;
        }
        if (own == 0)
            fail_msg("frame type %u is not said wrong in a way of its own", type);
        assert_true(made >= 12);
        assert_true(stages & 1u << STAGE_UP && stages & 1u << STAGE_BYE);
        assert_true(stages & (1u << STAGE_HELLO | 1u << STAGE_ANSWER));
    }
}

static void wrong_end(const struct frame_form *form, const char *what) {
    fprintf(stderr, "type %u, %s: %s; up %u, closed %u, reasons 0x%x, logged 0x%x, expected 0x%x\n",
            form->type, form->name, what, atomic_load(&victim_seen.ups),
            atomic_load(&victim_seen.closed), atomic_load(&victim_seen.reasons),
            atomic_load(&victim_seen.logged), form->outcomes);
    must(!"the end that it should have");
}

static void is_seen(const struct frame_form *form) {
    uint64_t until = sluice_now() + END_NS;
    bool told = form->stage != STAGE_HELLO; /* else the application hears nothing */
    while (form->outcomes != UNTOLD &&
           atomic_load(told ? &victim_seen.closed : &victim_seen.logged) == 0) {
        if (sluice_now() >= until)
            wrong_end(form, "no end");
        sched_yield();
    }
    uint32_t reasons = atomic_load(told ? &victim_seen.reasons : &victim_seen.logged);
    if ((reasons & form->outcomes) != reasons || (reasons & (reasons - 1)) != 0)
        wrong_end(form, "another end");
    if (reasons == GOES_ON && atomic_load(&victim_seen.last) == 0)
        wrong_end(form, "nobody hung up");
    if (!told && atomic_load(&victim_seen.ups) > 0)
        wrong_end(form, "it came up");
}

/* True: nobody was delayed. */
static bool withstands(struct peer *peer, unsigned i, unsigned at, struct victim_worst *all) {
    struct frame_form form;
    char line[64];
    frame_form_get(i, &form);
    victim_forget();
    victim_serve(form.need);
    snprintf(line, sizeof line, "frame %u %u", i, victim_port());
    (void)victim_take();
    peer_tell(peer, line);
    if (form.stage == STAGE_ANSWER)
        victim_dial(at);
    peer_expect(peer, "done");
    is_seen(&form);
    struct victim_worst worst = victim_take();
    bool good = victim_withstood(&worst);
    if (good)
        victim_worse(all, &worst);
    else
        victim_tell(form.name, 0, &worst);
    return good;
}

TEST(a_wrong_frame_ends_its_own_session_and_delays_nobody) {
    unsigned uid;
    victim_open();
    for (unsigned turn = 0; command_user(turn, &uid); turn++) {
        struct peer peer;
        struct victim_worst all = {0};
        unsigned said = 0;
        victim_begin();
        unsigned at = command_start(&peer, uid);
        for (unsigned round = 0; round < (it_long() ? 20 : 1); round++)
            for (unsigned i = 0; i < frame_form_count(); i++) {
                struct frame_form form;
                unsigned tries = 1;
                frame_form_get(i, &form);
                if (!form.name)
                    continue;
                while (!withstands(&peer, i, at, &all) && tries < VICTIM_TRIES)
                    tries++;
                must(tries < VICTIM_TRIES);
                said++;
            }
        struct victim_worst rest = victim_measure(false);
        victim_worse(&all, &rest);
        print_message("    %u wrong frames\n", said);
        victim_tell("the worst of all of them", uid, &all);
        command_end(&peer);
        victim_end();
    }
    victim_close();
}

int main(void) {
    must_end_process = true; /* the honest pair has a thread of its own */
    if (!command_separate())
        return 77;
    return tests_run(NULL, NULL);
}
