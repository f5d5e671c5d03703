/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory_peer - the other process of the tests of one-sided operations.
 *
 *   memory_peer target            listens, says "port N", gives its token to everybody, and waits
 *   memory_peer add:PORT COUNT    adds 1 to the first word COUNT times, many at a time
 *   memory_peer put:PORT COUNT    puts pattern i, notifies with i, and waits for the answer; COUNT times
 *
 * Says "done sum=N" (of what the outcomes held) when all is done, and "closed reason=N status=N" at the
 * end, which its input, the end of the session or the end of its work brings. One thread.
 */
#include "support/side.h"

#include <sluice/memory.h>

#define BYTES 100000u

static struct {
    struct side side;
    sluice_region *region;
    sluice_token token;
    sluice_session session;
    char what; /* 't', 'a', 'p' */
    unsigned count, given, done, answered;
    uint64_t sum;
} self;

static void say(const char *what, uint64_t a, uint64_t b) {
    printf(what, (unsigned long long)a, (unsigned long long)b);
    fflush(stdout);
}

static void give(void) {
    if (self.what == 'a')
        while (self.given < self.count &&
               sluice_fetch_add(self.session, &self.token, 0, 1, SLUICE_SEND(.tag = 1)) == 0)
            self.given++;
    if (self.what == 'p' && self.given == self.answered && self.given == self.done &&
        self.given < self.count) {
        uint8_t *data = sluice_region_data(self.region);
        for (size_t i = 0; i < BYTES; i++)
            data[i] = it_byte(i, self.given);
        must(sluice_put_notify(self.session, self.region, 0, BYTES, &self.token, 0, self.given,
                               SLUICE_SEND(.tag = 1)) == 0);
        self.given++;
    }
}

static void take(struct note *note) {
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_UP:
        if (self.what == 't')
            must(sluice_send_copy(note->event.session, &self.token, sizeof self.token, NULL) == 0);
        else
            self.session = note->event.session;
        break;
    case SLUICE_MESSAGE:
        if (sluice_size(note->msg) == sizeof self.token)
            memcpy(&self.token, sluice_data(note->msg), sizeof self.token);
        else
            self.answered++;
        break;
    case SLUICE_DONE:
        if (note->event.status == 0)
            self.sum += note->event.value;
        if (++self.done == self.count)
            say("done sum=%llu\n", self.sum, 0);
        break;
    case SLUICE_CLOSED:
        say("closed reason=%llu status=%llu\n", note->event.reason, (uint64_t)-note->event.status);
        if (self.what != 't')
            exit(0);
        break;
    case SLUICE_WRITABLE:
        break;
    default:
        must(!"an event of this kind");
    }
    note_free(note);
}

int main(int argc, char **argv) {
    must_end_process = true;
    must(argc >= 2);
    self.what = argv[1][0];
    self.count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    side_open(&self.side, false, NULL);
    uint32_t rights = it_rights();
    must(sluice_region_open(self.side.node, NULL, 1 << 20, rights, &self.region, NULL) == 0);
    must(sluice_region_token(self.region, 0, 1 << 20, rights, &self.token) == 0);
    if (self.what == 't')
        say("port %llu\n", (uint64_t)side_listen(&self.side, NULL, NULL), 0);
    else
        side_dial(&self.side, atoi(strchr(argv[1], ':') + 1), NULL);
    bool known = self.what == 't';
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        struct note note;
        if (poll(&input, 1, 0) > 0)
            break;
        if (side_next(&self.side, &note, 10 * MS)) {
            known |= note.event.type == SLUICE_MESSAGE;
            take(&note);
        }
        if (known)
            give();
    }
    side_close(&self.side, 0);
    return 0;
}
