/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* guest.c - see guest.h. */
#include "support/guest.h"
#include "support/usage.h"

/* ---- commands ------------------------------------------------------------------------------------ */

pid_t command_start(const char *const words[]) {
    char *argv[16] = {0};
    pid_t pid;
    for (unsigned i = 0; words[i]; i++) {
        must(i < 15);
        argv[i] = (char *)(uintptr_t)words[i];
    }
    must(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0);
    return pid;
}

bool command_ended(pid_t pid) {
    siginfo_t info = {0};
    must(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | WNOHANG) == 0);
    return info.si_pid == pid;
}

int command_status(pid_t pid) {
    int status;
    must(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char *guest_setting(const char *name) {
    const char *value = getenv(name);
    must(value && *value);
    return value;
}

/* ---- the device -------------------------------------------------------------------------------- */

bool device_exists(const char *device) {
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s", device);
    return stat(path, &st) == 0;
}

void device_add(const char *device, const char *interface) {
    if (!device_exists(device))
        must(command("rdma", "link", "add", device, "type",
                     strncmp(device, "siw", 3) == 0 ? "siw" : "rxe", "netdev", interface) == 0);
}

pid_t device_removal(const char *device) {
    return command_start((const char *const[]){"rdma", "link", "del", device, NULL});
}

/* ---- events ---------------------------------------------------------------------------------------- */

unsigned long cm_events(const char *name) {
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

struct guest_level guest_level(void) {
    struct guest_level level = {usage_entries("/proc/self/fd"), tasks_alive(), usage_resident()};
    for (unsigned look = 0; look < 50; look++) {
        poll(NULL, 0, 1);
        unsigned threads = tasks_alive();
        level.threads = threads < level.threads ? threads : level.threads;
    }
    return level;
}

struct guest_level guest_level_back_at(const struct guest_level *before) {
    struct guest_level level = guest_level();
    for (unsigned look = 0;
         look < 100 && (level.threads != before->threads || level.fds != before->fds); look++)
        level = guest_level();
    return level;
}

struct guest_level guest_before;

int guest_remember(void **state) {
    (void)state;
    struct guest_level last = guest_level();
    do {
        guest_before = last;
        last = guest_level();
    } while (last.fds != guest_before.fds || last.threads != guest_before.threads);
    return 0;
}

int guest_compare(void **state) {
    (void)state;
    struct guest_level now = guest_level_back_at(&guest_before);
    if (now.fds != guest_before.fds || now.threads != guest_before.threads)
        print_error("%u descriptors and %u threads, before %u and %u\n", now.fds, now.threads,
                    guest_before.fds, guest_before.threads);
    assert_int_equal(now.fds, guest_before.fds);
    assert_int_equal(now.threads, guest_before.threads);
    return 0;
}

/* ---- dialing ------------------------------------------------------------------------------------- */

void guest_dial(struct side *side, const char *host, int port, const sluice_link_options *given) {
    sluice_link_options link = side_link(side, given);
    sluice_session session;
    sluice_error e = {0};
    char address[80];
    snprintf(address, sizeof address, "%s:%d", host, port);
    must(sluice_dial(side->node, address, &link, &session, &e) == 0);
}

struct note guest_expect_end(struct side *side, sluice_reason reason, uint32_t vendor, int cm_event,
                             int cm_status) {
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

struct note guest_expect_nobody(struct side *side) {
    if (it_iwarp())
        return guest_expect_end(side, SLUICE_REASON_NO_LISTENER, ECONNREFUSED, -1, -1);
    return guest_expect_end(side, SLUICE_REASON_NO_LISTENER, 8, RDMA_CM_EVENT_REJECTED, 8);
}

int guest_warm_up(void **state) {
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
