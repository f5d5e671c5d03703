/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * told_listen_test.c - every error of an address and of listening at it that can be provoked is told in words
 * that are true, and that name what is in the way; and so is every option that cannot be.
 */
#include "support/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct side side;

static sluice_error listen_at(const char *address, uint32_t flags, sluice_listener *out) {
    sluice_error e = {0};
    const sluice_link_options o = {.size = sizeof o, .loop = side.loop, .flags = flags};
    int status = sluice_listen(side.node, address, &o, out, &e);
    assert_int_equal(status, status == 0 ? 0 : e.status);
    e.status = status;
    return e;
}

static void expect_no(const char *address, int os_errno, const char *text) {
    sluice_listener listener;
    sluice_error e = listen_at(address, 0, &listener);
    if (e.status != SLUICE_EADDRESS || e.reason != SLUICE_REASON_ADDRESS ||
        e.os_errno != os_errno || strcmp(e.text, text) != 0)
        fail_msg("listening at %s: status %d, reason %d, errno %d: %s\nexpected: %s", address,
                 e.status, e.reason, e.os_errno, e.text, text);
}

/* An address with a port that somebody has, "%s" for the port; at: what is told of it. */
static void expect_taken(int port, const char *address, int os_errno, const char *text) {
    char asked[64], told[160];
    snprintf(asked, sizeof asked, address, port);
    snprintf(told, sizeof told, "cannot listen at %s: %s", asked, text);
    expect_no(asked, os_errno, told);
}

static int take(const char *address, sluice_listener *out) {
    sluice_error e = listen_at(address, 0, out);
    if (e.status != 0)
        fail_msg("%s", e.text);
    return sluice_listener_port(*out);
}

static void give_back(sluice_listener listener) {
    sluice_unlisten(listener);
    for (int i = 0; sluice_listener_port(listener) != SLUICE_ECLOSED; i++) {
        assert_true(i < 100000);
        cm_progress(side.node->cm, 0);
    }
    cm_progress(side.node->cm, 0);
}

TEST(a_port_that_is_taken_says_by_whom) {
    sluice_listener first;
    pair_open_side(&side, PAIR_NODE());
    int port = take("127.0.0.1:0", &first);
    expect_taken(port, "127.0.0.1:%d", EADDRINUSE, "the address is in use");
    expect_taken(port, "*:%d", EADDRNOTAVAIL, "the port is taken at an address of this host");
    expect_taken(port, "[::]:%d", EADDRNOTAVAIL, "the port is taken at an address of this host");
    expect_taken(port, "192.0.2.77:%d", EADDRNOTAVAIL, "it is not an address of this host");
    give_back(first);
    port = take("*:0", &first);
    expect_taken(port, "*:%d", EADDRNOTAVAIL, "the port is taken at an address of this host");
    expect_taken(port, "127.0.0.1:%d", EADDRNOTAVAIL,
                 "the port is taken by a listener at every address of this host");
    expect_taken(port, "192.0.2.77:%d", EADDRNOTAVAIL, "it is not an address of this host");
    give_back(first);
    expect_no("192.0.2.77:0", EADDRNOTAVAIL,
              "cannot listen at 192.0.2.77:0: it is not an address of this host");
    expect_no("[2001:db8::77]:0", EADDRNOTAVAIL,
              "cannot listen at [2001:db8::77]:0: it is not an address of this host");
    sluice_close(side.node, 0);
}

/* ---- without the right, without files --------------------------------------------------------------- */

static unsigned first_free_port(void) {
    unsigned port = 1024;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "re");
    if (file && fscanf(file, "%u", &port) != 1)
        port = 1024;
    if (file)
        fclose(file);
    return port;
}

/* The thread's own, so that nothing else notices. */
static void set_right(bool on) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    assert_int_equal(syscall(SYS_capget, &head, data), 0);
    uint32_t bit = 1u << CAP_NET_BIND_SERVICE;
    data[0].effective =
        on ? data[0].effective | (data[0].permitted & bit) : data[0].effective & ~bit;
    assert_int_equal(syscall(SYS_capset, &head, data), 0);
}

TEST(a_port_without_the_right_to_it_says_which_right) {
    if (first_free_port() < 2)
        skip(); /* every port is everybody's here */
    pair_open_side(&side, PAIR_NODE());
    set_right(false);
    expect_no("127.0.0.1:1", EACCES,
              "cannot listen at 127.0.0.1:1: port 1 needs the right to bind it "
              "(CAP_NET_BIND_SERVICE)");
    set_right(true);
    sluice_close(side.node, 0);
}

TEST(listening_without_files_says_so) {
    struct rlimit before;
    sluice_listener listener;
    unsigned failed = 0;
    pair_open_side(&side, PAIR_NODE());
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    for (unsigned left = 0;; left++) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        close(fd); /* the lowest that is free */
        struct rlimit few = {(rlim_t)fd + left, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        sluice_error e = listen_at("127.0.0.1:0", 0, &listener);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        if (e.status == 0)
            break;
        if (e.status != SLUICE_EDEVICE || e.reason != SLUICE_REASON_DEVICE_ERROR ||
            e.os_errno != EMFILE || !strstr(e.text, strerror(EMFILE)))
            fail_msg("%u files: status %d, reason %d, errno %d: %s", left, e.status, e.reason,
                     e.os_errno, e.text);
        failed++;
        assert_true(left < 64);
    }
    assert_true(failed > 0);
    sluice_close(side.node, 0);
}

/* ---- what is no address ---------------------------------------------------------------------------- */

static const struct {
    const char *address, *listening, *dialing; /* NULL: it is one */
} wrongs[] = {
    {NULL, "no address given", "no address given"},
    {"", "\"\" is not host:port or [v6]:port", "\"\" is not host:port or [v6]:port"},
    {"host", "\"host\" is not host:port or [v6]:port", "\"host\" is not host:port or [v6]:port"},
    {":1", "\":1\" has no host", "\":1\" has no host"},
    {"[]:1", "\"[]:1\" has no host", "\"[]:1\" has no host"},
    {"[::1]", "\"[::1]\" is not host:port or [v6]:port", "\"[::1]\" is not host:port or [v6]:port"},
    {"127.0.0.1:", "\"127.0.0.1:\" has no valid port (0 to 65535)",
     "\"127.0.0.1:\" has no valid port (1 to 65535)"},
    {"127.0.0.1:65536", "\"127.0.0.1:65536\" has no valid port (0 to 65535)",
     "\"127.0.0.1:65536\" has no valid port (1 to 65535)"},
    {"127.0.0.1:7/x", "\"127.0.0.1:7/x\" has no valid port (0 to 65535)",
     "\"127.0.0.1:7/x\" has no valid port (1 to 65535)"},
    {"127.0.0.1:0", NULL, "\"127.0.0.1:0\" has no valid port (1 to 65535)"},
    {"tcp://127.0.0.1", "\"tcp://127.0.0.1\" has another scheme than \"sluice://\"",
     "\"tcp://127.0.0.1\" has another scheme than \"sluice://\""},
    {"tcp://127.0.0.1:7471", "\"tcp://127.0.0.1:7471\" has another scheme than \"sluice://\"",
     "\"tcp://127.0.0.1:7471\" has another scheme than \"sluice://\""},
    {"sluice://", "\"sluice://\" is not host:port or [v6]:port",
     "\"sluice://\" is not host:port or [v6]:port"},
    {"SLUICE://127.0.0.1:0", NULL, "\"SLUICE://127.0.0.1:0\" has no valid port (1 to 65535)"},
    {"a:b:1", "\"a:b\" is neither a host nor an IPv6 address",
     "\"a:b\" is neither a host nor an IPv6 address"},
    {"[host]:1", "\"host\" is not an IPv6 address, and brackets are for those",
     "\"host\" is not an IPv6 address, and brackets are for those"},
    {"[fe80::1]:1", "\"fe80::1\" is link-local and needs its interface: [fe80::1%eth0]:port",
     "\"fe80::1\" is link-local and needs its interface: [fe80::1%eth0]:port"},
    {"[fe80::1%no-such]:1", "\"fe80::1%no-such\": there is no interface \"no-such\"",
     "\"fe80::1%no-such\": there is no interface \"no-such\""},
    {"[fe80::1%]:1", "\"fe80::1%\": there is no interface \"\"",
     "\"fe80::1%\": there is no interface \"\""},
    {"[fe80::1%999999]:1", "\"fe80::1%999999\": there is no interface \"999999\"",
     "\"fe80::1%999999\": there is no interface \"999999\""},
    {"[::1%lo]:1", "\"::1%lo\" names an interface, which only link-local addresses do",
     "\"::1%lo\" names an interface, which only link-local addresses do"},
    {"300.1.1.1:1", "\"300.1.1.1\" is not an IPv4 address", "\"300.1.1.1\" is not an IPv4 address"},
    {"*:1", NULL, "\"*\" can be listened at, not dialed"},
    {"a.test:1", "listening needs a numeric address, \"localhost\" or \"*\", not \"a.test\"", NULL},
};

static void compare(const char *address, const char *what, const sluice_error *e,
                    const char *text) {
    if (e->status != SLUICE_EADDRESS || e->reason != SLUICE_REASON_ADDRESS || e->os_errno != 0 ||
        strcmp(e->text, text) != 0)
        fail_msg("%s %s: status %d, reason %d, errno %d: %s\nexpected: %s", what,
                 address ? address : "nothing", e->status, e->reason, e->os_errno, e->text, text);
}

TEST(what_is_no_address_says_what_is_wrong_with_it) {
    sluice_listener listener;
    sluice_session session;
    pair_open_side(&side, PAIR_NODE());
    const sluice_link_options o = {.size = sizeof o, .loop = side.loop};
    for (unsigned i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        sluice_error e = {0};
        const char *address = wrongs[i].address;
        if (wrongs[i].listening) {
            assert_true(sluice_listen(side.node, address, &o, &listener, &e) != 0);
            compare(address, "listening at", &e, wrongs[i].listening);
        }
        if (wrongs[i].dialing) {
            assert_true(sluice_dial(side.node, address, &o, &session, &e) != 0);
            compare(address, "dialing", &e, wrongs[i].dialing);
        }
    }
    char longest[400], text[160];
    sluice_error e = {0};
    memset(longest, 'a', sizeof longest);
    memcpy(longest + 300, ":1", 3);
    assert_true(sluice_dial(side.node, longest, &o, &session, &e) != 0);
    snprintf(text, sizeof text, "\"%.60s...\" has a host of 300 characters, above 255", longest);
    compare("a long one", "dialing", &e, text);
    sluice_close(side.node, 0);
}
