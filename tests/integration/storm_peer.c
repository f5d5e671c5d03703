/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * storm_peer - dials a listener COUNT times at once, and has one message echoed on each session.
 *
 *   storm_peer PORT COUNT
 *
 * A session that ends before its message is back is dialed again, as an application would that has
 * to talk to this peer. Says "done messages=N refused=N lost=N" when all COUNT messages are back:
 * refused are dials that failed, lost are sessions that ended too early; and the first reason, if
 * there was any. Input ends it: all sessions are hung up, and it says "gone" when the last one is
 * closed. One thread.
 */
#include "support/side.h"

enum { BYTES = 200, COUNT_MAX = 4096 };

static struct {
    struct side side;
    int port;
    unsigned count, messages, refused, lost, open;
    bool ending;
    struct {
        sluice_session session;
        bool up, back;
    } dials[COUNT_MAX];
    char why[200];
} storm;

static void dial(uintptr_t i) {
    storm.dials[i].up = false;
    storm.dials[i].session = side_dial(
        &storm.side, storm.port,
        &(sluice_link_options){.arg = (void *)i, .credits = 4, .timeout_ns = 10 * LIMIT_NS});
    storm.open++;
}

static void take_closed(uintptr_t i, const struct note *note) {
    storm.open--;
    if (storm.ending)
        return;
    must(!storm.dials[i].back); /* the listener's side does not end what works */
    if (storm.refused + storm.lost == 0)
        snprintf(storm.why, sizeof storm.why, "%s: %s", sluice_reason_text(note->event.reason),
                 note->info.close_text);
    *(storm.dials[i].up ? &storm.lost : &storm.refused) += 1;
    dial(i);
}

static void take(const struct note *note) {
    uintptr_t i = (uintptr_t)note->event.arg;
    must(i < storm.count);
    switch ((sluice_event_type)note->event.type) {
    case SLUICE_UP: {
        storm.dials[i].up = true;
        int status = side_send(&storm.side, note->event.session, BYTES, i, 0);
        must(status == 0 || status == SLUICE_ECLOSED); /* CLOSED is on its way */
        break;
    }
    case SLUICE_MESSAGE:
        must_data(it_matches(note->msg, BYTES, i));
        must_data(!storm.dials[i].back);
        storm.dials[i].back = true;
        storm.messages++;
        break;
    case SLUICE_CLOSED:
        take_closed(i, note);
        break;
    default:
        must(!"an event that was not asked for");
        break;
    }
}

/* False: for a minute there was no event. */
static bool turn(void) {
    struct note note;
    if (!side_next(&storm.side, &note, LIMIT_NS))
        return false;
    take(&note);
    note_free(&note);
    return true;
}

int main(int argc, char **argv) {
    must_end_process = true;
    must(argc == 3);
    storm.port = atoi(argv[1]);
    storm.count = (unsigned)atoi(argv[2]);
    must(storm.count > 0 && storm.count <= COUNT_MAX);
    side_open(&storm.side, false, SLUICE_NODE(.eager_bytes = 1024, .memory_bytes_max = 64 << 20));
    puts("ready");
    fflush(stdout);
    char line[16];
    must(fgets(line, sizeof line, stdin));
    for (uintptr_t i = 0; i < storm.count; i++)
        dial(i);
    while (storm.messages < storm.count)
        must(turn());
    printf("done messages=%u refused=%u lost=%u %s\n", storm.messages, storm.refused, storm.lost,
           storm.why);
    fflush(stdout);
    must(fgets(line, sizeof line, stdin));
    storm.ending = true;
    for (unsigned i = 0; i < storm.count; i++)
        sluice_hangup(storm.dials[i].session, 1000 * MS);
    while (storm.open > 0)
        must(turn());
    side_close(&storm.side, 0);
    puts("gone");
    return 0;
}
