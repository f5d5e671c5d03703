/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_stranger_test.c - processes that make names without number: who looks for one among them waits for as long as
 * the kernel takes to list them, and nobody waits for him.
 */
#define _GNU_SOURCE
#include "support/softcm.h"
#include "support/softverbs.h"
#include "support/network.h"
#include "support/skip.h"
#include "support/squatter.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soft/ipc/control_lock.h"
#include "soft/ipc/name_list.h"

#define OTHER_UID 65534
#define NAMES 15200u
#define FEW (NAMES / 2)                         /* three a millisecond while the list is read */
#define NOBODYS_QPN (4095u * SOFT_QP_BLOCK + 1) /* likely of no process */

struct crowd {
    const char *begin, *end;
    bool foreign;
};
/* Names of anything; and names that a dial to port 1 has to look at, each of another address of this host. */
static const struct crowd any_names = {"crowd-", "", false};
static const struct crowd names_of_port = {"sluice-soft.1/cm/106/47f", "/1", true};
static const struct crowd *crowd_of_child;

static void makes_names(int fd) {
    if (crowd_of_child->foreign)
        squatter_become(OTHER_UID);
    squatter_crowd(crowd_of_child->begin, crowd_of_child->end, NAMES, true);
    sv_tell(fd, 1);
    (void)sv_hear(fd);
}

static struct sv_child crowd_begin(const struct crowd *crowd) {
    crowd_of_child = crowd;
    if (crowd->foreign && geteuid() != 0)
        skip_with("needs root to make names as another user");
    struct sv_child child = sv_fork(makes_names);
    must(sv_hear(child.fd) == 1);
    return child;
}

static void crowd_end(struct sv_child *child) {
    sv_tell(child->fd, 0);
    must(sv_join(child) == 0);
}

static _Atomic bool begun, done;
static struct rdma_event_channel *channel;

static void takes_a_port(void) {
    struct rdma_cm_id *id = ct_id(channel);
    (void)ct_listen(id, 8);
    assert_int_equal(soft_destroy_id(id), 0);
}

static void is_refused(void) {
    struct rdma_cm_id *id = ct_connect(channel, 1); /* nobody listens there */
    assert_int_not_equal(ct_take(channel, RDMA_CM_EVENT_REJECTED), 0);
    assert_int_equal(soft_destroy_id(id), 0);
}

/* Each time anew: the numbers are given up with the last object. */
static void takes_numbers_and_finds_nobody(void) {
    struct sv_end e;
    sv_open(&e, SV_OPTIONS());
    sv_connect(&e, NOBODYS_QPN);
    sv_close(&e);
}

static void joins_a_group(void) {
    struct sv_end e;
    union ibv_gid gid = {.raw = {0xff, 0x12, [15] = 1}};
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1};
    sv_open(&e, SV_OPTIONS(.type = IBV_QPT_UD));
    must(soft_modify_qp(e.qp, &attr,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
    must(soft_attach_mcast(e.qp, &gid, 0) == 0);
    must(soft_detach_mcast(e.qp, &gid, 0) == 0);
    sv_close(&e);
}

/* Each has all names read. */
static const struct reader {
    const char *name;
    void (*reads)(void);
    bool with_channel;
} readers[] = {
    {"who takes a port", takes_a_port, true},
    {"a dial that is refused", is_refused, true},
    {"queue pair numbers", takes_numbers_and_finds_nobody, false},
    {"a multicast group", joins_a_group, false},
};

static void *run(void *arg) {
    const struct reader *reader = arg;
    atomic_store(&begun, true);
    reader->reads();
    atomic_store(&done, true);
    return NULL;
}

/* How long the engine would wait for its lock at most while a thread does that: the best of some tries. */
static uint64_t wait_meanwhile(const struct reader *reader) {
    uint64_t best = UINT64_MAX;
    channel = reader->with_channel ? soft_create_event_channel() : NULL;
    for (unsigned try = 0; try < 20; try++) {
        uint64_t longest = 0;
        pthread_t thread;
        atomic_store(&begun, false);
        atomic_store(&done, false);
        assert_int_equal(pthread_create(&thread, NULL, run, (void *)(uintptr_t)reader), 0);
        while (!atomic_load(&begun))
            sched_yield();
        while (!atomic_load(&done)) {
            uint64_t before = soft_now_ns();
            soft_lock();
            soft_unlock();
            uint64_t took = soft_now_ns() - before;
            longest = took > longest ? took : longest;
            sched_yield();
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        best = longest < best ? longest : best;
    }
    if (channel)
        soft_destroy_event_channel(channel);
    return best;
}

/* The least that reading all names takes. */
static uint64_t reading_takes(void) {
    uint64_t least = UINT64_MAX;
    static char text[65536];
    for (unsigned try = 0; try < 5; try++) {
        uint64_t before = soft_now_ns();
        int fd = open("/proc/net/unix", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        while (read(fd, text, sizeof text) > 0)
            ;
        close(fd);
        uint64_t took = soft_now_ns() - before;
        least = took < least ? took : least;
    }
    return least;
}

/* Connections are counted; on some machines they take long: then so many in a row may not hold the others up. */
#define SLOW_NS 100000u
static atomic_bool slow_connects;
static _Atomic unsigned connected;

int connect(int fd, const struct sockaddr *addr, socklen_t length) {
    connected++;
    if (atomic_load(&slow_connects))
        for (uint64_t end = soft_now_ns() + SLOW_NS; soft_now_ns() < end;)
            ;
    return (int)syscall(SYS_connect, fd, addr, length);
}

TEST(names_without_number_hold_up_only_who_reads_them) {
    struct sv_child crowd = crowd_begin(&any_names);
    uint64_t reading = reading_takes();
    atomic_store(&slow_connects, true);
    for (unsigned i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        uint64_t wait = wait_meanwhile(&readers[i]);
        print_message("    %s: a wait of %llu us, where reading takes %llu us\n", readers[i].name,
                      (unsigned long long)wait / 1000, (unsigned long long)reading / 1000);
        assert_true(2 * wait < reading);
    }
    atomic_store(&slow_connects, false);
    crowd_end(&crowd);
}

/* ---- what they cost --------------------------------------------------------------------------------- */

struct tally {
    unsigned count, foreign;
};

static bool counts(const struct soft_listed_name *name, void *arg) {
    struct tally *tally = arg;
    tally->count++;
    tally->foreign += name->has_uid && name->uid == OTHER_UID;
    return true;
}

static void needs_netlink(void) {
    struct tally tally = {0};
    if (soft_name_scan_netlink("no name", counts, &tally) != 0)
        skip_with("this kernel does not list unix sockets over netlink");
}

TEST(netlink_lists_the_names_that_proc_does_and_says_whose_they_are) {
    struct tally proc = {0}, netlink = {0};
    needs_netlink();
    struct sv_child crowd = crowd_begin(&names_of_port);
    assert_int_equal(soft_name_scan_proc(names_of_port.begin, counts, &proc), 0);
    assert_int_equal(soft_name_scan_netlink(names_of_port.begin, counts, &netlink), 0);
    assert_int_equal(proc.count, NAMES);
    assert_int_equal(netlink.count, NAMES);
    assert_true(netlink.foreign == NAMES || netlink.foreign == 0 /* an older kernel */);
    crowd_end(&crowd);
}

/* What the library does to find a name among those: opens of the file in /proc, and connections. */
static _Atomic unsigned opened;

FILE *fopen(const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *) =
        (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    if (strstr(path, "net/unix"))
        opened++;
    return real(path, mode);
}

/* A listen, and a dial that is refused. A line of the file costs several times what a listed socket does. */
static void cost_little(const struct crowd *names) {
    needs_netlink();
    struct sv_child crowd = crowd_begin(names);
    channel = soft_create_event_channel();
    for (unsigned i = 0; i < 2; i++) {
        opened = connected = 0;
        uint64_t before = soft_now_ns();
        readers[i].reads();
        print_message("    %s: %llu us, %u connections\n", readers[i].name,
                      (unsigned long long)(soft_now_ns() - before) / 1000, atomic_load(&connected));
        assert_int_equal(opened, 0);
        assert_true(connected < FEW);
    }
    soft_destroy_event_channel(channel);
    crowd_end(&crowd);
}

TEST(names_without_number_cost_a_listen_and_a_dial_little) {
    cost_little(&any_names);
}

TEST(nor_do_those_of_the_port_itself) {
    cost_little(&names_of_port);
}

/* Of a connection over TCP that has ended, and the last and the first block, which no process has. */
TEST(no_name_is_asked_for_a_number_that_no_process_can_have) {
    static const uint32_t numbers[] = {1, 0x7ffc00, 0x800001, 0xfffffe};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sv_end e;
        sv_open(&e, SV_OPTIONS());
        connected = 0;
        sv_connect(&e, numbers[i]);
        assert_int_equal(connected, 0);
        sv_close(&e);
    }
}

int main(void) {
    (void)network_separate(); /* where it may: nobody else is to wait for these, or be counted */
    softcm_start();
    return tests_run(NULL, NULL);
}
