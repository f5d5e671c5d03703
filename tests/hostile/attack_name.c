/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * attack_name.c - attacks by the names through which processes find each other. Anybody can take one that nobody has;
 * what it is asked by them it does not answer, or answers with a lie. One thread each.
 */
#include "support/softverbs_hostile.h"

#include <sys/resource.h>

#include "hostile/attack.h"
#include "hostile/command.h"
#include "soft/cm/addr.h"
#include "soft/cm/port_name.h"
#include "soft/control/ctl.h"
#include "soft/control.h"

#define BLOCKS 16384u
#define GROUPS 128u
#define PORTS 1000u

/* -1: somebody has it, or there are no more descriptors. */
static int take(const char *text) {
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    size_t n = strlen(text);
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(n < sizeof sun.sun_path);
    memcpy(sun.sun_path + 1, text, n);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    if (sock >= 0 && (bind(sock, (struct sockaddr *)&sun, length) != 0 || listen(sock, 1) != 0)) {
        close(sock);
        sock = -1;
    }
    return sock;
}

static unsigned take_all(const char *kind, unsigned count) {
    unsigned taken = 0;
    for (unsigned i = 0; i < count; i++) {
        char text[64];
        snprintf(text, sizeof text, "sluice-soft.%u/%s/%u", SOFT_WIRE_VERSION, kind, i);
        taken += take(text) >= 0;
    }
    return taken;
}

void attack_takes_numbers(const struct attack_target *target, unsigned arg) {
    struct rlimit limit;
    (void)target;
    (void)arg;
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    must(take_all("q", BLOCKS) > 100);
    attack_stay();
}

void attack_takes_groups(const struct attack_target *target, unsigned arg) {
    (void)target;
    (void)arg;
    must(take_all("g", GROUPS) > 0);
    attack_stay();
}

static int take_port(const char *address, unsigned port) {
    struct soft_cm_port_name name = {.ps = RDMA_PS_TCP, .port = (uint16_t)port, .afonly = true};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    char text[SOFT_CM_NAME_BYTES];
    memcpy(&name.addr, &addr, sizeof addr);
    soft_cm_port_name_format(&name, 0, text);
    return take(text);
}

void attack_takes_ports(const struct attack_target *target, unsigned arg) {
    unsigned taken = 0;
    (void)arg;
    for (unsigned i = 1; i <= PORTS; i++)
        if (target->welcome + i <= UINT16_MAX)
            taken += take_port(i % 2 ? "0.0.0.0" : "127.0.0.1", target->welcome + i) >= 0;
    must(taken > 0 || target->welcome == UINT16_MAX);
    attack_stay();
}

void attack_takes_exact_name(const struct attack_target *target, unsigned arg) {
    (void)arg;
    must(take_port("127.0.0.1", target->welcome) >= 0);
    attack_stay();
}

void attack_forges_status(const struct attack_target *target, unsigned arg) {
    char text[64], request[64];
    (void)target;
    (void)arg;
    snprintf(text, sizeof text, SOFT_CTL_PREFIX "%d-", ATTACK_FORGED);
    int sock = take(text);
    must(sock >= 0);
    attack_ready();
    for (;;) {
        int client = accept(sock, NULL, NULL);
        (void)!send(client, "=forged\n", 8, MSG_NOSIGNAL);
        (void)!recv(client, request, sizeof request, 0);
        close(client);
    }
}

/* Whose orders count. */
static bool is_heard(int sock) {
    struct ucred who;
    socklen_t length = sizeof who;
    must(getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0);
    return !command_is_stranger(who.uid) || geteuid() == 0;
}

/* More clients than there may be, who ask and do not read; descriptors, nonsense, orders if they must not count. */
void attack_crowds_control(const struct attack_target *target, unsigned arg) {
    static const char *const words[] = {"status", "device remove", "plan qp=* send=* loss",
                                        "frobnicate", "log"};
    struct ucred who;
    (void)arg;
    for (unsigned round = 0;; round++) {
        int sock[16], board = hostile_shm_file(true, 4096, 0);
        for (unsigned i = 0; i < 16; i++) {
            sock[i] = soft_ctl_connect(target->pid, &who);
            must(sock[i] >= 0);
            for (unsigned k = 0; k < 20; k++) {
                const char *word = words[is_heard(sock[i]) ? (k % 2 ? 3 : 0) : k % 5];
                hostile_say(sock[i], word, strlen(word), &board, k % 2);
            }
        }
        for (unsigned i = 0; i < 16; i++)
            close(sock[i]);
        close(board);
        attack_ready();
    }
}
