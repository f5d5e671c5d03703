/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* say.c - the acts of the stranger: frames that are right by what it has heard so far, and its device. */
#include "session.h"

#include "core/auth/auth.h"
#include "datapath/rndv/internal.h"
#include "soft/soft.h"

static void put(struct stranger_frame *f, unsigned word, uint64_t value) {
    value = htole64(value);
    memcpy(f->payload + (size_t)word * 8, &value, sizeof value);
    if (f->head.length < (word + 1) * 8)
        f->head.length = (word + 1) * 8;
}

/* Small, or as large as goes. */
static uint32_t size_of(uint64_t how) {
    return how < 128 ? (uint32_t)how * 2 : STRANGER_PAYLOAD - (uint32_t)(255 - how) * 4;
}

static void say_fragment(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    if (st->partial == 0) {
        st->partial = STRANGER_PAYLOAD + 1 + how * 16;
        st->partial_done = 0;
        st->partial_word = stranger_note(st, FRAME_DATA, st->partial, st->said_count * 64);
        f->head.flags |= FRAME_FIRST;
        f->head.total = st->partial;
    }
    uint64_t left = st->partial - st->partial_done;
    uint32_t bytes = left < STRANGER_PAYLOAD ? (uint32_t)left : STRANGER_PAYLOAD - 4;
    memcpy(f->payload,
           stranger_pattern(st, st->said[st->partial_word].from) + st->partial_done % 65536, bytes);
    f->head.length = bytes;
    st->partial_done += bytes;
    if (st->partial_done == st->partial) {
        f->head.flags |= FRAME_LAST;
        st->partial = 0;
    }
}

/* An id of mine: the place in the lowest 8 bits. Those of a run never come again. */
static uint32_t request_id(struct stranger *st) {
    st->requests++;
    return st->next_id++ & 0xffff;
}

static uint64_t reply_total(struct stranger *st, uint64_t how) {
    static const uint32_t codes[] = {0, 0, 0, 0, 1, 2, 3, 256 + 7};
    if (st->asked_count == 0)
        return how;
    uint32_t at = (uint32_t)(how >> 3) % st->asked_count, id = st->asked[at];
    st->answering = id;
    st->asked[at] = st->asked[--st->asked_count];
    return id | (uint64_t)codes[how & 7] << 32;
}

/* The first piece; say_fragment() goes on. */
static void begin_request(struct stranger *st, struct stranger_frame *f, uint64_t how) {
    uint64_t size = htole64(st->partial = STRANGER_PAYLOAD + 1 + how * 16);
    st->partial_word = stranger_note(st, FRAME_REQUEST, st->partial, st->said_count * 64);
    st->partial_done = 1 + how;
    memcpy(f->payload, &size, sizeof size);
    memcpy(f->payload + sizeof size, stranger_pattern(st, st->said[st->partial_word].from),
           st->partial_done);
    f->head.flags |= FRAME_FIRST;
    f->head.length = (uint32_t)(sizeof size + st->partial_done);
}

static void say_request(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    f->head.total = request_id(st) | (how & 3 ? 0 : (how << 32) * 1000); /* us */
    if ((how & 12) == 12 && st->partial == 0 && st->rep.features & PRIVATE_DATA_FEATURE_PIECES)
        begin_request(st, f, how);
    else
        stranger_fill(st, f, size_of(how), FRAME_REQUEST);
}

static void say_reply(struct stranger *st, struct stranger_frame *f, uint64_t how) {
    f->head.total = reply_total(st, how);
    if (f->head.total >> 32 == 0)
        stranger_fill(st, f, size_of(how), 0);
}

/* Up to four items of any kind; RESERVED: replies. */
static void say_pack(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    bool reserved = f->head.flags & FRAME_RESERVED;
    for (uint64_t left = 1 + (how & 3); left > 0; left--, how >>= 2) {
        static const uint8_t types[] = {FRAME_DATA, FRAME_DATA, FRAME_REQUEST, FRAME_REPLY};
        unsigned type = reserved ? FRAME_REPLY : types[how & 3];
        uint32_t bytes = (uint32_t)(how * 3 % 64), at = (f->head.length + 7) / 8;
        if (type == FRAME_REPLY && st->asked_count == 0)
            continue;
        memset(f->payload + f->head.length, 0, at * 8 - f->head.length);
        uint64_t total = type == FRAME_REQUEST ? request_id(st)
                         : type == FRAME_REPLY ? reply_total(st, 0)
                                               : 0;
        put(f, at, type | (uint64_t)bytes << 32);
        put(f, at + 1, total);
        stranger_fill(st, f, bytes, type == FRAME_REPLY ? 0 : type);
    }
}

/* Where the bytes of an announcement lie; one that is to be copied is read where the other side has not mapped them. */
static unsigned say_place(struct stranger *st, struct stranger_frame *f, unsigned way,
                          uint32_t from, uint64_t bytes, uint64_t word) {
    const uint8_t *at = stranger_pattern(st, from);
    uint32_t key = 0;
    uint64_t address = 0;
    if (way == RNDV_BY_COPY && (!(st->rep.features & PRIVATE_DATA_FEATURE_SHARED) ||
                                !soft_share(st->id->qp, st->source_mr, at, bytes, &key, &address)))
        way = RNDV_BY_READ;
    if (way == RNDV_BY_READ) {
        key = st->source_mr->rkey;
        address = (uintptr_t)at;
    }
    put(f, 0, word | way << 24 | (uint64_t)key << 32);
    put(f, 1, address);
    return way;
}

/* Those of the honest side's that may be said to be here, or some of them, and all at once. */
static uint64_t take_several(struct stranger *st, uint64_t which) {
    uint64_t numbers = 0;
    if (!(st->rep.features & PRIVATE_DATA_FEATURE_ANSWERS))
        return 0;
    for (unsigned i = 0; i < STRANGER_NUMBERS; i++) {
        struct stranger_transfer *t = &st->theirs[i];
        if (!(which >> i % 4 & 1) || !t->announced || t->ready || t->way == RNDV_BY_WRITE)
            continue;
        t->announced = false;
        numbers |= UINT64_C(1) << i;
    }
    return numbers;
}

static void say_announce(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1), number = 0, total = 0;
    while (number < STRANGER_NUMBERS - 1 && st->mine[number].announced)
        number++;
    unsigned way = how & 1 ? RNDV_BY_WRITE : how & 8 ? RNDV_BY_COPY : RNDV_BY_READ;
    st->trusted &= !st->mine[number].announced;
    unsigned type = how & 2 ? FRAME_DATA : how & 4 ? FRAME_REPLY : FRAME_REQUEST;
    uint64_t bytes = STRANGER_PAYLOAD + 1 + (how >> 3) * 3000;
    if (f->head.flags & FRAME_RESERVED)
        type = FRAME_REPLY;
    else if (type == FRAME_REPLY)
        type = FRAME_DATA;
    if (type == FRAME_REQUEST)
        total = request_id(st);
    else if (type == FRAME_REPLY)
        total = reply_total(st, 0) & UINT32_MAX;
    uint32_t from = st->said_count * 64;
    uint32_t word = type == FRAME_REPLY ? 0 : stranger_note(st, type, bytes, from);
    f->head.total = bytes;
    way = say_place(st, f, way, from, bytes, number | type << 16);
    put(f, 2, total);
    put(f, 3, how & 16 ? take_several(st, how >> 4) : 0);
    put(f, 4, 0);
    st->mine[number] = (struct stranger_transfer){.announced = true,
                                                  .way = (uint8_t)way,
                                                  .type = (uint8_t)type,
                                                  .bytes = bytes,
                                                  .word = word};
}

static struct stranger_transfer *one_of(struct stranger_transfer *all, uint64_t choice,
                                        bool (*fits)(const struct stranger_transfer *),
                                        uint64_t *number) {
    for (unsigned i = 0; i < STRANGER_NUMBERS; i++) {
        *number = (choice + i) % STRANGER_NUMBERS;
        if (fits(&all[*number]))
            return &all[*number];
    }
    return NULL;
}

static bool is_announced(const struct stranger_transfer *t) {
    return t->announced && !t->ready;
}

static bool is_to_write(const struct stranger_transfer *t) {
    return is_announced(t) && t->way == RNDV_BY_WRITE;
}

static bool is_ready(const struct stranger_transfer *t) {
    return t->announced && t->ready;
}

static void say_ready(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    uint64_t number;
    struct stranger_transfer *t = one_of(st->theirs, fuzz_take(in, 1), is_to_write, &number);
    f->head.total = number;
    put(f, 0, (uintptr_t)st->target);
    put(f, 1, st->target_mr->rkey);
    put(f, 2, t ? t->bytes : 1);
    if (t)
        t->ready = true;
    else
        st->trusted = false; /* it may be the answer to what is on its way */
}

/* It is not taken, and is answered thereby; unless it was answered before. */
static void forget_asked(struct stranger *st, uint32_t id) {
    for (uint32_t i = 0; i < st->asked_count; i++)
        if (st->asked[i] == id) {
            st->asked[i] = st->asked[--st->asked_count];
            return;
        }
    st->trusted = false;
}

static void say_taken(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1), number;
    uint64_t several = how & 8 ? take_several(st, how >> 4) : 0;
    if (several) {
        f->head.total = several | (uint64_t)RNDV_OUTCOME_SEVERAL << 32;
        return;
    }
    struct stranger_transfer *t = one_of(st->theirs, how >> 4, is_announced, &number);
    f->head.total = number | (how & 3 || (t && t->way == RNDV_BY_READ) ? 0 : 1ull << 32);
    if (t && t->way == RNDV_BY_WRITE)
        f->head.total |= 1ull << 32;
    if (t && t->type == FRAME_REQUEST && f->head.total >> 32)
        forget_asked(st, t->word);
    if (t)
        t->announced = false;
    else
        st->trusted = false;
}

static void say_hello(struct stranger *st, struct stranger_frame *f, struct fuzz_input *in) {
    static const struct auth_secret secret = {(const uint8_t *)STRANGER_SECRET, 32};
    uint8_t req[PRIVATE_DATA_REQ_BYTES], rep[PRIVATE_DATA_REP_BYTES];
    struct auth_hello hello = {.private_bytes = (uint32_t)fuzz_take(in, 1)};
    memcpy(hello.private_data, stranger_pattern(st, 0), hello.private_bytes);
    private_data_req_encode(&st->req, req);
    private_data_rep_encode(&st->rep, rep);
    if (st->req.key_id)
        auth_prove_dialer(&hello.proof, &secret, req, rep, hello.private_data, hello.private_bytes);
    f->head.length = (uint32_t)auth_hello_encode(&hello, f->payload);
}

static void say_refuse(struct stranger_frame *f, struct fuzz_input *in) {
    struct private_data_rej rej = {.reason = (uint16_t)fuzz_take(in, 1), .code = 3};
    snprintf(rej.text, sizeof rej.text, "not today");
    f->head.length = (uint32_t)private_data_rej_encode(&rej, f->payload);
}

static void say_noise(struct stranger_frame *f, struct fuzz_input *in) {
    f->head.length = (uint32_t)fuzz_take(in, 1) % 64;
    f->head.total = fuzz_take(in, 8);
    for (uint32_t i = 0; i < f->head.length; i++) {
        uint8_t byte = (uint8_t)fuzz_take(in, 1);
        f->payload[i] = byte == HONEST_SECRET ? 0 : byte;
    }
}

/* ---- its device ------------------------------------------------------------------------------ */

/* All that is left of it, some of it, or nothing and the immediate all the same. */
static void write_landing(struct stranger *st, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1), number;
    struct stranger_transfer *t = one_of(st->mine, how >> 4, is_ready, &number);
    if (!stranger_may(st))
        return;
    if (!t) {
        if (how % 16 != 15)
            return;
        st->broke = st->calm && st->trusted && st->credits > 0 && !st->mine[number].ready;
        st->trusted = false; /* RTR may be on its way */
        stranger_touch(st, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0, 0, 0, (uint32_t)number);
        return;
    }
    struct stranger_word *word = &st->said[t->word];
    uint64_t left = t->bytes - t->done;
    uint32_t bytes = how & 1 ? (uint32_t)left : (uint32_t)(left / 2);
    uint32_t from = t->type == FRAME_REPLY ? 0 : word->from;
    bool ends = how & 3;
    if (t->type != FRAME_REPLY && ends && bytes < left)
        word->loose = true;
    stranger_touch(st, ends ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, t->address + t->done,
                   t->rkey, from % (STRANGER_SOURCE / 2) + (uint32_t)t->done, bytes,
                   (uint32_t)number);
    t->done += bytes;
    if (ends)
        t->announced = t->ready = false;
}

static void read_announced(struct stranger *st, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1), number;
    struct stranger_transfer *t = one_of(st->theirs, how, is_announced, &number);
    if (t && t->way == RNDV_BY_READ)
        stranger_touch(st, IBV_WR_RDMA_READ, t->address, t->rkey, 0,
                       (uint32_t)(t->bytes < STRANGER_TARGET ? t->bytes : STRANGER_TARGET), 0);
}

/* By a key that it knows, or by any; where that leads, or beside it. */
static void go_wild(struct stranger *st, struct fuzz_input *in) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE};
    uint64_t how = fuzz_take(in, 1);
    const struct stranger_transfer *t = how & 4 ? &st->theirs[how >> 4] : &st->mine[how >> 4];
    uint64_t address = t->address + fuzz_take(in, 1) - 128;
    uint32_t rkey = how & 8 ? t->rkey : t->rkey + (uint32_t)fuzz_take(in, 1);
    st->trusted = false;
    stranger_touch(st, opcodes[how & 3], address, rkey, 0, (uint32_t)fuzz_take(in, 2),
                   (uint32_t)(how >> 4));
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const uint8_t types[ACTS] = {
    [SAY_DATA] = FRAME_DATA,     [SAY_FRAGMENT] = FRAME_FRAG,   [SAY_CREDIT] = FRAME_CREDIT,
    [SAY_BYE] = FRAME_BYE,       [SAY_ALIVE] = FRAME_ALIVE,     [SAY_REQUEST] = FRAME_REQUEST,
    [SAY_REPLY] = FRAME_REPLY,   [SAY_PACK] = FRAME_COALESCED,  [SAY_ANNOUNCE] = FRAME_RTS,
    [SAY_READY] = FRAME_RTR,     [SAY_TAKEN] = FRAME_ATS,       [SAY_CANCEL] = FRAME_CANCEL,
    [SAY_NOTIFY] = FRAME_NOTIFY, [SAY_RECALL] = FRAME_RECALL,   [SAY_RETURN] = FRAME_RETURN,
    [SAY_HELLO] = FRAME_HELLO,   [SAY_WELCOME] = FRAME_WELCOME, [SAY_REFUSE] = FRAME_REFUSE,
    [SAY_NOISE] = FRAME_TYPES,
};

static void compose(struct stranger *st, struct stranger_frame *f, enum act act,
                    struct fuzz_input *in) {
    switch ((int)act) {
    case SAY_DATA:
        stranger_fill(st, f, size_of(fuzz_take(in, 1)), FRAME_DATA);
        break;
    case SAY_FRAGMENT:
        say_fragment(st, f, in);
        break;
    case SAY_REQUEST:
        say_request(st, f, in);
        break;
    case SAY_REPLY:
        say_reply(st, f, fuzz_take(in, 1));
        break;
    case SAY_PACK:
        say_pack(st, f, in);
        break;
    case SAY_ANNOUNCE:
        say_announce(st, f, in);
        break;
    case SAY_READY:
        say_ready(st, f, in);
        break;
    case SAY_TAKEN:
        say_taken(st, f, in);
        break;
    case SAY_CANCEL:
        f->head.total = st->next_id ? (st->next_id - 1 - fuzz_take(in, 1) % 4) & 0xffff : 0;
        break;
    case SAY_NOTIFY:
        f->head.total = fuzz_take(in, 1);
        break;
    case SAY_RECALL:
        f->head.total = 4 + fuzz_take(in, 1) % 8;
        st->trusted &= !st->recalls; /* one at a time */
        st->recalls = true;
        break;
    case SAY_BYE:
        st->said_bye = true;
        break;
    case SAY_RETURN: /* what is above that it may keep, of which one is this frame's */
        f->head.total =
            st->recalled && st->credits > st->recalled ? (uint32_t)(st->credits - st->recalled) : 0;
        st->credits -= (int32_t)f->head.total;
        st->trusted &= st->recalled > 0;
        st->recalled = 0;
        break;
    case SAY_HELLO:
        say_hello(st, f, in);
        break;
    case SAY_REFUSE:
        say_refuse(f, in);
        break;
    case SAY_NOISE:
        f->head.type = (uint8_t)(fuzz_take(in, 1) % (FRAME_TYPES + 2));
        st->trusted = false;
        say_noise(f, in);
        break;
    }
}

bool session_say(struct stranger *st, enum act act, struct fuzz_input *in) {
    struct stranger_frame f;
    if (act == DEV_WRITE)
        write_landing(st, in);
    else if (act == DEV_READ)
        read_announced(st, in);
    else if (act == DEV_WILD)
        go_wild(st, in);
    else if (types[act] == 0)
        return false;
    if (types[act] == 0)
        return true;
    unsigned flags = act == SAY_REPLY || ((act == SAY_PACK || act == SAY_ANNOUNCE) &&
                                          st->asked_count > 0 && fuzz_take(in, 1) & 1)
                         ? FRAME_RESERVED
                         : 0;
    if (!stranger_begin(st, &f, types[act], flags, in))
        return true;
    compose(st, &f, act, in);
    if (act != SAY_PACK || f.head.length > 0)
        stranger_say(st, &f, in);
    return true;
}
