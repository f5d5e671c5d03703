/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* frame_speak.c - see frame_speak.h. One thread. */
#include "support/side.h"

#include "hostile/frame_speak.h"

static void write_nothing(struct link *l, const struct form_step *step) {
    (void)link_write_nothing(l, (uint32_t)step->total);
}

static void say(struct link *l, const struct form_step *step) {
    struct frame f = {.type = step->type,
                      .flags = step->flags,
                      .credits = step->credits,
                      .ack = step->ack,
                      .length = step->length,
                      .total = step->total};
    size_t bytes = FRAME_BYTES + step->length;
    uint8_t *payload = link_place(l) + FRAME_BYTES;
    memset(payload, 0, step->length + 1);
    for (unsigned i = 0; i < FORM_WORDS; i++)
        ((uint64_t *)(void *)payload)[i] = htole64(step->word[i]);
    bool known = step->type < FRAME_TYPES;
    l->sequence += known && FRAME_NUMBERED >> step->type & 1;
    f.sequence = l->sequence;
    switch ((enum form_twist)step->twist) {
    case TWIST_NONE:
        break;
    case TWIST_HEADLESS:
        bytes = 1;
        break;
    case TWIST_LONGER:
        f.length++;
        break;
    case TWIST_SHORTER:
        bytes++;
        break;
    case TWIST_HUGE:
        f.length = UINT32_MAX;
        break;
    case TWIST_BACK:
        f.sequence--;
        break;
    case TWIST_AHEAD:
        f.sequence++;
        break;
    case TWIST_ID:
        f.total += (uint32_t)l->heard[FRAME_REQUEST].frame.total;
        break;
    }
    (void)link_post(l, &f, bytes, IBV_WR_SEND);
}

void frame_speak_steps(struct link *l, const struct frame_form *form) {
    for (unsigned i = 0; i < FORM_STEPS; i++) {
        const struct form_step *step = &form->step[i];
        if (step->type == 0 && step->length == 0)
            break;
        for (unsigned k = 0; k < (step->times ? step->times : 1u); k++)
            if (step->type == FORM_WRITE)
                write_nothing(l, step);
            else
                say(l, step);
    }
}

static void greet(struct link *l) {
    static const uint8_t nothing[50];
    must(link_say(l, (struct frame){.type = FRAME_HELLO, .length = sizeof nothing}, nothing));
    must(link_hear(l, FRAME_WELCOME));
}

static enum frame_type first_word(enum form_need need) {
    switch (need) {
    case NEED_NOTHING:
    case NEED_MANY:
        break;
    case NEED_REQUEST:
        return FRAME_REQUEST;
    case NEED_LARGE:
    case NEED_PIECES:
        return FRAME_RTS;
    }
    return FRAME_DATA;
}

/* True: it is where the form begins. */
static bool reach(struct link *l, const struct frame_form *form, unsigned port) {
    bool greets = form->stage != STAGE_UP && form->stage != STAGE_BYE;
    const struct link_terms terms = {.features = greets ? PRIVATE_DATA_FEATURE_HANDSHAKE : 0};
    if (form->stage == STAGE_ANSWER)
        return link_asked(l, &terms) && link_accept(l, &terms) && link_hear(l, FRAME_HELLO);
    if (!link_dial(l, port, &terms) || !link_establish(l))
        return false;
    if (form->stage == STAGE_HELLO)
        return true;
    if (form->stage == STAGE_WELCOMED)
        greet(l);
    /* Before it is up nobody is told how it ended. */
    if (!link_hear(l, first_word((enum form_need)form->need)))
        return false;
    return form->stage != STAGE_BYE || link_say(l, (struct frame){.type = FRAME_BYE}, NULL);
}

void frame_speak(const struct frame_form *form, unsigned port) {
    struct link l;
    must(reach(&l, form, port));
    frame_speak_steps(&l, form);
    if (form->outcomes & GOES_ON) {
        const struct frame f = {.type = FRAME_DATA, .length = sizeof FRAME_SPEAK_LAST};
        (void)link_say(&l, f, FRAME_SPEAK_LAST);
    }
    link_wait_for_the_end(LINK_STEP_NS);
    link_close(&l);
}
