/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* attack.c - the table of attack.h. */
#include "hostile/attack.h"

#include <stdio.h>
#include <unistd.h>

#include "hostile/frame_form.h"

#define LOST ENDS(PEER_LOST)

static const struct attack attacks[] = {
    /* ---- sessions ---- */
    {"stays inside of memory", attack_stays_inside, false, ATTACK_ONCE | ATTACK_HUNG_UP,
     NEED_NOTHING, GOES_ON | LOST},
    {"dies inside of memory", attack_stays_inside, true, ATTACK_ONCE | ATTACK_DIES, NEED_NOTHING,
     LOST},
    {"stays inside while its landings end", attack_inside_while_others_end, 0, 0, NEED_NOTHING,
     LOST},
    {"writes nothing where it may write", attack_writes_nothing, 0, ATTACK_ZEROS, NEED_NOTHING,
     LOST},
    {"reaches for a region before HELLO", attack_reaches_before_hello, 0, 0, NEED_NOTHING, 0},
    {"announces and never writes", attack_holds_landings, 0, 0, NEED_NOTHING, LOST},
    {"begins messages and never ends them", attack_begins_messages, 0, 0, NEED_NOTHING, LOST},
    {"does not read", attack_waits, true, ATTACK_HUNG_UP, NEED_MANY, GOES_ON | LOST},
    {"is stopped", attack_waits, false, ATTACK_STOPS | ATTACK_HUNG_UP, NEED_MANY, GOES_ON | LOST},
    {"is stopped with a message that is to be read", attack_waits, false, ATTACK_STOPS, NEED_LARGE,
     LOST},
    {"half opens connections", attack_half_opens, 0, 0, NEED_NOTHING, 0},
    {"sends records that make no sense", attack_makes_noise, 0, 0, NEED_NOTHING, ~0u},
    {"sends frames that make no sense", attack_makes_noise, 1, 0, NEED_NOTHING, ~0u},
    {"floods", attack_makes_noise, 2, 0, NEED_NOTHING, ~0u},
    {"comes and vanishes", attack_makes_noise, 3, 0, NEED_NOTHING, ~0u},
    {"scribbles over its rings", attack_makes_noise, 4, 0, NEED_NOTHING, ~0u},
    {"dies when it has found the victim", attack_dies, 1, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies when it has asked", attack_dies, 2, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies with the answer", attack_dies, 3, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies when it is ready to send", attack_dies, 4, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies when it is connected", attack_dies, 5, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies behind HELLO", attack_dies, 6, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies when it is up", attack_dies, 7, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies in the middle of a message", attack_dies, 8, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies behind an announcement", attack_dies, 9, ATTACK_DIES, NEED_NOTHING, LOST},
    {"dies with leave to write", attack_dies, 10, ATTACK_DIES, NEED_NOTHING, LOST},
    /* ---- the device ---- */
    {"calls all the time", attack_calls, 0, 0, NEED_NOTHING, 0},
    {"talks nonsense", attack_talks, 0, 0, NEED_NOTHING, 0},
    {"passes what cannot be closed", attack_passes_slow, false, 0, NEED_NOTHING, 0},
    {"passes it through the bell", attack_passes_slow, true, 0, NEED_NOTHING, 0},
    {"asks and does not read", attack_does_not_read, 0, 0, NEED_NOTHING, 0},
    {"is forty processes of eight connections", attack_is_many, 0, 0, NEED_NOTHING, 0},
    {"calls and says nothing", attack_holds_connections, 0, 0, NEED_NOTHING, 0},
    /* ---- names ---- */
    {"takes all names of numbers", attack_takes_numbers, 0, ATTACK_NAMES, NEED_NOTHING, 0},
    {"takes all names of groups", attack_takes_groups, 0, ATTACK_NAMES, NEED_NOTHING, 0},
    {"takes names of ports", attack_takes_ports, 0, ATTACK_NAMES, NEED_NOTHING, 0},
    {"takes a more exact name", attack_takes_exact_name, 0, ATTACK_NAMES | ATTACK_STRANGER,
     NEED_NOTHING, 0},
    {"forges a status", attack_forges_status, 0, ATTACK_NAMES | ATTACK_FORGES, NEED_NOTHING, 0},
    {"crowds the control socket", attack_crowds_control, 0, 0, NEED_NOTHING, 0},
};

unsigned attack_count(void) {
    return sizeof attacks / sizeof attacks[0];
}

const struct attack *attack_get(unsigned i) {
    return &attacks[i];
}

void attack_ready(void) {
    static bool said;
    if (said)
        return;
    said = true;
    puts("ready");
    fflush(stdout);
}

void attack_stay(void) {
    attack_ready();
    for (;;)
        pause();
}
