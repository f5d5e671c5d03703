/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* A user's program, outside the tree: a node that listens, a node that dials, one ping, one pong. */
#include <sluice/sluice.h>

#include <semaphore.h>
#include <stdio.h>
#include <string.h>

static sem_t finished;
static char answer[8];

static void on_pong_side(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_MESSAGE && sluice_send_copy(event->session, "pong", 5, NULL) != 0)
        fprintf(stderr, "cannot answer\n");
}

static void on_ping_side(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_UP && sluice_send_copy(event->session, "ping", 5, NULL) != 0)
        sluice_hangup(event->session, 0);
    if (event->type == SLUICE_MESSAGE) {
        memcpy(answer, sluice_data(event->msg), event->bytes < 8 ? event->bytes : 7);
        sluice_hangup(event->session, 0);
    }
    if (event->type == SLUICE_CLOSED)
        sem_post(&finished);
}

int main(void) {
    sluice_node *a, *b;
    sluice_listener listener;
    sluice_session session;
    sluice_error error;
    char address[32];

    sem_init(&finished, 0, 0);
    if (sluice_open(&a, NULL, &error) || sluice_open(&b, NULL, &error) ||
        sluice_listen(a, "127.0.0.1:0", SLUICE_LINK(.handler = on_pong_side), &listener, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    snprintf(address, sizeof address, "127.0.0.1:%d", sluice_listener_port(listener));
    if (sluice_dial(b, address, SLUICE_LINK(.handler = on_ping_side), &session, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    sem_wait(&finished);
    sluice_close(b, 0);
    sluice_close(a, 0);
    printf("%s\n", answer);
    return strcmp(answer, "pong") != 0;
}
