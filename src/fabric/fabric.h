/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fabric.h - the one seam between Sluice and an RDMA stack.
 *
 * The hot verbs (ibv_post_send, ibv_post_recv, ibv_poll_cq, ibv_req_notify_cq) are inline calls
 * through ibv_context.ops and need nothing from here. Every other verbs or rdma_cm call goes
 * through the table of the fabric in use: the system's rdma-core or the software device. Outside
 * this folder no ibv_* or rdma_* symbol is imported and no code asks which fabric it is.
 *
 * Signatures and errno conventions are those of the man page of the same name.
 * Threads: tables are constant; the calls are as thread-safe as rdma-core's.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Event numbers that headers before librdmacm 60 do not have. */
enum {
    FABRIC_CM_ADDRINFO_RESOLVED = 16,
    FABRIC_CM_ADDRINFO_ERROR = 17,
    FABRIC_CM_USER = 18,
    FABRIC_CM_INTERNAL = 19,
};

/* Which descriptors a context had, to be found again without the context. */
struct fabric_mark {
    bool set;
    int cmd_fd, async_fd;
    uint64_t device; /* of the character device behind cmd_fd */
};

struct hwloc_topology;
struct hwloc_bitmap_s;

/*
 * What the library may rely on: first what a device does beyond what it reports, then, below the line, where a
 * device is unlike InfiniBand and RoCE, for which all of these are false.
 *
 * drains_shared: a QP in ERR that uses an SRQ reports when it has taken the last receive (LAST_WQE_REACHED).
 * exact_windows: a memory window of type 2 is checked to the byte, and invalidated at once. InfiniBand asks for
 * both; the kernel's software devices do neither.
 * shares: fabric_share(), fabric_fetch() and fabric_post_words() (fast.h), between two ends on one host.
 * unpinned: registered memory is not locked, and no limit of locked memory counts it.
 * anywhere: it is as near to one CPU and to one NUMA node as to another.
 * files_per_peer: each process that it talks to costs it descriptors.
 * keeps_to_host: it can be told to stay within this host, and says EREMOTE of an address elsewhere.
 * rejects_accepted: an id that has accepted may reject, until the dialer has confirmed. Linux sends that, too, and
 * then goes on repeating the answer: destroying the id waits for the last repetition, a minute.
 *
 * answer_is_up: the kernel drives the QP. A dialer gets ESTABLISHED for an answer, never CONNECT_RESPONSE, and
 * its QP is in RTS by then; accept moves the listener's. There is nothing to apply and nothing to establish,
 * the remote access rights are set at INIT, and a QP whose connection did not come about cannot be used again.
 * dialer_first: the listener must not send before it received something from the dialer.
 * first_may_stick: the first completion may be visible only when more arrives from the dialer.
 * connect_blocks: rdma_connect() blocks, and so does destroying its id or QP, until the answer is there.
 * silent_in_err: WRs posted in ERR never complete; WRs posted before may complete, late, until the QP is
 * destroyed; and its completions outlive it.
 * flushes_twice: a receive may complete again when its QP goes to ERR.
 * sends_in_place: an unsignalled send may be read later than a send behind it completes.
 * sent_is_local: a SEND or WRITE completes when this side has sent it; only a READ's answer proves more.
 * sink_is_target: the memory a READ goes to needs REMOTE_WRITE.
 * reads_unsafe: a READ of more than one packet may deliver wrong bytes when packets were lost (Soft-RoCE of 7.2).
 * no_immediate: there is no WRITE with immediate data.
 * posts_by_call: posting a send is a system call, one that pthread_cancel() acts in.
 * takes_mapped: an id of IPv6 at any address takes IPv4 as well. Asked only where answer_is_up.
 * rtu_stays_lost: a lost confirmation of a connection (RTU) is not asked for again.
 * repeats: what was lost on its way is sent again when the timeout of the queue pair is over, and no sooner.
 */
struct fabric_traits {
    bool drains_shared, exact_windows, shares, unpinned, anywhere, files_per_peer, keeps_to_host;
    bool rejects_accepted;

    bool answer_is_up, dialer_first, first_may_stick, connect_blocks;
    bool silent_in_err, flushes_twice, sends_in_place, sent_is_local, sink_is_target, no_immediate;
    bool reads_unsafe, posts_by_call, takes_mapped, rtu_stays_lost, repeats;
};

/* fabric_peer_lacks() of fast.h */
enum fabric_lack {
    FABRIC_LACKS_IMMEDIATE = 1, /* WRITE and SEND with immediate data */
    FABRIC_LACKS_ATOMICS = 2,
    FABRIC_LACKS_ARRIVAL = 4, /* as sent_is_local, of what is sent to that peer */
};

#define FABRIC_FRAMED 424u /* bytes behind the header that a fabric_post_framed takes, at most */
#define FABRIC_FRAMED_SIGNALED (1u << 31)

/*
 * An inline SEND of a header of 24 bytes, whose words are given (the third is 0), and of some bytes behind it: as
 * ibv_post_send() of one work request, without the caller building either. `bytes` of them; with
 * FABRIC_FRAMED_SIGNALED it has a completion. Not 0: the device posted nothing, and ibv_post_send() will say why.
 */
typedef int fabric_post_framed(struct ibv_qp *qp, uint64_t word0, uint64_t word1,
                               const uint8_t *from, uint32_t bytes, uint64_t wr_id);

struct fabric_fast;

struct fabric_ops {
    const char *name; /* "system" or "soft" */
    const struct fabric_fast
        *fast; /* NULL: it has what verbs and rdma_cm say, and no more (fast.h) */
    void (*get_traits)(const struct ibv_device *dev, const struct ibv_device_attr *attr,
                       struct fabric_traits *traits);

    /*
     * The call for small frames of a device; and how many bytes behind the header it takes on a QP that extended verbs can
     * post to, or not, 0: it is not for such a QP. (A QP cannot be asked: ibv_qp_to_qp_ex() reads behind those of drivers
     * that know nothing of extended verbs.)
     */
    fabric_post_framed *(*get_post_framed)(const struct ibv_device_attr *attr);
    uint32_t (*framed_most)(bool extended, uint32_t inline_most);
    /*
     * As create_qp, but extended verbs can post its sends too (ibv_wr_post(3)). NULL and errno: the device has none.
     */
    struct ibv_qp *(*create_extended_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

    /* verbs */
    struct ibv_device **(*get_device_list)(int *num);
    void (*free_device_list)(struct ibv_device **list);
    const char *(*get_device_name)(struct ibv_device *dev);
    struct ibv_context *(*open_device)(struct ibv_device *dev);
    int (*close_device)(struct ibv_context *ctx);
    int (*query_device)(struct ibv_context *ctx, struct ibv_device_attr *attr);
    int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
    int (*query_gid)(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
    int (*get_async_event)(struct ibv_context *ctx, struct ibv_async_event *event);
    void (*ack_async_event)(struct ibv_async_event *event);
    struct ibv_pd *(*alloc_pd)(struct ibv_context *ctx);
    int (*dealloc_pd)(struct ibv_pd *pd);
    struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access);
    int (*dereg_mr)(struct ibv_mr *mr);
    struct ibv_comp_channel *(*create_comp_channel)(struct ibv_context *ctx);
    int (*destroy_comp_channel)(struct ibv_comp_channel *channel);
    struct ibv_cq *(*create_cq)(struct ibv_context *ctx, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int comp_vector);
    int (*destroy_cq)(struct ibv_cq *cq);
    int (*get_cq_event)(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
    void (*ack_cq_events)(struct ibv_cq *cq, unsigned int n);
    struct ibv_srq *(*create_srq)(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
    int (*modify_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
    int (*query_srq)(struct ibv_srq *srq, struct ibv_srq_attr *attr);
    int (*destroy_srq)(struct ibv_srq *srq);
    struct ibv_qp *(*create_qp)(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
    int (*modify_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
    int (*query_qp)(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                    struct ibv_qp_init_attr *init);
    int (*destroy_qp)(struct ibv_qp *qp);

    /* rdma_cm */
    struct rdma_event_channel *(*create_event_channel)(void);
    void (*destroy_event_channel)(struct rdma_event_channel *channel);
    int (*create_id)(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                     enum rdma_port_space ps);
    int (*destroy_id)(struct rdma_cm_id *id);
    int (*bind_addr)(struct rdma_cm_id *id, struct sockaddr *addr);
    int (*resolve_addr)(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int ms);
    int (*resolve_route)(struct rdma_cm_id *id, int ms);
    int (*connect)(struct rdma_cm_id *id, struct rdma_conn_param *param);
    int (*listen)(struct rdma_cm_id *id, int backlog);
    int (*accept)(struct rdma_cm_id *id, struct rdma_conn_param *param);
    int (*reject)(struct rdma_cm_id *id, const void *data, uint8_t len);
    int (*establish)(struct rdma_cm_id *id);
    int (*notify)(struct rdma_cm_id *id, enum ibv_event_type event);
    int (*disconnect)(struct rdma_cm_id *id);
    int (*init_qp_attr)(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
    int (*get_cm_event)(struct rdma_event_channel *channel, struct rdma_cm_event **event);
    int (*ack_cm_event)(struct rdma_cm_event *event);
    uint16_t (*get_src_port)(struct rdma_cm_id *id);
    int (*set_option)(struct rdma_cm_id *id, int level, int name, void *value, size_t len);
    /*
     * Fails with ENOSYS where the library has no such call, with EINVAL on an old kernel: probe
     * once, outside a signal handler; after that it is signal-safe.
     */
    int (*write_cm_event)(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
                          uint64_t arg);

    /*
     * The name is looked up inside of resolve_addrinfo, which may take as long as a name server does: not
     * for the CM thread. The result is an event, ADDRINFO_RESOLVED or ADDRINFO_ERROR; or the call
     * fails. Fails with ENOSYS where the library has no such calls (before librdmacm 60).
     */
    int (*resolve_addrinfo)(struct rdma_cm_id *id, const char *node, const char *service,
                            const struct rdma_addrinfo *hints);
    int (*query_addrinfo)(struct rdma_cm_id *id, struct rdma_addrinfo **out); /* once an event */
    void (*free_addrinfo)(struct rdma_addrinfo *list);

    /*
     * Page-aligned zeroed memory that this fabric can move fastest: on the software device a
     * sealed memfd that peers map, elsewhere anonymous memory. bytes is a multiple of the page
     * size. NULL and errno. Registering it is still the caller's.
     */
    void *(*mem_alloc)(size_t bytes);
    void (*mem_free)(void *addr, size_t bytes);
    /*
     * mem_alloc() of pages of 1 << page_log2 bytes that the system keeps apart for that; bytes is a
     * multiple of theirs. Given back by mem_free. Fails where there are none; may be NULL.
     */
    void *(*mem_alloc_huge)(size_t bytes, unsigned page_log2);

    /*
     * A context that rdma_cm opened for itself and gives to ids (id->verbs) holds its device, on
     * some devices even against removal. mark: remembers one, while an id has it. let_go: the
     * device is gone and so is every id; closes what that context has open.
     */
    void (*cm_mark)(struct fabric_mark *mark, struct ibv_context *ctx);
    void (*cm_detach)(const struct fabric_mark *mark);

    /*
     * Which CPUs are next to a device, on this machine: 0, or -1 and errno (the device is nowhere).
     * Not known: all CPUs.
     */
    int (*affinity_cpus)(struct hwloc_topology *topology, struct ibv_device *dev,
                         struct hwloc_bitmap_s *set);
};

/* The traits of a device of this transport and vendor, derived from its attributes (traits.c). */
void fabric_traits_of(enum ibv_transport_type transport, const struct ibv_device_attr *attr,
                      struct fabric_traits *traits);

/* The system's affinity_cpus. */
int fabric_affinity_cpus(struct hwloc_topology *topology, struct ibv_device *dev,
                         struct hwloc_bitmap_s *set);

/* The event's 64-bit argument (USER events); headers before 60 have no name for it. */
static inline uint64_t fabric_event_arg(const struct rdma_cm_event *event) {
    uint64_t arg;
    __builtin_memcpy(&arg, &event->param, sizeof arg);
    return arg;
}

extern const struct fabric_ops fabric_system;
extern const struct fabric_ops fabric_soft;

struct fabric_choice {
    const struct fabric_ops *ops;
    char device[64]; /* device name */
    char why[160];   /* one line for people */
};

/*
 * Chooses fabric and device. spec NULL or "auto": an RDMA NIC with an active port if there is one,
 * else the software device. "soft": the software device. Anything else: the device of that name on
 * either fabric. The environment's SLUICE_DEVICE stands in for "auto" only.
 * Returns 0, or -1 with errno ENODEV and the reason in choice->why.
 */
int fabric_select(const char *spec, struct fabric_choice *choice);

#endif
