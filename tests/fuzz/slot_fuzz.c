/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * slot_fuzz.c - ring slots as messages: a peer that is linked like any other writes what it likes into the
 * ring that a queue pair here reads, into the head of the one it writes, and into its own key table, while
 * this side posts and polls. Every work request completes once, and not a byte changes but where a receive,
 * a READ or a key allows it.
 *
 * Input: acts of a few bytes each. Its messages on the control connection are in order: control_fuzz.c has
 * the others.
 */
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "endpoint.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/engine.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/shm_layout.h"
#include "soft/object/ring.h"
#include "soft/soft.h"
#include "teller.h"

#define RECEIVES 8u
#define STRIDE 1024u /* between receives */
#define ROOM 600u    /* of a receive */
#define BYTES 32768u
#define SINK 12288u /* where READs and atomics land */
#define OPEN 16384u /* what a key lets the peer write, up to 4 KiB before the end */
#define OPEN_BYTES (BYTES - OPEN - 4096u)
#define SOURCE (BYTES - 4096u) /* what is sent */
#define GUARD 0x77
#define THEIR 0x33 /* all that the peer sends */
#define THEIRS 8192u
#define KEY 0x10007u /* of the peer's region */
#define SENDS 16u
#define ALL_RIGHTS                                                                                 \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |                   \
     IBV_ACCESS_REMOTE_ATOMIC)

static struct {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    uint8_t *memory;
    struct ibv_mr *all, *open;
    struct teller teller;
    int region, keys;
    struct soft_key *key;
    /* of a run */
    struct ibv_qp *qp;
    struct soft_ring *to, *from; /* what this side reads, and what it writes */
    uint32_t pos;                /* slots forged so far */
    uint64_t sends, receives;    /* posted and not complete, a bit each */
    uint32_t room[RECEIVES];     /* of each receive, the most it had */
    bool mixed;                  /* a slot's head does not say what is in it */
} w;

static void open_world(void) {
    struct ibv_device **list = soft_get_device_list(NULL);
    w.context = soft_open_device(list[0]);
    soft_free_device_list(list);
    PROVE(w.context);
    w.pd = soft_alloc_pd(w.context);
    w.cq = soft_create_cq(w.context, 64, NULL, NULL, 0);
    w.memory = soft_mem_alloc(BYTES);
    PROVE(w.pd && w.cq && w.memory);
    w.all = soft_reg_mr(w.pd, w.memory, BYTES, IBV_ACCESS_LOCAL_WRITE);
    w.open = soft_reg_mr(w.pd, w.memory + OPEN, OPEN_BYTES, ALL_RIGHTS);
    PROVE(w.all && w.open);
    teller_prepare();
    static uint8_t their[THEIRS];
    memset(their, THEIR, sizeof their);
    w.region = teller_file(THEIRS);
    PROVE(pwrite(w.region, their, sizeof their, 0) == sizeof their);
    w.keys = teller_file(SOFT_KEYS_BYTES);
    void *keys = mmap(NULL, SOFT_KEYS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w.keys, 0);
    PROVE(keys != MAP_FAILED);
    w.key = (struct soft_key *)keys + (KEY >> 16);
}

static void right_key(void) {
    *w.key = (struct soft_key){.key = KEY,
                               .access = ALL_RIGHTS,
                               .start = 0x10000,
                               .length = THEIRS,
                               .region = 0,
                               .pd = 1,
                               .serial = 1};
}

static void make_qp(void) {
    struct ibv_qp_init_attr init = endpoint_attr(w.cq, IBV_QPT_RC);
    init.cap.max_send_wr = SENDS;
    init.cap.max_recv_wr = RECEIVES;
    init.cap.max_send_sge = 2;
    init.sq_sig_all = 1;
    w.qp = soft_create_qp(w.pd, &init);
    PROVE(w.qp);
    endpoint_to_init(w.qp, ALL_RIGHTS);
    endpoint_to_rts(w.qp, TELLER_QPN(1), ALL_RIGHTS);
    PROVE(w.qp->state == IBV_QPS_RTS);
}

static struct soft_ring *map_ring(int fd) {
    void *ring = mmap(NULL, SOFT_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    PROVE(ring != MAP_FAILED);
    return ring;
}

/* As a peer of the same user would, up to the rings. mapped: it shows its memory, too. */
static void link_up(bool mapped) {
    struct teller *t = &w.teller;
    const uint32_t region[6] = {0, 1, THEIRS, 0, 1, 0};
    soft_lock();
    teller_connect(t);
    teller_greet(t);
    if (mapped) {
        static const uint64_t probe; /* its memory is reached by way of regions only */
        teller_say(t, SOFT_MSG_KEYS, &(uint64_t){(uintptr_t)&probe}, 8, w.keys);
        teller_say(t, SOFT_MSG_REGION, region, sizeof region, w.region);
        PROVE(atomic_load(&t->peer->keys) && atomic_load(&t->peer->regions[0].addr));
    }
    soft_unlock();
    make_qp();
    const uint32_t link[6] = {TELLER_QPN(1), w.qp->qp_num, 1, 1, 1, 0};
    const uint32_t fixed[4] = {SOFT_RING_MAGIC, SOFT_RING_SLOTS, link[0], link[1]};
    int ring = teller_file(SOFT_RING_BYTES);
    w.from = map_ring(ring);
    memcpy(&w.from->fixed, fixed, sizeof fixed);
    atomic_store(&w.from->rx.access, ALL_RIGHTS | 4u << 16);
    soft_lock();
    teller_hear(t);
    PROVE(t->ring >= 0);
    w.to = map_ring(t->ring);
    teller_say(t, SOFT_MSG_LINK, link, sizeof link, ring);
    soft_unlock();
    close(ring);
    PROVE(atomic_load(&soft_qp_of(w.qp)->tx));
}

/* ---- this side ------------------------------------------------------------------------------- */

static void post_receive(uint32_t room) {
    for (uint32_t i = 0; i < RECEIVES; i++) {
        if (w.receives >> i & 1)
            continue;
        struct ibv_sge sge = {(uintptr_t)w.memory + i * STRIDE, room, w.all->lkey};
        struct ibv_recv_wr *bad, wr = {.wr_id = 64 + i, .sg_list = &sge, .num_sge = 1};
        if (ibv_post_recv(w.qp, &wr, &bad) == 0)
            w.receives |= 1ull << i;
        w.room[i] = room > w.room[i] ? room : w.room[i];
        return;
    }
}

static void post_send(uint64_t how, uint64_t size) {
    static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND,
                                                 IBV_WR_SEND_WITH_IMM,
                                                 IBV_WR_RDMA_WRITE,
                                                 IBV_WR_RDMA_WRITE_WITH_IMM,
                                                 IBV_WR_RDMA_READ,
                                                 IBV_WR_RDMA_READ,
                                                 IBV_WR_ATOMIC_FETCH_AND_ADD,
                                                 IBV_WR_ATOMIC_CMP_AND_SWP};
    uint32_t i = 0;
    while (i < SENDS && w.sends >> i & 1)
        i++;
    enum ibv_wr_opcode opcode = opcodes[how & 7];
    bool atomic = (how & 7) >= 6, lands = (how & 7) >= 4;
    uint32_t bytes = atomic ? 8 : (uint32_t)(size * size / 16);
    struct ibv_sge sge = {(uintptr_t)w.memory + (lands ? SINK : SOURCE),
                          bytes < 4096 ? bytes : 4096, w.all->lkey};
    struct ibv_send_wr *bad, wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = opcode};
    if (atomic) {
        wr.wr.atomic.remote_addr = 0x10000 + (how >> 3) * 8;
        wr.wr.atomic.rkey = KEY;
    } else {
        wr.wr.rdma.remote_addr = 0x10000 + (how >> 3) * 128;
        wr.wr.rdma.rkey = KEY;
    }
    if (i < SENDS && ibv_post_send(w.qp, &wr, &bad) == 0)
        w.sends |= 1ull << i;
}

static void prove_received(uint32_t i, uint32_t bytes) {
    PROVE(bytes <= w.room[i]);
    const uint8_t *at = w.memory + i * STRIDE; /* what was sent from here may come back */
    for (uint32_t k = 0; k < bytes && !w.mixed; k++)
        PROVE(at[k] == THEIR || at[k] == GUARD);
}

static int take(void) {
    const struct soft_qp *qp = soft_qp_of(w.qp);
    struct ibv_wc wc[8];
    int n = ibv_poll_cq(w.cq, 8, wc);
    PROVE(n >= 0);
    /* What was not sent cannot have arrived. */
    PROVE((int32_t)(qp->tx_published - atomic_load(&qp->tx_acked)) >= 0);
    for (int i = 0; i < n; i++) {
        bool receive = wc[i].wr_id >= 64;
        uint64_t *open = receive ? &w.receives : &w.sends, bit = 1ull << (wc[i].wr_id & 63);
        PROVE(*open & bit);
        *open &= ~bit;
        PROVE(wc[i].qp_num == w.qp->qp_num);
        if (receive && wc[i].status == IBV_WC_SUCCESS && wc[i].opcode == IBV_WC_RECV)
            prove_received((uint32_t)wc[i].wr_id - 64, wc[i].byte_len);
    }
    return n;
}

/* ---- the peer -------------------------------------------------------------------------------- */

static uint64_t any(struct fuzz_input *in, uint64_t right) {
    uint64_t how = fuzz_take(in, 1);
    return how < 208 ? right : how < 240 ? right + how - 224 : fuzz_take(in, how & 1 ? 8 : 4);
}

static void put(uint8_t *at, struct fuzz_input *in, uint64_t right, size_t bytes) {
    uint64_t value = any(in, right);
    memcpy(at, &value, bytes);
}

/* The payload that the operation asks for. Returns how long the head says it is. */
static unsigned payload(uint8_t *data, unsigned op, uint64_t how, struct fuzz_input *in) {
    if (op == SOFT_OP_SEND_DESC) {
        put(data, in, 0, 4);
        put(data + 4, in, how, 4);
        put(data + 8, in, how & 1 ? how * 16 : THEIRS - how + (how & 2), 8);
        return 1;
    }
    if (op == SOFT_OP_WRITE || op == SOFT_OP_WRITE_DONE || op == SOFT_OP_READ ||
        op == SOFT_OP_ATOMIC) {
        unsigned more = op == SOFT_OP_WRITE ? (unsigned)how : 0;
        /* At the beginning, or such that it ends with what the key covers, or behind it. */
        uint64_t at = how & 1 ? how * 8 : OPEN_BYTES - how + (how & 2) * 8;
        put(data, in, (uintptr_t)w.memory + OPEN + at, 8);
        put(data + 8, in, w.open->rkey, 4);
        put(data + 12, in, op == SOFT_OP_ATOMIC ? 8 : how, 4);
        if (op == SOFT_OP_ATOMIC)
            put(data + 32, in, how & 1, 4);
        return op == SOFT_OP_ATOMIC ? 16 + sizeof(struct soft_atomic) : 16 + more;
    }
    return op == SOFT_OP_ATOMIC_RESPONSE ? 8 : op == SOFT_OP_VIOLATION ? 2 : (unsigned)how * 2;
}

static void forge_slot(struct fuzz_input *in) {
    uint8_t data[SOFT_SEGMENT_MAX];
    uint64_t how = fuzz_take(in, 2);
    unsigned op = 1 + (how & 15) % 10, size = (unsigned)(how >> 8);
    memset(data, THEIR, sizeof data);
    unsigned right_len = payload(data, op, size, in), len = (unsigned)any(in, right_len) & 0xffff;
    unsigned span = op == SOFT_OP_SEND_DESC ? 1 : soft_span(len);
    /* Some are parts of a message: not the first, not the last, or neither. */
    unsigned flags =
        (how >> 4 & (SOFT_F_FIRST | SOFT_F_LAST | SOFT_F_IMM)) ^ (SOFT_F_FIRST | SOFT_F_LAST);
    uint32_t right = soft_word(op, flags, len);
    uint32_t word = (uint32_t)any(in, right);
    uint32_t ack = (uint32_t)any(in, soft_qp_of(w.qp)->tx_published);
    uint32_t seq = (uint32_t)any(in, w.pos + 1);
    /* Where the number is another, a slot behind the first may be taken for a head, once round the ring. */
    w.mixed |= word != right || len != right_len || seq != w.pos + 1;
    /* So it is with a message of which a part is overwritten before it was taken. */
    w.mixed |= w.pos + span - atomic_load(&soft_qp_of(w.qp)->rx_pos) > SOFT_RING_SLOTS;
    for (unsigned i = 0; i < span && i < SOFT_SPAN_MAX; i++) {
        struct soft_slot *slot = &w.to->slot[(w.pos + i) % SOFT_RING_SLOTS];
        memcpy(slot->data, data + i * SOFT_SLOT_PAYLOAD, SOFT_SLOT_PAYLOAD);
        slot->ack = ack;
        slot->imm = (uint32_t)size;
        slot->word = word;
    }
    /* Behind all of it, as every sender does: the engine's thread may take a message as soon as its first slot shows. */
    for (unsigned i = 0; i < span && i < SOFT_SPAN_MAX; i++)
        atomic_store(&w.to->slot[(w.pos + i) % SOFT_RING_SLOTS].seq, seq + i);
    w.pos += span;
}

/* What it says of this side's sends; not that it is inside of memory, which is waited for. */
static void forge_head(struct fuzz_input *in) {
    struct soft_ring *ring = w.from;
    uint32_t published = soft_qp_of(w.qp)->tx_published;
    uint64_t how = fuzz_take(in, 1);
    switch (how & 7) {
    case 0:
    case 1:
        atomic_store(&ring->rx.acked, (uint32_t)any(in, published));
        break;
    case 2:
        atomic_store(&ring->rx.nak, any(in, (uint64_t)published << 8 | how >> 6));
        break;
    case 3:
        atomic_store(&ring->rx.stalled, (uint32_t)any(in, published));
        break;
    case 4:
        atomic_store(&ring->rx.rnr_timer, (uint32_t)any(in, 1));
        break;
    case 5:
        atomic_store(&ring->rx.access, (uint32_t)any(in, ALL_RIGHTS | 1u << 16));
        break;
    case 6:
        atomic_store(how & 8 ? &ring->rx.down : &w.to->tx.down, (uint32_t)any(in, 0));
        break;
    case 7:
        atomic_store(&ring->rx.dark, (uint32_t)any(in, 0));
        break;
    }
}

static void forge_key(struct fuzz_input *in) {
    uint64_t which = fuzz_take(in, 1) % 8;
    right_key();
    w.key->version = (uint32_t)any(in, w.key->version) & ~1u; /* odd is waited for */
    if (which == 0)
        w.key->start = any(in, w.key->start);
    else if (which == 1)
        w.key->length = any(in, w.key->length);
    else if (which == 2)
        w.key->offset = any(in, 0);
    else if (which == 3)
        w.key->region = (int32_t)any(in, 0);
    else if (which == 4)
        w.key->access = (uint32_t)any(in, ALL_RIGHTS);
    else if (which == 5)
        w.key->pd = (uint32_t)any(in, 1);
    else if (which == 6)
        w.key->serial = (uint32_t)any(in, 1);
    else
        w.key->key = (uint32_t)any(in, KEY);
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void act(struct fuzz_input *in) {
    uint64_t what = fuzz_take(in, 1), how;
    switch (what & 7) {
    case 0:
    case 1:
    case 2:
        forge_slot(in);
        break;
    case 3:
        forge_head(in);
        break;
    case 4:
        if (what & 8)
            forge_key(in);
        else
            post_receive(what & 16 ? ROOM : (uint32_t)fuzz_take(in, 1));
        break;
    case 5:
        how = fuzz_take(in, 1);
        post_send(how, fuzz_take(in, 1));
        break;
    default:
        take();
        break;
    }
}

static void prove_memory(void) {
    static const uint8_t guard[4096] = {[0 ... 4095] = GUARD};
    for (uint32_t i = 0; i < RECEIVES; i++)
        PROVE(memcmp(w.memory + i * STRIDE + w.room[i], guard, STRIDE - w.room[i]) == 0);
    PROVE(memcmp(w.memory + RECEIVES * STRIDE, guard, SINK - RECEIVES * STRIDE) == 0);
    PROVE(memcmp(w.memory + SOURCE, guard, BYTES - SOURCE) == 0);
}

static void end(void) {
    uint64_t limit = soft_now_ns() + 10000000000ull;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    take();
    PROVE(soft_modify_qp(w.qp, &attr, IBV_QP_STATE) == 0);
    while (w.sends | w.receives) {
        PROVE(soft_now_ns() < limit);
        take();
    }
    PROVE(take() == 0);
    prove_memory();
    PROVE(soft_destroy_qp(w.qp) == 0);
    munmap(w.to, SOFT_RING_BYTES);
    munmap(w.from, SOFT_RING_BYTES);
    soft_lock();
    teller_leave(&w.teller);
    soft_unlock();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    if (!w.context)
        open_world();
    memset(w.memory, GUARD, BYTES);
    memset(w.room, 0, sizeof w.room);
    w.pos = 0;
    w.mixed = false;
    right_key();
    link_up(fuzz_take(&in, 1) & 3);
    post_receive(ROOM);
    post_receive(50);
    while (in.left > 0)
        act(&in);
    end();
    return 0;
}
