/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* far.c - see far.h. */
#include "support/far.h"

const char *far_host(void) {
    return guest_setting("SLUICE_TEST_HOST_2");
}

bool far_iwarp(void) {
    return strcmp(guest_setting("KERNEL_DRIVER"), "siw") == 0;
}

void far_address(bool there) {
    static char here[64];
    if (!*here)
        snprintf(here, sizeof here, "%s", it_host());
    setenv("SLUICE_TEST_HOST", there ? far_host() : here, 1);
}

/* ---- commands ------------------------------------------------------------------------------------ */

int far_shell(const char *format, ...) {
    char line[2048] = "THERE=$SLUICE_TEST_NS A=$KERNEL_NET_A B=$KERNEL_NET_B; ";
    size_t n = strlen(line);
    va_list list;
    va_start(list, format);
    must(vsnprintf(line + n, sizeof line - n, format, list) < (int)(sizeof line - n));
    va_end(list);
    return command("bash", "-c", line);
}

/* ---- the network between ------------------------------------------------------------------------- */

bool far_is_bad, far_was_bad;

void far_weather(const char *netem) {
    far_is_bad = netem != NULL;
    far_was_bad |= far_is_bad;
    if (netem)
        must(far_shell("tc qdisc replace dev $A root netem %s && "
                       "$THERE tc qdisc replace dev $B root netem %s",
                       netem, netem) == 0);
    else
        must(far_shell("tc qdisc del dev $A root && $THERE tc qdisc del dev $B root") == 0);
}

void far_cable(bool in) {
    far_weather(in ? NULL : "loss 100%");
}

void far_interface(bool up) {
    must(far_shell("$THERE ip link set $B %s", up ? "up" : "down") == 0);
}

void far_device(void) {
    must(far_shell("$THERE rdma link del $SLUICE_DEVICE_2 && "
                   "$THERE rdma link add $SLUICE_DEVICE_2 type $KERNEL_DRIVER netdev $B") == 0);
}

void far_mtu(unsigned bytes) {
    must(far_shell("ip link set $A mtu %u && $THERE ip link set $B mtu %u", bytes, bytes) == 0);
}

void far_forget(void) {
    must(far_shell("ip neigh flush dev $A && $THERE ip neigh flush dev $B") == 0);
}

/* ---- programs over there ------------------------------------------------------------------------- */

void far_start(struct peer *peer, const char *format, ...) {
    char program[512], there[256], line[1400];
    char *argv[16] = {0};
    int n = 0;
    va_list list;
    va_start(list, format);
    must(vsnprintf(program, sizeof program, format, list) < (int)sizeof program);
    va_end(list);
    snprintf(line, sizeof line,
             "PATH=%s:%s/../tests:$PATH SLUICE_DEVICE=%s SLUICE_TEST_HOST=%s; "
             "export PATH SLUICE_DEVICE SLUICE_TEST_HOST; exec 2>&1; %s",
             guest_setting("SLUICE_BIN_DIR"), guest_setting("SLUICE_BIN_DIR"),
             guest_setting("SLUICE_DEVICE_2"), far_host(), program);
    snprintf(there, sizeof there, "%s", guest_setting("SLUICE_TEST_NS"));
    for (char *word, *rest = there; (word = strtok_r(rest, " ", &rest)) != NULL;) {
        must(n < 12);
        argv[n++] = word;
    }
    argv[n++] = (char *)(uintptr_t) "bash";
    argv[n++] = (char *)(uintptr_t) "-c";
    argv[n] = line;
    peer_spawn(peer, argv);
}

int far_end(struct peer *peer) {
    char rest[2048];
    size_t at = 0;
    ssize_t n;
    int status;
    close(peer->in);
    while ((n = read(peer->out, rest + at, sizeof rest - 1 - at)) > 0)
        at = at + (size_t)n < sizeof rest - 1 ? at + (size_t)n : 0;
    rest[at] = 0;
    close(peer->out);
    must(waitpid(peer->pid, &status, 0) == peer->pid);
    status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (status != 0) /* the test ends with this, or expects it */
        print_message("over there, at its end: %s\n", rest);
    return status;
}

void far_expect(struct peer *peer, const char *words) {
    while (strncmp(peer_line(peer), "sluice: ", 8) == 0)
        print_message("over there: %s\n", peer->line);
    if (strncmp(peer->line, words, strlen(words)) != 0)
        print_error("over there: %s\n", peer->line);
    must(strncmp(peer->line, words, strlen(words)) == 0);
}

int far_number(struct peer *peer, const char *words) {
    for (;;) {
        const char *line = peer_line(peer);
        if (strncmp(line, words, strlen(words)) == 0) {
            const char *end = strrchr(line, ' '), *colon = strrchr(line, ':');
            return atoi((colon > end ? colon : end) + 1);
        }
        print_message("over there: %s\n", line);
    }
}

/* ---- power ---------------------------------------------------------------------------------------- */

void far_power(bool on) {
    FILE *line = fopen(guest_setting("SLUICE_TEST_POWER"), "w");
    must(line && fprintf(line, "power %s\n", on ? "on" : "off") > 0 && fclose(line) == 0);
}

void far_boot(void) {
    for (unsigned tries = 0; tries < 3; tries++) {
        far_power(true);
        uint64_t until = sluice_now() + LIMIT_NS;
        while (sluice_now() < until)
            if (far_shell("timeout 5 $THERE true || { sleep 1; false; }") == 0)
                return;
        far_power(false);
    }
    must(!"a guest that boots");
}

/* ---- set-up and tear-down of the programs --------------------------------------------------------- */

int far_restore(void **state) {
    (void)state;
    (void)far_shell("exec 2> /dev/null; tc qdisc del dev $A root; "
                    "$THERE tc qdisc del dev $B root; $THERE ip link set $B up");
    far_mtu(FAR_MTU);
    return 0;
}

int far_warm_up(void **state) {
    (void)state;
    struct side side;
    struct note note;
    side_open(&side, false, NULL);
    guest_dial(&side, far_host(), 9, &(sluice_link_options){.timeout_ns = LIMIT_NS});
    must(side_next(&side, &note, LIMIT_NS) && note.event.type == SLUICE_CLOSED);
    print_message("nobody listens: %s (%s)\n", sluice_reason_text(note.event.reason),
                  note.info.close_text);
    must(note.event.reason == SLUICE_REASON_NO_LISTENER);
    side_close(&side, 0);
    return 0;
}
