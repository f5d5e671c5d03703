/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * everywhere_test.c - what listens at all addresses is reached at all of them, of both families; what listens at some is
 * reached at no other, and nobody is said to have refused. Each case in a process of its own.
 */
#include "support/child.h"
#include "support/network.h"
#include "support/rows.h"
#include "support/side.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "node/node.h"
#include "soft/soft.h"

static struct side a, b;

static int listen_at(const char *address, sluice_listener *out, sluice_error *e) {
    sluice_link_options o = side_link(&a, NULL);
    return sluice_listen(a.node, address, &o, out, e);
}

static void open_both(void) {
    side_open(&a, false, NULL);
    side_open(&b, false, NULL);
    b.partner = &a;
}

static void close_both(void) {
    side_close(&b, 0);
    side_close(&a, 0);
}

static sluice_session dial(const char *host, int port) {
    sluice_link_options o = side_link(&b, &(sluice_link_options){.flags = SLUICE_ONCE});
    char address[128];
    sluice_session session;
    sluice_error e;
    snprintf(address, sizeof address, "%s:%d", host, port);
    if (sluice_dial(b.node, address, &o, &session, &e) != 0)
        fprintf(stderr, "%s\n", e.text);
    else
        return session;
    must(!"sluice_dial");
    return session;
}

/* Both ends name the other by the address that was dialed, in the family that was dialed. */
static void reach(const char *host, int port) {
    sluice_session_info info = {.size = sizeof info};
    char begin[96];
    snprintf(begin, sizeof begin, "%s:", host);
    (void)dial(host, port);
    struct note up, note;
    must(side_next(&b, &up, LIMIT_NS));
    if (up.event.type != SLUICE_UP)
        fprintf(stderr, "%s: %s\n", host, up.info.close_text);
    must(up.event.type == SLUICE_UP);
    note = side_expect(&a, SLUICE_UP);
    must(sluice_session_get_info(note.event.session, &info) == 0);
    if (strncmp(info.peer, begin, strlen(begin)) != 0)
        fprintf(stderr, "%s comes from %s\n", host, info.peer);
    must(strncmp(info.peer, begin, strlen(begin)) == 0);
    sluice_hangup(up.event.session, 0);
    side_expect_closed(&b, SLUICE_REASON_LOCAL_CLOSE);
    side_expect_closed(&a, SLUICE_REASON_PEER_CLOSE);
}

static void miss(const char *host, int port) {
    (void)dial(host, port);
    struct note note = side_expect(&b, SLUICE_CLOSED);
    if (note.event.reason != SLUICE_REASON_NO_LISTENER)
        fprintf(stderr, "%s: %s\n", host, note.info.close_text);
    must(note.event.reason == SLUICE_REASON_NO_LISTENER);
    must(!strstr(note.info.close_text, "refused"));
    side_expect_nothing(&a);
}

/* As one dials it; false: of no internet family, or of an interface that is not up. */
static bool host_of(const struct ifaddrs *one, char out[96]) {
    const struct sockaddr *addr = one->ifa_addr;
    char text[INET6_ADDRSTRLEN];
    if (!addr || !(one->ifa_flags & IFF_UP))
        return false;
    if (addr->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)addr;
        inet_ntop(AF_INET, &four->sin_addr, out, 96);
        return true;
    }
    if (addr->sa_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)addr;
    bool zone = IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr);
    inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
    snprintf(out, 96, "[%s%s%s]", text, zone ? "%" : "", zone ? one->ifa_name : "");
    return true;
}

static unsigned each_host(int family, void (*fn)(const char *host, int port), int port) {
    struct ifaddrs *list;
    char host[96];
    unsigned count = 0;
    must(getifaddrs(&list) == 0);
    for (struct ifaddrs *one = list; one; one = one->ifa_next)
        if (one->ifa_addr && one->ifa_addr->sa_family == family && host_of(one, host)) {
            fn(host, port);
            count++;
        }
    freeifaddrs(list);
    return count;
}

/* ---- all and some ---------------------------------------------------------------------------------------- */

struct place {
    const char *net, *address;
    bool v4, v6;
};
static const struct place *place;

static void listen_and_reach(void) {
    sluice_listener listener;
    sluice_error e;
    open_both();
    if (listen_at(place->address, &listener, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        must(!"sluice_listen");
    }
    int port = sluice_listener_port(listener);
    unsigned four = each_host(AF_INET, place->v4 ? reach : miss, port);
    unsigned six = each_host(AF_INET6, place->v6 ? reach : miss, port);
    fprintf(stderr, "%s, %s: %u addresses of IPv4, %u of IPv6\n", place->address, place->net, four,
            six);
    must(four > 0);
    close_both();
}

static void is_reached(void **state) {
    place = *state;
    network_child(place->net, listen_and_reach);
}

/* ---- IPv6 that is switched off --------------------------------------------------------------------------- */

static bool switch_off(void) {
    int fd = open("/proc/sys/net/ipv6/conf/all/disable_ipv6", O_WRONLY | O_CLOEXEC);
    bool off = fd >= 0 && write(fd, "1", 1) == 1;
    if (fd >= 0)
        close(fd);
    return off;
}

/* In a network of this process alone; its parent has found that it may have one. */
static void without_ipv6(void) {
    sluice_listener listener;
    sluice_error e;
    must(network_separate());
    open_both();
    must(listen_at("[::1]:0", &listener, &e) == 0);
    reach("[::1]", sluice_listener_port(listener));
    must(switch_off());
    must(listen_at("[::1]:0", &listener, &e) == SLUICE_EADDRESS && e.os_errno == EADDRNOTAVAIL);
    must(strcmp(e.text, "cannot listen at [::1]:0: it is not an address of this host") == 0);
    must(listen_at("*:0", &listener, &e) == 0);
    reach("127.0.0.1", sluice_listener_port(listener));
    close_both();
}

static bool may_be_separate(void) {
    pid_t child = child_fork();
    if (child == 0)
        _exit(network_separate() && access("/proc/self/net/if_inet6", F_OK) == 0 && switch_off()
                  ? 0
                  : 1);
    int status;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void nothing_listens_at_an_address_that_is_switched_off(void **state) {
    place = *state;
    if (!may_be_separate()) {
        fprintf(stderr, "skipped: a network namespace with IPv6 needs root and a kernel with it\n");
        skip();
    }
    network_child(place->net, without_ipv6);
}

/* ---- a system without IPv6 ------------------------------------------------------------------------------- */

static struct {
    struct fabric_ops ops;
    const struct fabric_ops *real;
    int refuse, error; /* the call that knows no IPv6: 0 option, 1 bind, 2 listen */
    unsigned asked;
} old;

static bool says_no(struct rdma_cm_id *id, int call) {
    (void)id;
    if (old.refuse != call)
        return false;
    old.asked++;
    errno = old.error;
    return true;
}

static int old_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes) {
    return name == RDMA_OPTION_ID_AFONLY && says_no(id, 0)
               ? -1
               : old.real->set_option(id, level, name, value, bytes);
}

static int old_bind(struct rdma_cm_id *id, struct sockaddr *addr) {
    return addr->sa_family == AF_INET6 && says_no(id, 1) ? -1 : old.real->bind_addr(id, addr);
}

static int old_listen(struct rdma_cm_id *id, int backlog) {
    return id->route.addr.src_addr.sa_family == AF_INET6 && says_no(id, 2)
               ? -1
               : old.real->listen(id, backlog);
}

static void listen_on_an_old_one(void) {
    sluice_listener listener;
    sluice_error e;
    open_both();
    old.real = a.node->fabric;
    old.ops = *old.real;
    old.ops.set_option = old_option;
    old.ops.bind_addr = old_bind;
    old.ops.listen = old_listen;
    a.node->fabric = &old.ops;
    for (old.refuse = 0; old.refuse < 3; old.refuse++) {
        old.error = old.refuse == 0 ? ENOSYS : EAFNOSUPPORT;
        old.asked = 0;
        must(listen_at("*:0", &listener, &e) == 0);
        must(old.asked == 1);
        reach("127.0.0.1", sluice_listener_port(listener));
        miss("[::1]", sluice_listener_port(listener));
        sluice_unlisten(listener);
    }
    /* A port that is taken in one family is no reason to be content with the other. */
    old.refuse = 1;
    old.error = EADDRNOTAVAIL;
    must(listen_at("*:7471", &listener, &e) == SLUICE_EADDRESS && e.os_errno == EADDRNOTAVAIL);
    must(strncmp(e.text, "cannot listen at *:7471: ", 25) == 0);
    close_both();
}

TEST(a_system_without_ipv6_is_listened_at_over_ipv4) {
    network_child("off", listen_on_an_old_one);
}

/* As a socket of both families shows it, whichever stack has it. */
TEST(an_ipv4_address_inside_one_of_ipv6_is_written_as_ipv4) {
    union address address = {.v6 = {.sin6_family = AF_INET6, .sin6_port = htons(7471)}};
    char text[64];
    assert_int_equal(inet_pton(AF_INET6, "::ffff:192.0.2.7", &address.v6.sin6_addr), 1);
    address_format(&address.any, text);
    assert_string_equal(text, "192.0.2.7:7471");
}

TEST_CASES(
    ROW(star_is_reached_at_every_address, is_reached, place, "on", "*:0", true, true),
    ROW(star_is_reached_at_every_address_over_tcp, is_reached, place, "require", "*:0", true, true),
    ROW(star_is_reached_at_every_address_inside, is_reached, place, "off", "*:0", true, true),
    ROW(any_of_ipv6_is_reached_at_every_address, is_reached, place, "on", "[::]:0", true, true),
    ROW(any_of_ipv6_is_reached_at_every_address_over_tcp, is_reached, place, "require", "[::]:0",
        true, true),
    ROW(any_of_ipv4_is_reached_at_ipv4_alone, is_reached, place, "on", "0.0.0.0:0", true, false),
    ROW(any_of_ipv4_is_reached_at_ipv4_alone_over_tcp, is_reached, place, "require", "0.0.0.0:0",
        true, false),
    ROW(any_of_ipv4_is_reached_at_ipv4_alone_inside, is_reached, place, "off", "0.0.0.0:0", true,
        false),
    ROW(switched_off, nothing_listens_at_an_address_that_is_switched_off, place, "off", NULL, true,
        false),
    ROW(switched_off_over_tcp, nothing_listens_at_an_address_that_is_switched_off, place, "require",
        NULL, true, false));
