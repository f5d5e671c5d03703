/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A user's C++ program: one node that listens and dials itself, one ping, one pong. */
#include <sluice/memory.h>
#include <sluice/sluice.h>

#include <cstdio>
#include <future>
#include <string>

static std::promise<std::string> closed;
static std::string answer;

static void on_pong_side(const sluice_event *event, void *) {
    if (event->type == SLUICE_MESSAGE && sluice_send(event->session, event->msg, nullptr) != 0)
        std::fprintf(stderr, "cannot answer\n");
}

static void on_ping_side(const sluice_event *event, void *) {
    if (event->type == SLUICE_UP && sluice_send_copy(event->session, "ping", 4, nullptr) != 0)
        sluice_hangup(event->session, 0);
    if (event->type == SLUICE_MESSAGE) {
        answer.assign(static_cast<char *>(sluice_data(event->msg)), event->bytes);
        sluice_hangup(event->session, 0);
    }
    if (event->type == SLUICE_CLOSED)
        closed.set_value(answer);
}

int main() {
    sluice_error error = {};
    sluice_node *node = nullptr;
    sluice_listener listener = {};
    sluice_session session = {};
    sluice_link_options link = {};
    link.size = sizeof link;
    link.handler = on_pong_side;
    if (sluice_open(&node, nullptr, &error) ||
        sluice_listen(node, "127.0.0.1:0", &link, &listener, &error))
        return std::fprintf(stderr, "%s\n", error.text), 1;
    sluice_region *region = nullptr;
    sluice_token token = {};
    if (sluice_region_open(node, nullptr, 4096, SLUICE_MAY_READ, &region, &error) ||
        sluice_region_token(region, 0, 4096, SLUICE_MAY_READ, &token) ||
        sluice_region_close(region))
        return std::fprintf(stderr, "%s\n", error.text), 1;
    link.handler = on_ping_side;
    std::string address = "127.0.0.1:" + std::to_string(sluice_listener_port(listener));
    if (sluice_dial(node, address.c_str(), &link, &session, &error))
        return std::fprintf(stderr, "%s\n", error.text), 1;
    std::string got = closed.get_future().get();
    sluice_close(node, 0);
    std::printf("%s\n", got.c_str());
    return got != "ping";
}
