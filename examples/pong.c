/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <sluice/sluice.h>
#include <stdio.h>

int main(int argc, char **argv) {
    sluice_node *node;
    sluice_loop *loop;
    sluice_listener listener;
    sluice_error error;
    sluice_event event;
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:7471";
    if (sluice_open(&node, NULL, &error) || sluice_loop_open(node, &loop, &error) ||
        sluice_listen(node, address, SLUICE_LINK(.loop = loop), &listener, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    fprintf(stderr, "listening on port %d\n", sluice_listener_port(listener));
    while (sluice_poll(loop, &event, 1, SLUICE_OFF) == 1 && event.type != SLUICE_CLOSED)
        if (event.type == SLUICE_MESSAGE && sluice_send(event.session, event.msg, NULL) != 0)
            return 1;
    sluice_close(node, 0);
}
