/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* stats_test.c - counters are seen from outside; a page that could hurt its reader is refused. */
#define _GNU_SOURCE
#include "support/child.h"
#include "support/test.h"
#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stats.h"
#include "support/emulated.h"

TEST(counters_are_seen_by_a_reader) {
    struct stats stats;
    const struct stats_page *pages[4];
    assert_int_equal(stats_open(&stats, "a name", "a device"), 0);
    assert_true(fcntl(stats.fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(stats_attach(getpid(), pages, 4), 1);
    assert_ptr_not_equal(pages[0], stats.page);
    assert_string_equal(pages[0]->name, "a name");
    assert_string_equal(pages[0]->device, "a device");
    assert_int_equal(pages[0]->pid, getpid());
    assert_true(pages[0]->start_ns > 0);
    assert_int_equal(pages[0]->bytes, sizeof *pages[0]);
    assert_int_equal(pages[0]->loops[3].cpu, -1);
    stats_add(&stats.page->loops[3].messages_sent, 5);
    stats_add(&stats.page->loops[3].messages_sent, 2);
    stats_add(&stats.page->cm.events[STATS_CM_EVENTS - 1], 1);
    assert_int_equal(pages[0]->loops[3].messages_sent, 7);
    assert_int_equal(pages[0]->cm.events[STATS_CM_EVENTS - 1], 1);
    stats_close(&stats);
    assert_int_equal(pages[0]->loops[3].messages_sent, 7); /* the reader's mapping lives on */
    stats_detach(pages[0]);
    assert_int_equal(stats_attach(getpid(), pages, 4), -ENOENT);
}

TEST(a_session_is_seen_with_the_way_it_goes) {
    struct stats stats;
    struct stats_session_row row;
    char longest[200];
    assert_int_equal(stats_open(&stats, "n", "d"), 0);
    const struct stats_session *first = &stats.page->sessions[0],
                               *last = &stats.page->sessions[STATS_SESSIONS_MAX - 1];
    assert_false(stats_session_read(&row, first));
    stats_session_up(stats.page, 0, 77, 3, 2, "192.0.2.1:7471");
    assert_true(stats_session_read(&row, first));
    assert_int_equal(row.id, 77);
    assert_int_equal(row.loop, 3);
    assert_int_equal(row.transport, 2);
    assert_string_equal(row.peer, "192.0.2.1:7471");
    memset(longest, 'p', sizeof longest);
    stats_session_up(stats.page, STATS_SESSIONS_MAX - 1, 78, 0, 1, longest);
    stats_session_up(stats.page, STATS_SESSIONS_MAX, 79, 0, 1, "it has no row");
    assert_true(stats_session_read(&row, last));
    assert_int_equal(row.id, 78);
    assert_int_equal(strlen(row.peer), STATS_PEER_BYTES - 1);
    stats_session_down(stats.page, 0);
    stats_session_down(stats.page, STATS_SESSIONS_MAX);
    assert_false(stats_session_read(&row, first));
    assert_true(stats_session_read(&row, last));
    stats_close(&stats);
}

TEST(long_names_are_cut) {
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct stats stats;
    assert_int_equal(stats_open(&stats, name, name), 0);
    assert_int_equal(strlen(stats.page->name), sizeof stats.page->name - 1);
    assert_int_equal(strlen(stats.page->device), sizeof stats.page->device - 1);
    stats_close(&stats);
    stats_close(&stats); /* twice is harmless */
}

TEST(every_node_is_found_once) {
    struct stats stats[3];
    const struct stats_page *pages[8];
    for (int i = 0; i < 3; i++)
        assert_int_equal(stats_open(&stats[i], "n", "d"), 0);
    int copy = dup(stats[1].fd);
    assert_true(copy >= 0);
    assert_int_equal(stats_attach(getpid(), pages, 8), 3);
    for (int i = 0; i < 3; i++)
        stats_detach(pages[i]);
    assert_int_equal(stats_attach(getpid(), pages, 2), 2);
    for (int i = 0; i < 2; i++)
        stats_detach(pages[i]);
    assert_int_equal(stats_attach(getpid(), pages, 0), -EINVAL);
    close(copy);
    for (int i = 0; i < 3; i++)
        stats_close(&stats[i]);
}

/* A descriptor with our name and this content; seals as asked. */
static int fake_page(size_t bytes, uint32_t magic, uint32_t version, uint64_t said, int seals) {
    int fd = memfd_create("sluice-stat", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    uint32_t head[2] = {magic, version};
    if (bytes >= 16) {
        assert_int_equal(pwrite(fd, head, sizeof head, 0), sizeof head);
        assert_int_equal(pwrite(fd, &said, sizeof said, 8), sizeof said);
    }
    if (seals)
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

TEST(hostile_pages_are_refused) {
    const size_t bytes = sizeof(struct stats_page);
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
    const struct {
        size_t bytes;
        uint32_t magic, version;
        uint64_t said;
        int seals;
    } fakes[] = {
        {bytes, STATS_MAGIC, STATS_VERSION, bytes, 0}, /* could be truncated under the reader */
        {bytes, STATS_MAGIC, STATS_VERSION, bytes, F_SEAL_GROW},
        {bytes, STATS_MAGIC + 1, STATS_VERSION, bytes, sealed},
        {bytes, STATS_MAGIC, STATS_VERSION + 1, bytes, sealed},
        {bytes, STATS_MAGIC, STATS_VERSION, bytes - 1, sealed},
        {bytes - 4096, STATS_MAGIC, STATS_VERSION, bytes, sealed},
        {bytes + 4096, STATS_MAGIC, STATS_VERSION, bytes, sealed},
        {16, STATS_MAGIC, STATS_VERSION, bytes, sealed},
        {0, 0, 0, 0, sealed},
    };
    const struct stats_page *pages[4];
    for (size_t i = 0; i < sizeof fakes / sizeof fakes[0]; i++) {
        int fd = fake_page(fakes[i].bytes, fakes[i].magic, fakes[i].version, fakes[i].said,
                           fakes[i].seals);
        assert_int_equal(stats_attach(getpid(), pages, 4), -EPROTO);
        /* A good one beside it is still found. */
        struct stats stats;
        assert_int_equal(stats_open(&stats, "good", "d"), 0);
        assert_int_equal(stats_attach(getpid(), pages, 4), 1);
        assert_string_equal(pages[0]->name, "good");
        stats_detach(pages[0]);
        stats_close(&stats);
        close(fd);
    }
}

/* What the tool says of a page of the release before, and of one to come. */
TEST(the_tool_refuses_another_version_in_a_sentence) {
    skip_emulated("STARTS NO PROGRAMS OF ITS KIND");
    const char *bin = getenv("SLUICE_BIN_DIR");
    if (!bin)
        skip(); /* run by hand */
    for (int older = 0; older < 2; older++) {
        const size_t bytes = sizeof(struct stats_page) - (older ? 4096 : 0);
        int fd = fake_page(bytes, STATS_MAGIC, older ? STATS_VERSION - 1 : STATS_VERSION + 1, bytes,
                           F_SEAL_SHRINK | F_SEAL_GROW);
        char command[512], said[512] = "";
        snprintf(command, sizeof command, "%s/sluice-stat %d 2>&1", bin, (int)getpid());
        FILE *out = popen(command, "re");
        assert_non_null(out);
        size_t length = fread(said, 1, sizeof said - 1, out);
        int status = pclose(out);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        assert_non_null(strstr(said, "is of another release than this tool"));
        assert_ptr_equal(strchr(said, '\n'), said + length - 1); /* one line, no counters */
        close(fd);
    }
}

TEST(processes_that_cannot_be_read) {
    const struct stats_page *pages[1];
    assert_int_equal(stats_attach(0, pages, 1), -ESRCH);
    assert_int_equal(stats_attach(-1, pages, 1), -ESRCH);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* Root reads everything, so give that up first; process 1 is then somebody else's. */
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(1);
        struct stat st; /* in a container process 1 may be ours: then it simply has no node */
        int expected = stat("/proc/1", &st) == 0 && st.st_uid == geteuid() ? -ENOENT : -EACCES;
        _exit(stats_attach(1, pages, 1) == expected ? 0 : 2);
    }
    assert_int_equal(wait_exit(child), 0);
    /* The child has been reaped: nobody has its number. */
    assert_int_equal(stats_attach(child, pages, 1), -ESRCH);
}

TEST(a_page_outlives_its_killed_process) {
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct stats stats;
        if (stats_open(&stats, "child", "d") != 0)
            _exit(1);
        stats_add(&stats.page->cm.dials, 3);
        if (write(ready[1], "r", 1) == 1)
            pause();
        _exit(2);
    }
    char byte;
    const struct stats_page *pages[2];
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(stats_attach(child, pages, 2), 1);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(pages[0]->cm.dials, 3);
    assert_int_equal(pages[0]->pid, child);
    stats_detach(pages[0]);
}
