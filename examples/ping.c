/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
#include <sluice/sluice.h>
#include <stdio.h>

int main(int argc, char **argv) {
    sluice_node *node;
    sluice_loop *loop;
    sluice_session s;
    sluice_error error;
    sluice_event event;
    sluice_session_info end = {.size = sizeof end};
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:7471";
    if (sluice_open(&node, NULL, &error) || sluice_loop_open(node, &loop, &error) ||
        sluice_dial(node, address, SLUICE_LINK(.loop = loop), &s, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    while (sluice_poll(loop, &event, 1, SLUICE_OFF) == 1 && event.type != SLUICE_MESSAGE)
        if (event.type == SLUICE_CLOSED || sluice_send_copy(s, "ping", 4, NULL) != 0)
            return sluice_session_get_info(s, &end), fprintf(stderr, "%s\n", end.close_text), 1;
    printf("%.*s came back\n", (int)event.bytes, (char *)sluice_data(event.msg));
    sluice_close(node, 0);
}
