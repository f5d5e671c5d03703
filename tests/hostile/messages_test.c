/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * messages_test.c - every control message of the software device said wrong, in each way that it can be, by a process
 * of this user and by one of another: it is ignored, or its connection ends, and an honest pair does not notice.
 */
#include <unistd.h>

#include "hostile/command.h"
#include "hostile/message_form.h"
#include "hostile/victim.h"
#include "soft/cm/wire.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/untrusted_fd.h"

/* A type that the device gets must be added to what is said wrong. */
TEST(every_type_of_message_is_said_wrong) {
    for (uint32_t type = 1; type < SOFT_CM_WIRE_END; type++) {
        if (type >= SOFT_MSG_TYPES && type < SOFT_CM_WIRE_REQ)
            continue;
        struct message_form form = message_form_of(type);
        if (!form.name || form.type != type)
            fail_msg("message type %u is not said wrong", type);
    }
    for (unsigned way = 0; way < MESSAGE_WAYS; way++)
        assert_non_null(message_way_names[way]);
}

/* Whose descriptors wait to be closed in numbers is hung up on, and on a busy machine they may wait for what was said before. */
static void until_all_is_closed(void) {
    uint64_t limit = soft_now_ns() + 20000000000ull;
    while (soft_untrusted_fd_pending() > 0 && soft_now_ns() < limit)
        usleep(100);
    must(soft_untrusted_fd_pending() == 0);
}

/* True: nobody was delayed. */
static bool withstands(struct peer *peer, unsigned way, unsigned i, struct victim_worst *all) {
    char line[64];
    snprintf(line, sizeof line, "message %u %u %u", way, i, victim_qpn());
    until_all_is_closed();
    (void)victim_take();
    peer_tell(peer, line);
    peer_expect(peer, "done");
    victim_go_on(1);
    struct victim_worst worst = victim_take();
    bool good = victim_withstood(&worst);
    if (good)
        victim_worse(all, &worst);
    else
        victim_tell(message_form_get(i).name, 0, &worst);
    return good;
}

TEST(a_wrong_message_ends_its_own_connection_and_delays_nobody) {
    unsigned uid;
    victim_open();
    for (unsigned turn = 0; command_user(turn, &uid); turn++) {
        struct peer peer;
        struct victim_worst all = {0};
        unsigned said = 0;
        victim_begin();
        (void)command_start(&peer, uid);
        for (unsigned round = 0; round < (it_long() ? 20 : 1); round++)
            for (unsigned i = 0; i < message_form_count() * MESSAGE_WAYS; i++, said++) {
                unsigned tries = 1, way = i % MESSAGE_WAYS, form = i / MESSAGE_WAYS;
                while (!withstands(&peer, way, form, &all) && tries < VICTIM_TRIES)
                    tries++;
                must(tries < VICTIM_TRIES);
            }
        struct victim_worst rest = victim_measure(false);
        victim_worse(&all, &rest);
        print_message("    %u wrong messages\n", said);
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
