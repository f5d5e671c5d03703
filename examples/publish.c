/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* `publish ADDRESS`: a number each 100 ms, to subscribers that say first which one they want next. */
#include <sluice/sluice.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static sluice_session to[64]; /* the subscribers, and what each is sent next */
static uint64_t next[64], count;

/* What was published so far ends with this. Here the clock knows it; else a log, kept for as long as anyone may ask for it. */
static uint64_t newest(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 10 + (uint64_t)now.tv_nsec / 100000000;
}

static void see(const sluice_event *event) {
    if (event->type == SLUICE_MESSAGE && event->bytes == 8 && count < 64) {
        uint64_t wanted = *(const uint64_t *)sluice_data(event->msg);
        next[count] = wanted ? wanted : newest();
        to[count++] = event->session;
    }
    for (uint64_t i = 0; event->type == SLUICE_CLOSED && i < count; i++)
        if (to[i].id == event->session.id) /* it dials again, and says where it was */
            next[i] = next[--count], to[i] = to[count];
}

/* Until the device is gone. A session that is down takes messages up to its window, and EAGAIN says that it is full. */
static void publish(sluice_node *node, const char *address, sluice_error *error) {
    sluice_loop *loop;
    sluice_listener listener;
    sluice_event event = {0};
    if (sluice_loop_open(node, &loop, error) ||
        sluice_listen(node, address, SLUICE_LINK(.loop = loop, .resume_ns = 30000000000), &listener,
                      error))
        return;
    while (event.type != SLUICE_CLOSED || event.session.id != listener.id) {
        if (sluice_poll(loop, &event, 1, 20000000) == 1)
            see(&event);
        for (uint64_t i = 0; i < count; i++)
            while (next[i] <= newest() && sluice_send_copy(to[i], &next[i], 8, NULL) == 0)
                next[i]++;
    }
}

int main(int argc, char **argv) {
    for (sluice_node *node;; sleep(1)) { /* a node does not use a device again that was removed */
        sluice_error error = {0};
        if (sluice_open(&node, NULL, &error) == 0) {
            publish(node, argc > 1 ? argv[1] : "127.0.0.1:7473", &error);
            sluice_close(node, 0);
            count = 0;
        }
        fprintf(stderr, "%s\n", error.status ? error.text : "the device is gone");
    }
}
