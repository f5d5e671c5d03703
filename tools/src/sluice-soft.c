/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-soft - the software device of a live process: its state, its fault plan, the log of what the
 * plan decided, and device events; and other programs, started on that device. links: static (the socket's name and packets are internal)
 *
 * What the process answers is its own: it is cleaned before it reaches a terminal.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/options.h"
#include "common/run.h"
#include "common/tool.h"
#include "common/units.h"
#include "soft/control.h"

#define WORDS 64
#define PATIENCE_MS 10000

/* A whole file, "-" standard input, behind what text holds already. 0 or an exit status. */
static int add_file(const char *path, char *text, size_t *length) {
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (in == NULL)
        return tool_fail("cannot read %.200s: %s", path, strerror(errno));
    *length += fread(text + *length, 1, SOFT_CTL_REQUEST - *length, in);
    int failed = ferror(in), more = fgetc(in) != EOF;
    if (in != stdin)
        fclose(in);
    if (failed)
        return tool_fail("cannot read %.200s", path);
    return more ? tool_fail("%.200s is too long for a plan", path) : 0;
}

/* The words with single spaces between them; the operand of "plan" may be @FILE or -. */
static int compose(const char *const *words, int count, char *text, size_t *length) {
    bool file = count == 2 && strcmp(words[0], "plan") == 0 &&
                (words[1][0] == '@' || strcmp(words[1], "-") == 0);
    *length = 0;
    for (int i = 0; i < count; i++) {
        if (file && i == 1)
            return add_file(words[1][0] == '@' ? words[1] + 1 : words[1], text, length);
        size_t bytes = strlen(words[i]);
        if (*length + bytes + 1 > SOFT_CTL_REQUEST)
            return tool_fail("that is too long");
        memcpy(text + *length, words[i], bytes);
        *length += bytes;
        if (i + 1 < count)
            text[(*length)++] = ' ';
        else if (i == 0 && strcmp(words[0], "plan") == 0)
            return tool_usage("plan: the plan is missing");
    }
    return 0;
}

/* Its names are of another network namespace, and out of reach from here. Where that may not be asked: false. */
static bool is_on_another_network(int pid) {
    char path[32];
    struct stat here, there;
    snprintf(path, sizeof path, "/proc/%d/ns/net", pid);
    return stat("/proc/self/ns/net", &here) == 0 && stat(path, &there) == 0 &&
           (here.st_ino != there.st_ino || here.st_dev != there.st_dev);
}

static int no_socket(int pid, int error) {
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", pid);
    if (access(path, F_OK) != 0)
        return tool_fail("there is no process %d", pid);
    if (error == ECONNREFUSED && is_on_another_network(pid))
        return tool_fail("process %d is in another network namespace: "
                         "nsenter -t %d -n sluice-soft ctl %d ... asks from there",
                         pid, pid, pid);
    if (error == ECONNREFUSED)
        return tool_fail("process %d has no software device open", pid);
    return tool_fail("process %d: %s", pid, strerror(error));
}

/* The process must belong to the user who asks, unless that is root. 0 or an exit status. */
static int reach(int pid, int *out) {
    struct ucred who;
    int fd = soft_ctl_connect(pid, &who);
    if (fd < 0)
        return no_socket(pid, -fd);
    if (geteuid() != 0 && !soft_ctl_is_own(&who)) {
        close(fd);
        return tool_fail("process %d belongs to user %u: only its user and root may ask", pid,
                         (unsigned)who.uid);
    }
    *out = fd;
    return 0;
}

static void clean(char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)text[i] < ' ' && text[i] != '\n') || (unsigned char)text[i] > 0x7e)
            text[i] = '?';
}

/* A process that is gone refuses nobody. */
static bool may_ask(int pid) {
    char path[32];
    struct stat owner;
    snprintf(path, sizeof path, "/proc/%d", pid);
    return geteuid() == 0 || stat(path, &owner) != 0 || owner.st_uid == geteuid();
}

static int converse(int fd, int pid, const char *text, size_t length) {
    if (send(fd, text, length, MSG_NOSIGNAL) < 0)
        return tool_fail("process %d does not take the request: %s", pid, strerror(errno));
    for (;;) {
        static char packet[SOFT_CTL_PACKET];
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int n = poll(&ready, 1, PATIENCE_MS);
        if (tool_stopped())
            return TOOL_FAILED;
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return tool_fail("process %d does not answer", pid);
        ssize_t got = recv(fd, packet, sizeof packet, 0);
        if (got <= 0 && may_ask(pid))
            return tool_fail("process %d has closed its software device", pid);
        if (got <= 0)
            return tool_fail("process %d refuses: only its user and root may ask", pid);
        clean(packet + 1, (size_t)got - 1);
        if (packet[0] == '!')
            return tool_fail("%.*s", (int)got - 1, packet + 1);
        if (packet[0] != '=' && packet[0] != '+')
            return tool_fail("process %d speaks another language", pid);
        fwrite(packet + 1, 1, (size_t)got - 1, stdout);
        if (packet[0] == '=')
            return 0;
    }
}

static int control(const char *const *words, int count) {
    static char text[SOFT_CTL_REQUEST];
    uint64_t pid;
    size_t length;
    int fd = -1;
    if (count < 1)
        return tool_usage("say which process: its PID is missing");
    if (!units_number(words[0], &pid) || pid == 0 || pid > INT32_MAX)
        return tool_usage("'%.60s' is not a process id", words[0]);
    if (count < 2)
        return tool_usage("what to do is missing: status, log, plan, clear or device");
    static const char *const known[] = {"status", "log", "plan", "clear", "device"};
    bool fits = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        fits |= strcmp(words[1], known[i]) == 0;
    if (!fits)
        return tool_usage("'%.60s' is none of status, log, plan, clear, device", words[1]);
    int rc = compose(words + 1, count - 1, text, &length);
    if (rc != 0)
        return rc;
    rc = reach((int)pid, &fd);
    if (rc != 0)
        return rc;
    rc = converse(fd, (int)pid, text, length);
    close(fd);
    return rc;
}

int main(int argc, char **argv) {
    const char *operands[WORDS] = {0};
    struct options options = {
        .about = "the software device: other programs on it, its state, faults on demand",
        .usage = "ctl PID status | log | clear\n"
                 "ctl PID plan RULES | @FILE | -\n"
                 "ctl PID device ACTION [order=ORDER] [address=IP]\n"
                 "run [--preload | --library-path] [--] PROGRAM [ARGUMENT...]",
        .notes = "status   queue pairs, ids and peers\n"
                 "plan     a fault plan takes the place of the former one\n"
                 "clear    the fault plan ends\n"
                 "log      what the plan decided, object by object\n"
                 "device   remove, restore, port-down, port-up, address-change\n"
                 "run      a program that uses libibverbs or librdmacm, on the software device\n",
        .operands = operands,
        .operands_max = WORDS};
    tool_start("sluice-soft");
    if (argc > 1 && strcmp(argv[1], "run") == 0) /* what follows is another program's */
        return tool_end(run_main(argc - 1, argv + 1));
    int rc = options_main(&options, argc, argv);
    if (rc >= 0)
        return rc;
    if (options.operand_count == 0)
        return tool_end(tool_usage("what to do is missing: ctl PID COMMAND or run PROGRAM"));
    if (strcmp(operands[0], "ctl") != 0)
        return tool_end(tool_usage("'%.60s' is not ctl and not run", operands[0]));
    return tool_end(control(operands + 1, options.operand_count - 1));
}
