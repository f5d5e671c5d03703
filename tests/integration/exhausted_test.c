/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Memory for sending that is used up stops nobody but who wants to send, and those only until some comes
 * back: SLUICE_WRITABLE is all they wait for here.
 */
#include "support/side.h"

#include <sluice/memory.h>

#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

enum { SESSIONS = 4, MESSAGES = 250, HOARD = 65536 };

#define SMALL_NODE                                                                                 \
    (&(sluice_node_options){                                                                       \
        .memory_bytes_max = 8 << 20, .message_bytes_max = 1 << 20, .sessions_max = 16})

/* ---- nobody can send, and everybody receives ------------------------------------------------------ */

static sluice_msg *hoard[HOARD];
static unsigned count;

static void use_up(sluice_node *node) {
    for (size_t bytes = 1 << 20; bytes >= 64; bytes /= 2) {
        int status = SLUICE_OK;
        while (count < HOARD && (status = sluice_alloc(node, bytes, &hoard[count])) == 0)
            count++;
        assert_int_equal(status, SLUICE_EAGAIN);
    }
}

/* A worker may give back what its cache had only now: that is taken too. */
static struct note expect_message(struct side *side) {
    for (;;) {
        struct note note;
        must(side_next(side, &note, LIMIT_NS));
        if (note.event.type == SLUICE_MESSAGE)
            return note;
        must(note.event.type == SLUICE_WRITABLE);
        use_up(side->node);
    }
}

static void cannot_send(struct couple *c, sluice_session from) {
    int status;
    while ((status = sluice_send_copy(from, "", 0, NULL)) == 0) { /* likewise */
        struct note note = side_expect(&c->b, SLUICE_MESSAGE);
        note_free(&note);
        use_up(c->a.node);
    }
    assert_int_equal(status, SLUICE_EAGAIN);
}

static void every_session_is_told(struct side *side, const sluice_session *sessions) {
    bool told[SESSIONS] = {false};
    for (unsigned left = SESSIONS; left > 0;) {
        struct note note = side_expect(side, SLUICE_WRITABLE);
        unsigned i = 0;
        while (i < SESSIONS && sessions[i].id != note.event.session.id)
            i++;
        must(i < SESSIONS);
        left -= !told[i];
        told[i] = true;
    }
}

BOTH_MODES(all_senders_exhausted_while_receives_continue) {
    struct couple c;
    sluice_session at_a[SESSIONS], at_b[SESSIONS];
    couple_open(&c, handlers_of(state), SMALL_NODE);
    for (unsigned i = 0; i < SESSIONS; i++) {
        couple_connect(&c, NULL);
        at_a[i] = c.at_a;
        at_b[i] = c.at_b;
    }
    count = 0;
    use_up(c.a.node);
    for (unsigned i = 0; i < SESSIONS; i++)
        cannot_send(&c, at_a[i]);
    for (unsigned i = 0; i < 100 * SESSIONS; i++) {
        size_t bytes = i % 10 == 9 ? 300000 : it_mixed(i);
        must(side_send(&c.b, at_b[i % SESSIONS], bytes, i, 0) == 0);
        struct note note = expect_message(&c.a);
        must(it_matches(note.msg, bytes, i));
        note_free(&note);
    }
    for (unsigned i = 0; i < SESSIONS; i++) /* whoever was told meanwhile waits again */
        cannot_send(&c, at_a[i]);
    while (count > 0)
        sluice_free(hoard[--count]);
    every_session_is_told(&c.a, at_a);
    for (unsigned i = 0; i < SESSIONS; i++) {
        must(sluice_send_copy(at_a[i], "again", 5, NULL) == 0);
        struct note note = side_expect(&c.b, SLUICE_MESSAGE);
        must(note.event.session.id == at_b[i].id && sluice_size(note.msg) == 5);
        note_free(&note);
    }
    couple_close(&c);
}

/* ---- many who send through memory that is much too small ------------------------------------------ */

struct stream {
    struct flow *flow;
    sluice_session session;
    uint64_t next;
    bool waits; /* for WRITABLE */
};

struct flow {
    sluice_node *from;
    struct stream stream[SESSIONS]; /* each touched by the thread that gets its events */
    _Atomic unsigned starved;       /* times without memory */
    _Atomic unsigned received;
    uint64_t expected[SESSIONS]; /* by stream: the number of the next message */
};

struct mark {
    uint64_t stream, number;
};

static int send_next(struct stream *s) {
    static const char zeroes[60000];
    struct mark mark = {(uint64_t)(s - s->flow->stream), s->next};
    if (s->next % 3 == 2) {
        const sluice_piece pieces[] = {{&mark, sizeof mark, NULL}, {zeroes, sizeof zeroes, NULL}};
        return sluice_send_pieces(s->session, pieces, 2, NULL);
    }
    sluice_msg *msg;
    int status = sluice_alloc(s->flow->from, sizeof mark + it_mixed(s->next), &msg);
    if (status != 0) {
        atomic_fetch_add(&s->flow->starved, 1);
        return status;
    }
    memset(sluice_data(msg), 0, sluice_size(msg));
    memcpy(sluice_data(msg), &mark, sizeof mark);
    status = sluice_send(s->session, msg, NULL);
    if (status != 0)
        sluice_free(msg);
    return status;
}

static void on_sender(const sluice_event *event, void *arg) {
    struct stream *s = event->arg;
    (void)arg;
    if (event->type == SLUICE_CLOSED) /* at the end */
        return;
    must(event->type == SLUICE_UP || event->type == SLUICE_WRITABLE);
    s->session = event->session;
    s->waits = false;
    while (!s->waits && s->next < MESSAGES) {
        int status = send_next(s);
        must(status == 0 || status == SLUICE_EAGAIN);
        s->waits = status == SLUICE_EAGAIN;
        s->next += status == 0;
    }
}

static void on_receiver(const sluice_event *event, void *arg) {
    struct flow *f = arg;
    struct mark mark;
    if (event->type != SLUICE_MESSAGE)
        return;
    must(sluice_size(event->msg) >= sizeof mark);
    memcpy(&mark, sluice_data(event->msg), sizeof mark);
    must_data(mark.stream < SESSIONS && mark.number == f->expected[mark.stream]);
    f->expected[mark.stream]++;
    atomic_fetch_add(&f->received, 1);
}

static void poll_side(struct side *side, sluice_handler handler, void *arg) {
    sluice_event events[16];
    int n = sluice_poll(side->loop, events, 16, 0);
    must(n >= 0);
    for (int i = 0; i < n; i++)
        handler(&events[i], arg);
}

static void link_for(struct side *side, sluice_handler handler, void *arg, sluice_link_options *o) {
    *o = (sluice_link_options){.size = sizeof *o};
    if (side->handlers) {
        o->handler = handler;
        o->handler_arg = arg;
    } else {
        o->loop = side->loop;
    }
}

BOTH_MODES(who_waits_for_memory_sends_on_when_there_is_some) {
    static struct flow f;
    struct side to, from;
    sluice_listener listener;
    sluice_link_options o;
    sluice_session session;
    sluice_error e;
    memset(&f, 0, sizeof f);
    side_open(&to, handlers_of(state), NULL);
    side_open(&from, handlers_of(state),
              &(sluice_node_options){
                  .memory_bytes_max = 2 << 20, .message_bytes_max = 1 << 20, .sessions_max = 8});
    f.from = from.node;
    link_for(&to, on_receiver, &f, &o);
    must(sluice_listen(to.node, it_address(0), &o, &listener, &e) == 0);
    for (unsigned i = 0; i < SESSIONS; i++) {
        f.stream[i].flow = &f;
        link_for(&from, on_sender, &f, &o);
        o.arg = &f.stream[i];
        must(sluice_dial(from.node, it_address(sluice_listener_port(listener)), &o, &session, &e) ==
             0);
    }
    uint64_t until = sluice_now() + LIMIT_NS;
    while (atomic_load(&f.received) < SESSIONS * MESSAGES && sluice_now() < until) {
        if (handlers_of(state)) {
            sched_yield();
        } else {
            poll_side(&from, on_sender, &f);
            poll_side(&to, on_receiver, &f);
        }
    }
    must_data_equal(atomic_load(&f.received), SESSIONS * MESSAGES);
    assert_true(atomic_load(&f.starved) > 0);
    side_close(&from, 0);
    side_close(&to, 0);
}

/* ---- threads that take all there is, each in turn ----------------------------------------------------- */

struct taker {
    sluice_node *node;
    sem_t *bell;
    unsigned rounds;
    _Atomic unsigned starved;
};

enum { TAKERS = 3, ROUNDS = 300, HELD = 12 };

static sem_t bells[TAKERS];

static void ring_takers(const sluice_event *event, void *arg) {
    (void)arg;
    if (event->type == SLUICE_WRITABLE)
        for (int i = 0; i < TAKERS; i++)
            sem_post(&bells[i]);
}

/* Threads without a loop: the events of any session tell them to try again. */
static void *take_and_give(void *arg) {
    struct taker *t = arg;
    sluice_msg *held[HELD];
    for (t->rounds = 0; t->rounds < ROUNDS; t->rounds++) {
        unsigned count = 0;
        while (count < HELD) {
            int status = sluice_alloc(t->node, 60000, &held[count]);
            if (status == 0) {
                count++;
                continue;
            }
            must(status == SLUICE_EAGAIN);
            atomic_fetch_add(&t->starved, 1);
            /* Two who each hold a part would wait for each other for ever. */
            while (count > 0)
                sluice_free(held[--count]);
            struct timespec limit;
            clock_gettime(CLOCK_REALTIME, &limit);
            limit.tv_sec += 60;
            while ((status = sem_timedwait(t->bell, &limit)) != 0 && errno == EINTR)
                ;
            must(status == 0);
        }
        sched_yield(); /* while it has all of it */
        while (count > 0)
            sluice_free(held[--count]);
    }
    return NULL;
}

TEST(threads_that_compete_for_memory_all_get_it) {
    struct couple c;
    pthread_t threads[TAKERS];
    struct taker takers[TAKERS];
    sluice_error e;
    sluice_session session;
    couple_open(&c, true,
                &(sluice_node_options){.memory_bytes_max = 2 << 20,
                                       .message_bytes_max = 256 << 10,
                                       .sessions_max = 8});
    c.port = side_listen(&c.a, NULL, &c.listener);
    sluice_link_options o = {.size = sizeof o, .handler = ring_takers};
    for (int i = 0; i < TAKERS; i++)
        sem_init(&bells[i], 0, 0);
    must(sluice_dial(c.b.node, it_address(c.port), &o, &session, &e) == 0);
    side_expect(&c.a, SLUICE_UP);
    while (sluice_send_copy(session, "", 0, NULL) == SLUICE_ECLOSED) /* not up on this side yet */
        sched_yield();
    count = 0;
    while (count < HOARD && sluice_alloc(c.b.node, 60000, &hoard[count]) == 0)
        count++;
    for (int i = 0; i < TAKERS; i++) {
        takers[i] = (struct taker){.node = c.b.node, .bell = &bells[i]};
        must(pthread_create(&threads[i], NULL, take_and_give, &takers[i]) == 0);
    }
    for (int i = 0; i < TAKERS; i++)
        while (atomic_load(&takers[i].starved) == 0)
            sched_yield();
    while (count > 0)
        sluice_free(hoard[--count]);
    for (int i = 0; i < TAKERS; i++)
        pthread_join(threads[i], NULL);
    couple_close(&c);
    for (int i = 0; i < TAKERS; i++)
        sem_destroy(&bells[i]);
}
