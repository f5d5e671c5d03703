/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softverbs_holes_test.c - regions of a peer's with pages that are not there. Who reads them makes none, and finds zeros;
 * who writes lets their owner make them. Both ends are in this process: what a region has is asked of its file.
 */
#include "support/softverbs.h"
#include "support/softverbs_onesided.h"
#include "support/rows.h"
#include "soft/rc/region_pages.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#define PAGE 4096u
#define MESSAGE (64u << 10)
#define BYTES (1u << 20)
#define APART_MOST (16u << 20) /* two looks, of a process that has missed no page yet */

static const struct soft_region *region_of(const struct ibv_mr *mr) {
    return &soft_regions[((const struct soft_mr *)mr)->region];
}

static uint64_t made(const struct ibv_mr *mr) {
    struct stat st;
    must(fstat(region_of(mr)->fd, &st) == 0);
    return (uint64_t)st.st_blocks * 512;
}

static void punch(const struct ibv_mr *mr, uint64_t at, uint64_t bytes) {
    must(fallocate(region_of(mr)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at,
                   (off_t)bytes) == 0);
}

struct pair {
    struct sv_end from, to; /* the memory of `from` is all holes */
};

static void open_pair(struct pair *p) {
    const struct sv_options with = SV_OPTIONS(.bytes = BYTES, .mapped = true, .one_cq = true);
    sv_pair(&p->from, with, &p->to, with);
    sv_wait_mapped(&p->from);
    must(made(p->from.mr) == 0);
    memset(p->to.buf, 7, BYTES);
}

static void end(struct pair *p) {
    sv_unpair(&p->from, &p->to);
}

static void send_and_take(struct pair *p, size_t at, size_t bytes) {
    must(sv_recv(&p->to, 1, at, bytes) == 0);
    must(sv_send(&p->from, 2, at, bytes, IBV_SEND_SIGNALED) == 0);
    struct ibv_wc wc = sv_poll(p->to.rcq);
    sv_right(wc, wc.byte_len == bytes);
    must(sv_poll(p->from.scq).status == IBV_WC_SUCCESS);
}

/* Its owner has made the pages, and gives them back behind the device's back. */
static void begin(struct pair *p) {
    open_pair(p);
    send_and_take(p, 0, BYTES);
    punch(p->from.mr, 0, BYTES);
    atomic_fetch_add(&soft_pages_missed, 1); /* this process has seen holes before */
}

static void fetch(struct pair *p, size_t at, size_t bytes) {
    uint32_t region;
    uint64_t where;
    must(soft_share(p->from.qp, p->from.mr, p->from.buf + at, bytes, &region, &where));
    struct ibv_sge to = sv_sge(&p->to, at, bytes);
    must(soft_fetch(p->to.qp, region, where, &to) == 0);
}

TEST(who_names_memory_makes_its_pages) {
    static const uint8_t zeros[MESSAGE];
    struct pair p;
    open_pair(&p);
    uint64_t missed = atomic_load(&soft_pages_missed);
    send_and_take(&p, 0, MESSAGE);
    must_data_bytes(p.to.buf, zeros, MESSAGE);
    must(made(p.from.mr) == MESSAGE && atomic_load(&soft_pages_missed) == missed);
    end(&p);
}

TEST(who_registers_memory_for_peers_makes_its_pages) {
    struct pair p;
    open_pair(&p);
    struct ibv_mr *mr = soft_reg_mr(p.from.pd, p.from.buf + MESSAGE, MESSAGE, ALL_REMOTE | 1);
    must(mr && made(mr) == MESSAGE);
    must(soft_dereg_mr(mr) == 0);
    end(&p);
}

TEST(who_binds_a_window_makes_its_pages) {
    struct pair p;
    open_pair(&p);
    struct ibv_mr *mr = soft_reg_mr(p.from.pd, p.from.buf, BYTES, 1 | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(p.from.pd, IBV_MW_TYPE_2);
    must(mr && mw && made(mr) == 0);
    const struct ibv_mw_bind_info part = {mr, (uintptr_t)p.from.buf + MESSAGE, MESSAGE,
                                          IBV_ACCESS_REMOTE_WRITE};
    must(sv_bind(p.from.qp, mw, ibv_inc_rkey(mw->rkey), part) == 0);
    must(sv_poll(p.from.scq).status == IBV_WC_SUCCESS && made(mr) == MESSAGE);
    must(soft_destroy_qp(p.from.qp) == 0);
    p.from.qp = NULL;
    must(ibv_dealloc_mw(mw) == 0 && soft_dereg_mr(mr) == 0);
    end(&p);
}

struct taking {
    void (*take)(struct pair *p, size_t at, size_t bytes);
};

/* Every third page was written. */
static void holes_arrive_as_zeros_and_stay_holes(void **state) {
    const struct taking *with = *state;
    static const uint8_t zeros[PAGE];
    struct pair p;
    begin(&p);
    for (size_t at = 0; at < MESSAGE; at += 3 * PAGE)
        sv_fill(p.from.buf + at, PAGE, (uint32_t)at);
    uint64_t before = made(p.from.mr);
    with->take(&p, 0, MESSAGE);
    must(made(p.from.mr) == before);
    for (size_t at = 0; at < MESSAGE; at += PAGE)
        if (at % (3 * PAGE) == 0)
            sv_check(p.to.buf + at, PAGE, (uint32_t)at);
        else
            must_data_bytes(p.to.buf + at, zeros, PAGE);
    with->take(&p, MESSAGE, BYTES - MESSAGE);
    must(made(p.from.mr) == before);
    end(&p);
}

/* Its owner gives pages back when it has seen what the last look found. */
static void few_pages_are_made_between_two_looks(void **state) {
    const struct taking *with = *state;
    struct pair p;
    begin(&p);
    memset(p.from.buf, 1, BYTES);
    with->take(&p, 0, BYTES);
    atomic_store(&soft_pages_missed, 0); /* as in a process that has seen no holes yet */
    punch(p.from.mr, 0, BYTES);
    uint64_t all = 0;
    for (unsigned i = 0; i < 128 * BYTES / MESSAGE; i++) {
        with->take(&p, i * MESSAGE % BYTES, MESSAGE);
        all += made(p.from.mr);
        punch(p.from.mr, 0, BYTES);
    }
    assert_uint_in_range(all, 0, APART_MOST);
    must(atomic_load(&soft_pages_missed) > 0);
    end(&p);
}

/* ---- one-sided ------------------------------------------------------------------------------------ */

struct access {
    enum ibv_wr_opcode opcode;
    size_t bytes;
};

/* Executed by its owner: that is when a page may be made. */
static void the_owner_of_a_hole_executes(void **state) {
    const struct access *with = *state;
    bool write = with->opcode == IBV_WR_RDMA_WRITE;
    struct onesided p;
    onesided_open(&p, MAPPED, ALL_REMOTE, ALL_REMOTE, 4);
    sv_fill(p.a.buf, with->bytes, 5);
    must(made(p.open) == ONESIDED_BYTES);
    punch(p.open, 0, ONESIDED_BYTES);
    uint64_t missed = atomic_load(&soft_pages_missed);
    for (unsigned i = 0; i < 2; i++) { /* the second time a written page is there */
        must(!soft_qp_of(p.a.qp)->one_sided_ring || (write && i == 1));
        soft_qp_of(p.a.qp)->one_sided_ring = false;
        must(onesided_post(&p, with->opcode, 0, with->bytes, 0, p.open->rkey, 0) == 0);
        onesided_expect(&p, IBV_WC_SUCCESS, write ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
        if (i == 0)
            must(soft_qp_of(p.a.qp)->one_sided_ring && atomic_load(&soft_pages_missed) > missed);
        if (!write)
            break;
    }
    must(!write || !soft_qp_of(p.a.qp)->one_sided_ring);
    if (write)
        sv_check(p.b.buf, with->bytes, 5);
    else
        must_data(p.a.buf[0] == 0 && p.a.buf[with->bytes - 1] == 0);
    onesided_close(&p);
}

/* ---- how much is mapped ---------------------------------------------------------------------------- */

static bool maps(const struct pair *p, const struct ibv_mr *mr) {
    const struct soft_peer *self = soft_qp_of(p->to.qp)->link_peer;
    return atomic_load(&self->regions[((const struct soft_mr *)mr)->region].addr) != NULL;
}

/* A part of it is sent all the same, as other memory is. */
static void arrives(struct pair *p, struct ibv_mr *mr, uint8_t *buf) {
    struct sv_end own = p->from;
    p->from.mr = mr;
    p->from.buf = buf;
    sv_fill(buf, MESSAGE, 9);
    send_and_take(p, 0, MESSAGE);
    sv_check(p->to.buf, MESSAGE, 9);
    p->from = own;
}

TEST(more_than_the_machine_has_is_not_mapped) {
    struct sysinfo info;
    must(sysinfo(&info) == 0);
    size_t most = (size_t)info.totalram * info.mem_unit / 8 * 5 & ~(size_t)(BYTES - 1);
    const size_t bytes[] = {most, most, BYTES}; /* the last one is told of behind the others */
    uint8_t *much[3];
    struct ibv_mr *mr[3];
    struct pair p;
    begin(&p);
    for (unsigned i = 0; i < 3; i++) {
        much[i] = soft_mem_alloc(bytes[i]);
        mr[i] = much[i] ? soft_reg_mr(p.from.pd, much[i], BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;
        must(mr[i]);
    }
    sv_until(maps(&p, mr[2]));
    must(maps(&p, mr[0]) && !maps(&p, mr[1]));
    arrives(&p, mr[1], much[1]);
    for (unsigned i = 0; i < 3; i++) {
        must(soft_dereg_mr(mr[i]) == 0);
        soft_mem_free(much[i], bytes[i]);
    }
    end(&p);
}

/* Of all peers, which this process is itself. */
static unsigned mapped(void) {
    const struct soft_peer *peer;
    unsigned n = 0;
    soft_lock();
    cds_list_for_each_entry(peer, &soft_peers, link)
        for (unsigned i = 0; i < SOFT_MAX_REGIONS; i++)
            n += atomic_load(&peer->regions[i].addr) != NULL;
    soft_unlock();
    return n;
}

#define REGIONS 64

/* The rest is for connections and files of the program. */
TEST(descriptors_of_regions_are_a_quarter_at_most) {
    struct rlimit before, few;
    uint8_t *buf[REGIONS];
    struct ibv_mr *mr[REGIONS];
    struct pair p;
    begin(&p);
    must(getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = (struct rlimit){2 * REGIONS + 32, before.rlim_max};
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    for (unsigned i = 0; i < REGIONS; i++) {
        buf[i] = soft_mem_alloc(BYTES);
        mr[i] = buf[i] ? soft_reg_mr(p.from.pd, buf[i], BYTES, IBV_ACCESS_LOCAL_WRITE) : NULL;
        must(mr[i]);
    }
    sv_until(mapped() >= few.rlim_cur / 4);
    for (unsigned i = 0; i < REGIONS; i++)
        arrives(&p, mr[i], buf[i]);
    must(mapped() == few.rlim_cur / 4);
    for (unsigned i = 0; i < REGIONS; i++) {
        must(soft_dereg_mr(mr[i]) == 0);
        soft_mem_free(buf[i], BYTES);
    }
    must(setrlimit(RLIMIT_NOFILE, &before) == 0);
    end(&p);
}

TEST_CASES(ROW(holes_of_a_send, holes_arrive_as_zeros_and_stay_holes, taking, send_and_take),
           ROW(holes_that_are_fetched, holes_arrive_as_zeros_and_stay_holes, taking, fetch),
           ROW(holes_between_two_sends, few_pages_are_made_between_two_looks, taking,
               send_and_take),
           ROW(holes_between_two_fetches, few_pages_are_made_between_two_looks, taking, fetch),
           ROW(a_short_write_to_a_hole, the_owner_of_a_hole_executes, access, IBV_WR_RDMA_WRITE, 8),
           ROW(a_write_to_holes, the_owner_of_a_hole_executes, access, IBV_WR_RDMA_WRITE, MESSAGE),
           ROW(a_short_read_of_a_hole, the_owner_of_a_hole_executes, access, IBV_WR_RDMA_READ, 8),
           ROW(a_long_read_of_holes, the_owner_of_a_hole_executes, access, IBV_WR_RDMA_READ,
               ONESIDED_BYTES));
