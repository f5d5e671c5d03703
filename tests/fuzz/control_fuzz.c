/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * control_fuzz.c - any messages on the control connection of the software device, while this process
 * connects, accepts, makes queue pairs and takes them away: nothing of another peer's is touched, nothing is
 * left of this one, and who has not greeted is not listened to.
 *
 * Input: acts of a few bytes each. The messages themselves are teller.c's.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bystander.h"
#include "soft/cm/id.h"
#include "soft/cm/port_name.h"
#include "soft/ipc/control_lock.h"
#include "soft/ipc/peer.h"
#include "soft/ipc/untrusted_fd.h"
#include "soft/soft.h"
#include "soft/ud/ud.h"
#include "soft/ud/ud_link.h"
#include "teller.h"

#define IDS 8u
#define QPS 4u
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct bystander bystander;

#define PORT 7000 /* or the next that is free: not one of those where tests expect nobody */

static struct {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *listener, *ud_listener;
    int name; /* of a port that the teller has, as far as anybody can know */
    uint16_t named_port;
    struct soft_peer *peers[8]; /* those of the bystander */
    uint32_t fds;
    /* of a run */
    struct teller teller;
    struct rdma_cm_id *id[IDS];
    struct ibv_qp *qp[QPS];
    bool greeted;
} world;

/* Those that the device could have: libFuzzer has pipes and files of its own, now and then. */
static uint32_t count_fds(void) {
    uint32_t n = 0;
    char link[16];
    struct dirent *entry;
    DIR *dir = opendir("/proc/self/fd");
    PROVE(dir);
    while ((entry = readdir(dir))) {
        ssize_t length = readlinkat(dirfd(dir), entry->d_name, link, sizeof link);
        n += length > 7 && (memcmp(link, "socket:", 7) == 0 || memcmp(link, "/memfd:", 7) == 0 ||
                            memcmp(link, "anon_in", 7) == 0);
    }
    closedir(dir);
    return n;
}

/*
 * Whoever connects to it is known already: the newest connection with this process, which is the teller's. But
 * where that is gone a connection is made of which nothing is ever heard.
 */
static void make_name(void) {
    struct soft_cm_port_name name = {
        .ps = RDMA_PS_TCP, .port = world.named_port = PORT, .afonly = true};
    struct sockaddr_in in = endpoint_here(0);
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    char text[SOFT_CM_NAME_BYTES];
    memcpy(&name.addr, &in, sizeof in);
    world.name = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    PROVE(world.name >= 0);
    for (;; name.port = ++world.named_port) {
        soft_cm_port_name_format(&name, 0, text);
        size_t bytes = strlen(text);
        memcpy(sun.sun_path + 1, text, bytes);
        if (bind(world.name, (struct sockaddr *)&sun,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes)) == 0)
            break;
        PROVE(world.named_port < PORT + 1000);
    }
    PROVE(listen(world.name, 64) == 0);
}

static void open_world(void) {
    struct teller *t = &world.teller;
    world.channel = soft_create_event_channel();
    world.context = soft_cm_context_get();
    PROVE(world.channel && world.context);
    /* It can be readable for an event that is not shown. */
    PROVE(fcntl(world.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    world.pd = soft_alloc_pd(world.context);
    world.cq = soft_create_cq(world.context, 64, NULL, NULL, 0);
    void *memory = soft_mem_alloc(8192); /* regions to be told of */
    PROVE(world.pd && world.cq && memory && soft_reg_mr(world.pd, memory, 8192, RIGHTS));
    world.listener = endpoint_listen(world.channel, RDMA_PS_TCP, &t->port);
    world.ud_listener = endpoint_listen(world.channel, RDMA_PS_UDP, &t->ud_port);
    bystander_open(&bystander, world.pd, world.cq);
    for (int i = 0; i < 2; i++) {
        t->other[i] = bystander_number(&bystander, i);
        t->qpn[t->qpns++] = bystander.id[i]->qp->qp_num;
    }
    teller_prepare();
    make_name();
    soft_lock();
    unsigned n = 0;
    struct soft_peer *peer;
    cds_list_for_each_entry(peer, &soft_peers, link)
        world.peers[n++] = peer;
    soft_unlock();
}

/* Connections that came about by dialing the name. */
static void drop_others(void) {
    struct soft_peer *peer, *next;
    int fd;
    soft_lock();
    cds_list_for_each_entry_safe(peer, next, &soft_peers, link) {
        bool known = false;
        for (unsigned i = 0; i < 8; i++)
            known |= world.peers[i] == peer;
        if (!known)
            soft_peer_drop(peer);
    }
    soft_unlock();
    while ((fd = accept(world.name, NULL, NULL)) >= 0)
        close(fd);
}

/* ---- acts: of the application, without the lock ---------------------------------------------------- */

static struct rdma_cm_id **place_for_id(void) {
    for (unsigned i = 0; i < IDS; i++)
        if (!world.id[i])
            return &world.id[i];
    return NULL;
}

static bool fetch(void) {
    struct rdma_cm_event *event = endpoint_event(world.channel, 0);
    if (!event)
        return false;
    PROVE(world.greeted || event->event == RDMA_CM_EVENT_ADDR_RESOLVED ||
          event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct rdma_cm_id *id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
    soft_ack_cm_event(event);
    struct rdma_cm_id **place = id ? place_for_id() : NULL;
    if (place)
        *place = id;
    else if (id)
        soft_destroy_id(id);
    return true;
}

static void end_id(struct rdma_cm_id **id) {
    if (!*id)
        return;
    if ((*id)->qp)
        soft_cm_destroy_qp(*id);
    soft_destroy_id(*id);
    *id = NULL;
}

static void dial(bool with_qp) {
    struct rdma_cm_id **place = place_for_id();
    struct ibv_qp_init_attr init = endpoint_attr(world.cq, IBV_QPT_RC);
    if (!place || !world.teller.peer->alive || !world.teller.peer->greeted)
        return; /* it would be the bystander's connection */
    *place = endpoint_resolved(world.channel, world.named_port);
    struct rdma_conn_param param = {.qp_num = 0x1234, .retry_count = 7, .rnr_retry_count = 7};
    if (with_qp)
        PROVE(soft_cm_create_qp(*place, world.pd, &init) == 0);
    (void)soft_connect(*place, &param);
}

static void answer(struct rdma_cm_id *id, bool with_qp) {
    struct ibv_qp_init_attr init =
        endpoint_attr(world.cq, id && id->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC);
    struct rdma_conn_param param = {.qp_num = 0x1234, .retry_count = 7, .rnr_retry_count = 7};
    if (!id)
        return;
    if (with_qp && !id->qp)
        (void)soft_cm_create_qp(id, world.pd, &init);
    (void)soft_accept(id, &param);
}

/* Made in INIT, then moved to its peer, then gone. */
static void next_of_qp(unsigned place, uint64_t how) {
    static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_UC};
    struct ibv_qp **qp = &world.qp[place];
    struct ibv_qp_init_attr init = endpoint_attr(world.cq, types[how & 3]);
    if (*qp && (*qp)->state == IBV_QPS_INIT) {
        endpoint_to_rts(*qp, TELLER_QPN(1 + (how >> 2 & 3)), 0);
    } else if (*qp) {
        PROVE(soft_destroy_qp(*qp) == 0);
        *qp = NULL;
    } else if ((*qp = soft_create_qp(world.pd, &init)) != NULL) {
        endpoint_to_init(*qp, 0);
        if (world.teller.qpns < TELLER_NUMBERS)
            world.teller.qpn[world.teller.qpns++] = (*qp)->qp_num;
    }
}

/* A datagram to a queue pair of the teller's: the ring for it is made, and offered. */
static void send_datagram(struct ibv_qp *qp, uint64_t how) {
    struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
    if (!qp || qp->qp_type != IBV_QPT_UD || qp->state != IBV_QPS_RTS ||
        soft_query_gid(world.context, 1, 0, &to.grh.dgid) != 0)
        return;
    struct ibv_ah *ah = soft_create_ah(world.pd, &to);
    if (!ah)
        return;
    struct ibv_send_wr *bad,
        wr = {.opcode = IBV_WR_SEND,
              .wr.ud = {
                  .ah = ah, .remote_qpn = TELLER_QPN(1 + (uint32_t)(how & 3)), .remote_qkey = 5}};
    (void)ibv_post_send(qp, &wr, &bad);
    soft_destroy_ah(ah);
}

static void act_app(uint64_t what, uint64_t how) {
    struct rdma_cm_id **id = &world.id[how % IDS];
    struct ibv_wc wc[8];
    switch (what) {
    case 0:
        fetch();
        break;
    case 1:
        dial(how & 1);
        break;
    case 2:
        answer(*id, how & 128);
        break;
    case 3:
        if (*id)
            (void)soft_reject(*id, NULL, 0);
        break;
    case 4:
        if (*id)
            (void)soft_disconnect(*id);
        break;
    case 5:
        end_id(id);
        break;
    case 6:
        next_of_qp(how >> 6, how);
        break;
    case 7:
        send_datagram(world.qp[how >> 6], how);
        (void)ibv_poll_cq(world.cq, 8, wc);
        break;
    }
}

/* ---- a run ----------------------------------------------------------------------------------- */

static void act(struct fuzz_input *in) {
    struct teller *t = &world.teller;
    uint64_t what = fuzz_take(in, 1);
    if (what < 144) {
        teller_tell(t, in);
    } else if (what < 248) {
        uint64_t how = fuzz_take(in, 1);
        soft_unlock();
        act_app(what & 7, how);
        soft_lock();
        soft_ud_if_wanted();
        teller_hear(t);
    } else if (!t->peer->alive || what == 255) { /* hung up on, or it leaves: another one comes */
        teller_leave(t);
        teller_connect(t);
        if (what & 1)
            teller_greet(t);
    }
    world.greeted |= t->peer->greeted;
}

static void end(void) {
    struct ibv_wc wc[8];
    for (unsigned i = 0; i < QPS; i++) {
        if (world.qp[i])
            PROVE(soft_destroy_qp(world.qp[i]) == 0);
        world.qp[i] = NULL;
    }
    drop_others();
    while (fetch())
        ;
    for (unsigned i = 0; i < IDS; i++)
        end_id(&world.id[i]);
    while (fetch())
        ;
    while (ibv_poll_cq(world.cq, 8, wc) > 0)
        ;
    bystander_prove(&bystander);
    while (soft_untrusted_fd_pending() > 0)
        poll(NULL, 0, 1);
    uint32_t fds = count_fds();
    PROVE(world.fds == 0 || fds == world.fds);
    world.fds = fds;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    struct teller *t = &world.teller;
    if (!world.context)
        open_world();
    t->talks = t->next_id = 0;
    t->qpns = 2;
    world.greeted = false;
    soft_lock();
    teller_connect(t);
    if (!(fuzz_take(&in, 1) & 7) || world.fds == 0) {
        teller_greet(t);
        world.greeted = true;
    }
    while (in.left > 0)
        act(&in);
    teller_leave(t);
    soft_unlock();
    end();
    return 0;
}
