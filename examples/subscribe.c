/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `subscribe ADDRESS`: prints what `publish` publishes, each number once, whatever happens to either or between them. */
#include <sluice/sluice.h>
#include <stdio.h>
#include <unistd.h>

static uint64_t next; /* the number that is to come; 0: any */

/* Until the session ends. While it lives, the library sees to it that nothing is lost and nothing comes twice. */
static void subscribe(sluice_node *node, const char *address, sluice_error *error) {
    sluice_loop *loop;
    sluice_session session;
    sluice_event event = {0};
    if (sluice_loop_open(node, &loop, error) ||
        sluice_dial(node, address,
                    SLUICE_LINK(.loop = loop, .flags = SLUICE_WAIT, .resume_ns = 30000000000),
                    &session, error))
        return;
    while (event.type != SLUICE_CLOSED && sluice_poll(loop, &event, 1, SLUICE_OFF) == 1) {
        if (event.type == SLUICE_UP && event.tag == 0) /* else it was down, and goes on */
            sluice_send_copy(session, &next, sizeof next, NULL);
        if (event.type == SLUICE_MESSAGE && event.bytes == 8) {
            next = *(const uint64_t *)sluice_data(event.msg) + 1;
            printf("%llu\n", (unsigned long long)next - 1);
            fflush(stdout);
        }
        if (event.type == SLUICE_DOWN || event.type == SLUICE_CLOSED)
            fprintf(stderr, "%s\n", sluice_reason_text(event.reason));
    }
}

int main(int argc, char **argv) {
    for (sluice_node *node;; sleep(
             1)) { /* SESSION_UNKNOWN: a publisher that restarted has no sessions. What it sends */
        sluice_error error = {0}; /* then is up to us: we say where we were. */
        if (sluice_open(&node, NULL, &error) == 0) {
            subscribe(node, argc > 1 ? argv[1] : "127.0.0.1:7473", &error);
            sluice_close(node, 0);
        }
        fprintf(stderr, "%s\n", error.status ? error.text : "again");
    }
}
