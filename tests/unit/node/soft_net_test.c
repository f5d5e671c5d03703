/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * soft_net_test.c - the node option soft_net: it decides for its node, whatever the environment says, and for no other
 * node of the process. Each case in a process of its own.
 */
#include "support/network.h"
#include "support/side.h"

#include <arpa/inet.h>
#include <netinet/in.h>

static struct side a, b, c;

static void open_with(struct side *side, uint32_t soft_net) {
    side_open(side, false, SLUICE_NODE(.soft_net = soft_net));
}

static int listen_at(struct side *side, const char *address) {
    sluice_link_options o = side_link(side, NULL);
    sluice_listener listener;
    must(sluice_listen(side->node, address, &o, &listener, NULL) == 0);
    return sluice_listener_port(listener);
}

/* A program that knows nothing of RDMA gets through to it. */
static bool has_tcp_port(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    bool open = connect(fd, (struct sockaddr *)&to, sizeof to) == 0;
    close(fd);
    return open;
}

static void says(struct side *side, const char *text) {
    must(strstr(side_node_info(side->node).other_hosts, text));
}

static unsigned way_to(struct side *from, struct side *to, int port) {
    sluice_session_info info = {.size = sizeof info};
    from->partner = to;
    sluice_session session = side_dial(from, port, NULL);
    must(side_expect(from, SLUICE_UP).event.session.id == session.id);
    must(side_expect(to, SLUICE_UP).event.type == SLUICE_UP);
    must(sluice_session_get_info(session, &info) == 0);
    return info.transport;
}

/* ---- off ----------------------------------------------------------------------------------------------------- */

/* All that a node does, and no socket for it: the process would be killed. */
static void stay_inside(void) {
    network_forbid();
    open_with(&a, SLUICE_SOFT_NET_OFF);
    open_with(&b, SLUICE_SOFT_NET_OFF);
    says(&a, "not at all (soft_net of the node)");
    must(way_to(&b, &a, listen_at(&a, "*:0")) == SLUICE_TRANSPORT_SHARED_MEMORY);
    sluice_link_options o = side_link(&b, NULL);
    sluice_session session;
    must(sluice_dial(b.node, "192.0.2.1:7471", &o, &session, NULL) == 0);
    struct note note = side_expect(&b, SLUICE_CLOSED);
    must(note.event.reason == SLUICE_REASON_ADDRESS && note.event.vendor == EREMOTE);
    must(strcmp(note.info.close_text,
                "192.0.2.1 is another host, and soft_net keeps the device in this one: "
                "docs/two-hosts.md") == 0);
    side_close(&b, 0);
    side_close(&a, 0);
}

TEST(off_makes_no_socket_of_the_internet_family) {
    network_child(NULL, stay_inside);
    network_child("require", stay_inside);
}

/* ---- on and require ------------------------------------------------------------------------------------------ */

static void go_outside(void) {
    open_with(&a, SLUICE_SOFT_NET_ON);
    open_with(&b, SLUICE_SOFT_NET_ON);
    says(&a, "soft_net of the node");
    must(!has_tcp_port(listen_at(&a, "127.0.0.1:0")));
    int port = listen_at(&a, "*:0");
    must(has_tcp_port(port));
    must(way_to(&b, &a, port) == SLUICE_TRANSPORT_SHARED_MEMORY);
    side_close(&b, 0);
    side_close(&a, 0);
}

TEST(on_opens_a_port_and_stays_within_the_host_where_it_can) {
    network_child("off", go_outside);
    network_child("require", go_outside);
}

static void go_over_tcp(void) {
    open_with(&a, SLUICE_SOFT_NET_REQUIRE);
    open_with(&b, SLUICE_SOFT_NET_REQUIRE);
    must(way_to(&b, &a, listen_at(&a, "127.0.0.1:0")) == SLUICE_TRANSPORT_TCP);
    side_close(&b, 0);
    side_close(&a, 0);
}

TEST(required_it_goes_over_tcp) {
    network_child("off", go_over_tcp);
}

/* ---- what is not said, and nodes that differ ----------------------------------------------------------------- */

static void do_as_the_environment_says(void) {
    open_with(&a, SLUICE_SOFT_NET_DEFAULT);
    must(has_tcp_port(listen_at(&a, "127.0.0.1:0")) ==
         (strcmp(getenv("SLUICE_SOFT_NET"), "require") == 0));
    says(&a, "SLUICE_SOFT_NET");
    side_close(&a, 0);
}

TEST(by_default_it_is_as_the_environment_says) {
    network_child("off", do_as_the_environment_says);
    network_child("require", do_as_the_environment_says);
}

static void differ(void) {
    open_with(&a, SLUICE_SOFT_NET_REQUIRE);
    open_with(&b, SLUICE_SOFT_NET_REQUIRE);
    open_with(&c, SLUICE_SOFT_NET_OFF);
    int port = listen_at(&a, "127.0.0.1:0"), closed = listen_at(&c, "*:0");
    must(!has_tcp_port(closed));
    must(way_to(&b, &a, port) == SLUICE_TRANSPORT_TCP);
    must(way_to(&c, &a, port) == SLUICE_TRANSPORT_SHARED_MEMORY);
    (void)side_dial(&b, closed, &(sluice_link_options){.flags = SLUICE_ONCE});
    must(side_expect(&b, SLUICE_CLOSED).event.reason == SLUICE_REASON_NO_LISTENER);
    side_close(&c, 0);
    side_close(&b, 0);
    side_close(&a, 0);
}

TEST(nodes_of_one_process_may_differ) {
    network_child(NULL, differ);
}

int main(void) {
    setenv("SLUICE_DEVICE", "soft", 0);
    return tests_run(NULL, NULL);
}
