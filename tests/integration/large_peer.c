/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * large_peer - the other process of the tests of large transfers.
 *
 *   large_peer listen|dial:PORT read|write|place|put|request give|take [BYTES]
 *
 * Says "port N" if it listens, "up", and at the end of the session "closed reason=N received=N good=N, TEXT".
 * There are many messages of mixed sizes, or one
 * of BYTES. The end of its input ends it. One thread.
 */
#include "support/large_flow.h"

int main(int argc, char **argv) {
    static struct flow flow;
    struct side side;
    unsigned way = 0;
    bool up = false, closed = false;
    must_end_process = true;
    must(argc >= 4);
    while (way < FLOW_WAYS && strcmp(argv[2], flow_ways[way]) != 0)
        way++;
    must(way < FLOW_WAYS);
    const char *port = strchr(argv[1], ':');
    flow.bytes = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    side_open(&side, false, flow_node((enum flow_way)way, flow.bytes));
    flow_begin(&flow, &side, (enum flow_way)way, strcmp(argv[3], "give") == 0,
               port ? atoi(port + 1) : 0);
    if (!port)
        printf("port %d\n", sluice_listener_port(flow.listener));
    fflush(stdout);
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (poll(&input, 1, 0) > 0)
            break;
        flow_turn(&flow, 5 * MS);
        if (flow.up && !up)
            printf("up\n");
        if (flow.closed && !closed)
            printf("closed reason=%d received=%llu good=%llu, %s\n", flow.end.event.reason,
                   (unsigned long long)flow.received, (unsigned long long)flow.good,
                   flow.end.info.close_text);
        fflush(stdout);
        up = flow.up;
        closed = flow.closed;
    }
    note_free(&flow.held);
    side_close(&side, 0);
    return 0;
}
