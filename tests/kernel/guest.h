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
#include "support/tasks.h"

#include <rdma/rdma_cma.h> /* the numbers of its events */
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
        must(command("rdma", "link", "add", device, "type",
                     strncmp(device, "siw", 3) == 0 ? "siw" : "rxe", "netdev", interface) == 0);
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
    struct guest_level level = {it_entries("/proc/self/fd"), tasks_alive(), it_rss()};
    for (unsigned look = 0; look < 50; look++) {
        poll(NULL, 0, 1);
        unsigned threads = tasks_alive();
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

/* Set-up and tear-down of a test: descriptors and threads are what they were. */
static struct guest_level guest_before;

/* What is on its way up or down is not before: it is looked at until nothing has changed. */
IT_UNUSED static int guest_remember(void **state) {
    (void)state;
    struct guest_level last = guest_level();
    do {
        guest_before = last;
        last = guest_level();
    } while (last.fds != guest_before.fds || last.threads != guest_before.threads);
    return 0;
}

IT_UNUSED static int guest_compare(void **state) {
    (void)state;
    struct guest_level now = guest_level_back_at(&guest_before);
    if (now.fds != guest_before.fds || now.threads != guest_before.threads)
        print_error("%u descriptors and %u threads, before %u and %u\n", now.fds, now.threads,
                    guest_before.fds, guest_before.threads);
    assert_int_equal(now.fds, guest_before.fds);
    assert_int_equal(now.threads, guest_before.threads);
    return 0;
}

#define LEVEL_TEST(fn, mode, handlers)                                                             \
    { #fn "/" mode, fn, guest_remember, guest_compare, (void *)(uintptr_t)(handlers) }
#define LEVEL_BOTH(fn) LEVEL_TEST(fn, "polled", 0), LEVEL_TEST(fn, "handlers", 1)

/* ---- dialing ------------------------------------------------------------------------------------- */

/* With SLUICE_ONCE a test is about what the event of that try becomes. */
IT_UNUSED static void guest_dial(struct side *side, const char *host, int port,
                                 const sluice_link_options *given) {
    sluice_link_options link = side_link(side, given);
    sluice_session session;
    sluice_error e = {0};
    char address[80];
    snprintf(address, sizeof address, "%s:%d", host, port);
    must(sluice_dial(side->node, address, &link, &session, &e) == 0);
}

/* cm_event: what the stack said, with its status; -1: it did not speak, a call of it failed. */
IT_UNUSED static struct note guest_expect_end(struct side *side, sluice_reason reason,
                                              uint32_t vendor, int cm_event, int cm_status) {
    struct note note = side_expect(side, SLUICE_CLOSED);
    print_message("closed: %s (%s), vendor %u, event %d, status %d\n",
                  sluice_reason_text(note.event.reason), note.info.close_text, note.event.vendor,
                  note.info.cm_event, note.info.cm_status);
    assert_int_equal(note.event.reason, reason);
    assert_int_equal(note.event.vendor, vendor);
    assert_true(note.event.status < 0);
    assert_int_equal(note.info.cm_event, cm_event);
    assert_int_equal(note.info.cm_status, cm_status);
    side_expect_nothing(side);
    return note;
}

/* Nobody listens: an event says so, or on iWARP the call that connects, for it is TCP that is refused. */
IT_UNUSED static struct note guest_expect_nobody(struct side *side) {
    if (it_iwarp())
        return guest_expect_end(side, SLUICE_REASON_NO_LISTENER, ECONNREFUSED, -1, -1);
    return guest_expect_end(side, SLUICE_REASON_NO_LISTENER, 8, RDMA_CM_EVENT_REJECTED, 8);
}

/* librdmacm opens each device that an id leads to once, and keeps it. */
IT_UNUSED static int guest_warm_up(void **state) {
    (void)state;
    const sluice_link_options once = {.flags = SLUICE_ONCE};
    struct side side;
    struct note note;
    side_open(&side, false, NULL);
    guest_dial(&side, it_host(), 9, &once);
    must(side_next(&side, &note, LIMIT_NS));
    guest_dial(&side, guest_setting("SLUICE_TEST_HOST_2"), 9, &once);
    must(side_next(&side, &note, LIMIT_NS));
    side_close(&side, 0);
    return 0;
}

#endif
