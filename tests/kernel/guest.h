/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * guest.h - what the tests in the kernel guest share: commands of the system, the device that comes
 * and goes, and which rdma_cm events this process has really seen.
 *
 * A command's end is waited for while the sides are polled or not, as the test wants.
 */
#ifndef KERNEL_GUEST_H
#define KERNEL_GUEST_H

#include "integration/util.h"

#include <sys/stat.h>

/* ---- commands ------------------------------------------------------------------------------------ */

IT_UNUSED static pid_t command_start(const char *const words[]) {
    char *argv[16] = {0};
    pid_t pid;
    for (unsigned i = 0; words[i]; i++) {
        must(i < 15);
        argv[i] = (char *)(uintptr_t)words[i];
    }
    must(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0);
    return pid;
}

IT_UNUSED static bool command_ended(pid_t pid) {
    siginfo_t info = {0};
    must(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0);
    return info.si_pid == pid;
}

IT_UNUSED static int command_status(pid_t pid) {
    int status;
    must(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define command(...) command_status(command_start((const char *const[]){__VA_ARGS__, NULL}))

static const char *guest_setting(const char *name) {
    const char *value = getenv(name);
    must(value && *value);
    return value;
}

/* ---- the device -------------------------------------------------------------------------------- */

IT_UNUSED static bool device_exists(const char *device) {
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s", device);
    return stat(path, &st) == 0;
}

IT_UNUSED static void device_add(const char *device, const char *interface) {
    if (!device_exists(device))
        must(command("rdma", "link", "add", device, "type", "rxe", "netdev", interface) == 0);
}

/* Starts to remove it: the command ends when everybody has let go of it. */
IT_UNUSED static pid_t device_removal(const char *device) {
    return command_start((const char *const[]){"rdma", "link", "del", device, NULL});
}

/* ---- events ---------------------------------------------------------------------------------------- */

/* How many events of this kind the nodes of this process have taken, by what they publish. */
IT_UNUSED static unsigned long cm_events(const char *name) {
    char command_line[512], key[64], *at, *line = NULL;
    size_t room = 0;
    unsigned long sum = 0;
    snprintf(command_line, sizeof command_line, "%s/sluice-stat --json %d",
             guest_setting("SLUICE_BIN_DIR"), (int)getpid());
    snprintf(key, sizeof key, "\"%s\": ", name);
    FILE *out = popen(command_line, "r");
    must(out);
    unsigned nodes = 0;
    for (; getline(&line, &room, out) > 0; nodes++) {
        at = strstr(line, key);
        must(at);
        sum += strtoul(at + strlen(key), NULL, 10);
    }
    free(line);
    must(pclose(out) == 0 && nodes > 0);
    return sum;
}

/* ---- what must be as before -------------------------------------------------------------------- */

struct guest_level {
    unsigned fds, threads;
    size_t resident;
};

/* A thread that has been joined is still listed until the kernel is done with it: the lowest count
 * of several looks is the true one. */
IT_UNUSED static struct guest_level guest_level(void) {
    struct guest_level level = {it_entries("/proc/self/fd"), it_entries("/proc/self/task"),
                                it_rss()};
    for (unsigned look = 0; look < 50; look++) {
        poll(NULL, 0, 1);
        unsigned threads = it_entries("/proc/self/task");
        level.threads = threads < level.threads ? threads : level.threads;
    }
    return level;
}

/* The same, but waits for what is being given back, for as long as anything may take. */
IT_UNUSED static struct guest_level guest_level_back_at(const struct guest_level *before) {
    struct guest_level level = guest_level();
    for (unsigned look = 0;
         look < 100 && (level.threads != before->threads || level.fds != before->fds); look++)
        level = guest_level();
    return level;
}

#endif
