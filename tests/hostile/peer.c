/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * peer.c - hostile_peer: the process that the tests of this folder run against a victim.
 *
 *   hostile_peer dial:PORT|listen MODE ROUNDS   noise.h
 *   hostile_peer commands UID                   as that user, until its input ends:
 *     frame N PORT        frame_form.h: the N-th, to the victim that listens at PORT
 *     message WAY N QPN   message_form.h: the N-th, to the process that has this number
 *     attack N PORT WELCOME QPN PID ADDRESS RKEY   attack.h: the N-th; says "ready", and never "done"
 *
 * Says "port N" when listening, and "done" when it has done what it was told. One thread; ends when its input does.
 */
#include "support/side.h"

#include <inttypes.h>
#include <sys/prctl.h>

#include "hostile/attack.h"
#include "hostile/frame_speak.h"
#include "hostile/message_form.h"
#include "hostile/noise.h"

static void say(const char *text) {
    puts(text);
    fflush(stdout);
}

static void noise(char **argv) {
    bool listens = strcmp(argv[1], "listen") == 0;
    if (listens) {
        printf("port %u\n", link_listen());
        fflush(stdout);
    }
    for (unsigned rounds = (unsigned)atoi(argv[3]); rounds > 0; rounds--)
        if (listens)
            noise_serve(argv[2]);
        else
            noise_dial(argv[2], (unsigned)atoi(strchr(argv[1], ':') + 1));
    if (listens)
        link_unlisten();
}

static void become(unsigned uid) {
    if (uid != geteuid())
        must(setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* which ends with the former user */
    must(getppid() != 1);
}

static void on_frame(unsigned i, unsigned port) {
    struct frame_form form;
    frame_form_get(i, &form);
    must(form.name);
    frame_speak(&form, port);
}

static void on_message(unsigned way, unsigned i, uint32_t qpn) {
    must(way < MESSAGE_WAYS && i < message_form_count());
    struct message_form form = message_form_get(i);
    message_say((enum message_way)way, &form, qpn);
}

/* True: that is what it was. */
static bool on_attack(const char *line) {
    struct attack_target t;
    unsigned i;
    if (sscanf(line, "attack %u %u %u %u %d %" SCNx64 " %" SCNx32, &i, &t.port, &t.welcome, &t.qpn,
               &t.pid, &t.address, &t.rkey) != 7)
        return false;
    must(i < attack_count());
    const struct attack *attack = attack_get(i);
    attack->run(&t, attack->arg);
    return true;
}

static void commands(unsigned uid) {
    char line[256];
    become(uid);
    link_start();
    printf("port %u\n", link_listen());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        unsigned i, port, way;
        if (sscanf(line, "frame %u %u", &i, &port) == 2)
            on_frame(i, port);
        else if (sscanf(line, "message %u %u %u", &way, &i, &port) == 3)
            on_message(way, i, port);
        else
            must(on_attack(line));
        say("done");
    }
    link_unlisten();
    link_stop();
}

int main(int argc, char **argv) {
    must_end_process = true;
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "commands") == 0) {
        commands((unsigned)atoi(argv[2]));
        return 0;
    }
    must(argc == 4);
    link_start();
    noise(argv);
    link_stop();
    say("done");
    return 0;
}
