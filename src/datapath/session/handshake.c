/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * handshake.c - HELLO, WELCOME and REFUSE: the frames between the connection and the session, where the two
 * sides agreed to make a handshake (docs/protocol.md, "Handshake").
 *
 *   dialer    the listener's proof checked (APPLY) -> HELLO: own proof, private data -> WELCOME: up
 *   listener  own proof (PREPARE) -> HELLO checked -> the application asked, or not -> WELCOME: up
 *
 * Until WELCOME no other frame is taken from the peer, the application gets nothing of it but what SLUICE_ASK
 * shows, and the listener's session has four receives of its own and no more. Secrets are looked up
 * when they are needed and wiped at once.
 *
 * Owner: the loop's thread. Everything a frame holds is hostile.
 */
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "datapath/session/handshake.h"
#include "core/auth/auth.h"
#include "core/auth/replay.h"
#include "core/auth/keyring.h"
#include "core/wire/frame.h"
#include "datapath/tx/post.h"
#include "core/context.h"
#include "datapath/loop/loop.h"
#include "datapath/rx/recv_queue.h"
#include "datapath/session/close.h"
#include "datapath/session/connections.h"
#include "datapath/session/open.h"
#include "datapath/session/redial.h"
#include "datapath/tx/confirm.h"

#define NUDGE_FIRST_NS 10000000ull
#define NUDGE_LAST_NS 640000000ull

static bool authenticated(const struct session *s) {
    return session_connection(s)->cm.rep.features & PRIVATE_DATA_FEATURE_HMAC;
}

/* ---- the byte that the other side may READ (confirm.c) ----------------------------------------- */

#define PROBE_BYTES 12u /* behind HELLO's payload, or all of WELCOME's: its address and its key */

static bool names_probe(const struct session *s) {
    return session_connection(s)->cm.rep.features & PRIVATE_DATA_FEATURE_PROBE;
}

/* Returns the bytes used: none where it was not agreed. */
static uint32_t put_probe(const struct session *s, uint8_t *at) {
    const struct ibv_mr *source = s->node->probe.source;
    if (!names_probe(s) || !source)
        return 0;
    uint64_t address = htole64((uintptr_t)source->addr);
    uint32_t rkey = htole32(source->rkey);
    memcpy(at, &address, sizeof address);
    memcpy(at + sizeof address, &rkey, sizeof rkey);
    return PROBE_BYTES;
}

/* Takes the probe off the data; returns the bytes left. A READ of another byte is harmless: no proof needed. */
static uint32_t take_probe(struct session *s, const uint8_t *data, uint32_t bytes) {
    uint64_t address;
    uint32_t rkey;
    if (!names_probe(s) || bytes < PROBE_BYTES)
        return bytes;
    memcpy(&address, data + bytes - PROBE_BYTES, sizeof address);
    memcpy(&rkey, data + bytes - sizeof rkey, sizeof rkey);
    confirm_begin(s, le64toh(address), le32toh(rkey));
    return bytes - PROBE_BYTES;
}

/* The two records as they crossed; encoding is exact, so both sides get the same bytes. */
struct transcript {
    uint8_t req[PRIVATE_DATA_REQ_BYTES], rep[PRIVATE_DATA_REP_BYTES];
};

static void transcribe(const struct session *s, struct transcript *out) {
    const struct connection *c = session_connection(s);
    private_data_req_encode(&c->cm.req, out->req);
    private_data_rep_encode(&c->cm.rep, out->rep);
}

/* False: there is no such key (any more), or the application is not to be asked for it any more. */
static bool find_secret(struct session *s, struct auth_secret *out,
                        uint8_t room[SLUICE_SECRET_MAX]) {
    struct sluice_loop *l = session_connection(s)->loop;
    out->bytes = room;
    out->count = 0;
    if (!loop_call_begin(l, LOOP_GIVEN_UP))
        return false;
    out->count = keyring_find(s->link_config.keys, session_connection(s)->cm.req.key_id, room);
    loop_call_end(l);
    return out->count > 0;
}

static void forget_secret(uint8_t room[SLUICE_SECRET_MAX]) {
    sodium_memzero(room, SLUICE_SECRET_MAX);
}

/* ---- the listener's proof -------------------------------------------------------------------- */

sluice_reason handshake_prove(struct session *s) {
    struct cm_conn *conn = &session_connection(s)->cm;
    struct auth_secret secret;
    struct auth_proof proof;
    struct transcript said;
    uint8_t room[SLUICE_SECRET_MAX];
    if (!conn->passive || !authenticated(s))
        return SLUICE_REASON_NONE;
    if (!find_secret(s, &secret, room))
        return SLUICE_REASON_AUTH_KEY;
    transcribe(s, &said);
    auth_prove_listener(&proof, &secret, said.req, said.rep);
    forget_secret(room);
    memcpy(conn->rep.check, proof.check, sizeof proof.check);
    memcpy(conn->rep.mac, proof.mac, sizeof proof.mac);
    return SLUICE_REASON_NONE;
}

sluice_reason handshake_verify(struct session *s) {
    struct connection *c = session_connection(s);
    struct auth_secret secret;
    struct auth_proof proof;
    struct transcript said;
    uint8_t room[SLUICE_SECRET_MAX];
    if (!authenticated(s))
        return SLUICE_REASON_NONE;
    if (!find_secret(s, &secret, room))
        return SLUICE_REASON_AUTH_KEY;
    transcribe(s, &said);
    memcpy(proof.check, c->cm.rep.check, sizeof proof.check);
    memcpy(proof.mac, c->cm.rep.mac, sizeof proof.mac);
    sluice_reason reason = auth_verify_listener(&proof, &secret, said.req, said.rep);
    forget_secret(room);
    return reason;
}

const char greet_no_key[] = "this side's key is not there any more";

/* ---- saying ---------------------------------------------------------------------------------- */

static bool prove_hello(struct session *s, struct auth_hello *hello) {
    struct auth_secret secret;
    struct transcript said;
    uint8_t room[SLUICE_SECRET_MAX];
    if (!authenticated(s))
        return true;
    if (!find_secret(s, &secret, room))
        return false;
    transcribe(s, &said);
    auth_prove_dialer(&hello->proof, &secret, said.req, said.rep, hello->private_data,
                      hello->private_bytes);
    forget_secret(room);
    return true;
}

/*
 * A device of the other side's may have HELLO and not look at it before more comes: its socket changes hands
 * when a listener accepts, and what arrives at that moment is not announced. It was seen once in a thousand
 * dials. A WRITE of nothing is more, and changes nothing.
 */
static void nudge_later(struct sluice_loop *l, struct session *s) {
    s->close.deadline_ns = loop_clock(l) + session_connection(s)->nudge_ns;
    loop_deadline(l, s->close.deadline_ns);
}

static void say_hello(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    struct link_config *link = &s->link_config;
    struct auth_hello hello = {.private_bytes = link->private_bytes};
    uint8_t data[HELLO_BYTES_MAX + PROBE_BYTES];
    memcpy(hello.private_data, link->private_data, link->private_bytes);
    if (!prove_hello(s, &hello)) {
        session_close(l, s, SLUICE_REASON_AUTH_KEY, 0, greet_no_key);
        return;
    }
    uint32_t bytes = (uint32_t)auth_hello_encode(&hello, data);
    bytes += put_probe(s, data + bytes);
    c->handshake = HANDSHAKE_ANSWER;
    if (!send_control_with(l, s, FRAME_HELLO, data, bytes)) {
        if (session_connection(s) != c)
            return; /* the device refused it, and that was the end of this connection */
        session_close(l, s, SLUICE_REASON_NO_MEMORY, 0, "no registered memory for the handshake");
    } else if (l->node->traits.first_may_stick) {
        c->nudge_ns = NUDGE_FIRST_NS;
        nudge_later(l, s);
    }
}

void handshake_nudge(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (c->broke) {
        redial_gone(l, s);
        return;
    }
    if (c->handshake != HANDSHAKE_ANSWER || c->cm.passive) {
        s->close.deadline_ns = 0;
        return;
    }
    c->nudge_ns = c->nudge_ns < NUDGE_LAST_NS ? 2 * c->nudge_ns : NUDGE_LAST_NS;
    nudge_later(l, s);
    send_nothing(l, s); /* or the session ends */
}

static void done(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    c->handshake = HANDSHAKE_NONE;
    s->close.deadline_ns = 0;
    if (authenticated(s)) {
        pthread_mutex_lock(&s->node->lock);
        s->info.key_id = c->cm.req.key_id;
        pthread_mutex_unlock(&s->node->lock);
    }
    session_begin(l, s);
}

static void refuse(struct sluice_loop *l, struct session *s, sluice_reason reason) {
    if (s->state == SESSION_DOWN) { /* which no peer without a proof ends */
        session_close(l, s, reason, 0, NULL);
        return;
    }
    struct private_data_rej rej = {.reason = (uint16_t)reason};
    log_write(&l->node->log, SLUICE_LOG_INFO, "%s refused: %s", s->peer.address,
              sluice_reason_text((int)reason));
    snprintf(rej.text, sizeof rej.text, "%s", sluice_reason_text((int)reason));
    session_refuse(l, s, reason, &rej);
}

static void welcome(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    uint8_t probe[PROBE_BYTES];
    if (!connection_admit(c)) {
        session_close(l, s, SLUICE_REASON_DEVICE_ERROR, 0,
                      "the queue pair cannot be opened to operations of the peer");
        return;
    }
    uint32_t bytes = put_probe(s, probe);
    if (bytes > 0 ? send_control_with(l, s, FRAME_WELCOME, probe, bytes)
                  : send_control(l, s, FRAME_WELCOME))
        done(l, s);
    else if (session_connection(s) == c)
        session_close(l, s, SLUICE_REASON_NO_MEMORY, 0, "the handshake's answer could not be sent");
}

void handshake_answered(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct cm_conn *conn = &c->cm;
    if (!session_opens(s) || c->handshake != HANDSHAKE_ANSWER || !conn->passive)
        return;
    if (conn->accepted) {
        s->arg = conn->answer_arg;
        welcome(l, s);
        return;
    }
    struct private_data_rej rej = {.reason = SLUICE_REASON_REFUSED, .code = conn->refuse_code};
    memcpy(rej.text, conn->refuse_text, sizeof rej.text);
    session_refuse(l, s, SLUICE_REASON_LOCAL_CLOSE, &rej);
}

/* ---- hearing --------------------------------------------------------------------------------- */

const char *handshake_check(const struct session *s, const struct frame *f) {
    const struct connection *c = session_connection(s);
    if (f->flags || f->total)
        return "a handshake frame with unknown flags";
    switch (f->type) {
    case FRAME_HELLO:
        return c->cm.passive && c->handshake == HANDSHAKE_HELLO ? NULL : "an unexpected HELLO";
    case FRAME_WELCOME:
        if (f->length != (names_probe(s) ? PROBE_BYTES : 0))
            return "a WELCOME with other content than agreed";
        return !c->cm.passive && c->handshake == HANDSHAKE_ANSWER ? NULL : "an unexpected WELCOME";
    case FRAME_REFUSE:
        /* A listener may end before it has heard HELLO, and before this side has said it. */
        return !c->cm.passive ? NULL : "an unexpected REFUSE";
    default:
        return "a frame before the handshake";
    }
}

/* Its proof holds, and was never used before. */
static sluice_reason check_proof(struct session *s, const struct auth_hello *hello) {
    struct replay *replay = s->node->replay;
    struct auth_secret secret;
    struct transcript said;
    uint8_t room[SLUICE_SECRET_MAX];
    if (!authenticated(s))
        return SLUICE_REASON_NONE;
    if (!find_secret(s, &secret, room))
        return SLUICE_REASON_AUTH_KEY;
    transcribe(s, &said);
    sluice_reason reason = auth_verify_dialer(&hello->proof, &secret, said.req, said.rep,
                                              hello->private_data, hello->private_bytes);
    forget_secret(room);
    /* Only what was proven is remembered, else any peer could make the memory forget. */
    if (reason == SLUICE_REASON_NONE) {
        bool used = replay_add(replay, session_connection(s)->cm.req.nonce);
        return replay_add(replay, hello->proof.mac) || used ? SLUICE_REASON_AUTH_REPLAY : reason;
    }
    return replay_seen(replay, hello->proof.mac) ? SLUICE_REASON_AUTH_REPLAY : reason;
}

static void hear_hello(struct sluice_loop *l, struct session *s, const uint8_t *data,
                       uint32_t bytes) {
    struct connection *c = session_connection(s);
    struct auth_hello hello;
    bytes = take_probe(s, data, bytes);
    sluice_reason reason = auth_hello_decode(&hello, data, bytes, authenticated(s));
    if (reason == SLUICE_REASON_NONE)
        reason = check_proof(s, &hello);
    if (reason != SLUICE_REASON_NONE) {
        refuse(l, s, reason);
        return;
    }
    c->handshake = HANDSHAKE_ANSWER;
    cm_post(l->node, session_connection(s), CM_MSG_HANDSHAKE_DONE);
    if (c->cm.resume.on) { /* what it shows was shown */
        welcome(l, s);
        return;
    }
    /* The listener's link has none of its own: the place is free for the peer's. */
    s->link_config.private_bytes = hello.private_bytes;
    memcpy(s->link_config.private_data, hello.private_data, hello.private_bytes);
    s->peer.private_data = s->link_config.private_data;
    s->peer.private_bytes = hello.private_bytes;
    s->peer.key_id = c->cm.req.key_id;
    if (s->link_config.flags & SLUICE_ASK)
        session_ask(l, s);
    else
        welcome(l, s);
}

static void hear_refuse(struct sluice_loop *l, struct session *s, const uint8_t *data,
                        uint32_t bytes) {
    struct private_data_rej rej;
    if (private_data_rej_decode(&rej, data, bytes) == SLUICE_REASON_NONE)
        session_refused(l, s, &rej);
    else
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0, "a malformed refusal");
}

/* The header's fields lie in the control block, where receive.c has put them. */
static void hear(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    uint8_t data[HELLO_BYTES_MAX + PROBE_BYTES];
    _Static_assert(PRIVATE_DATA_REJ_BYTES <= sizeof data, "a refusal fits as well");
    uint32_t type = msg->frame_type;
    uint64_t bytes = msg->size;
    bool fits = bytes <= sizeof data;
    if (fits)
        memcpy(data, msg->data,
               bytes); /* read once: the peer may write on where memory is shared */
    recv_queue_give_back(l, msg);
    if (!session_opens(s))
        return; /* ended meanwhile */
    if (!fits) {
        session_close(l, s, SLUICE_REASON_PROTOCOL, 0, "a handshake frame too long");
    } else if (type == FRAME_HELLO) {
        hear_hello(l, s, data, (uint32_t)bytes);
    } else if (type == FRAME_REFUSE) {
        hear_refuse(l, s, data, (uint32_t)bytes);
    } else {
        take_probe(s, data, (uint32_t)bytes);
        cm_post(l->node, session_connection(s), CM_MSG_HANDSHAKE_DONE);
        done(l, s);
    }
}

void handshake_arrived(struct sluice_loop *l, struct session *s, struct sluice_msg *msg) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    if (s->adopted) {
        hear(l, s, msg);
        return;
    }
    if (c->hello) { /* a second one says nothing more */
        recv_queue_give_back(l, msg);
        return;
    }
    c->hello = msg;
    session_disturb(s);
    if (c->handshake != HANDSHAKE_HELD)
        session_arrived(l, s);
    c->handshake = HANDSHAKE_HELD;
}

void handshake_begin(struct sluice_loop *l, struct session *s) {
    struct connection *c = session_connection(s);
    loop_assert_inside(l);
    struct sluice_msg *msg = c->hello;
    c->hello = NULL;
    if (msg) {
        c->handshake = HANDSHAKE_HELLO;
        hear(l, s, msg);
    } else if (!c->cm.passive) {
        say_hello(l, s);
    }
}
