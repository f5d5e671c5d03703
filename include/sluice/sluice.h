/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice.h - reliable, ordered, flow-controlled messages between processes over RDMA.
 *
 * Four nouns. A *node* owns threads, devices and registered memory. A *session* is one connection
 * to one peer. A *message* is a registered buffer with exactly one owner. An *event* is how a node
 * reports to the application. A fifth noun, the *loop*, is for callers that bring their own thread and poll.
 *
 * Rules that hold for every call
 *  - Ownership: a call that returns 0 took the message; any other result left it with the caller.
 *  - Every send with a tag has exactly one outcome (SLUICE_SENT). Messages arrive in
 *    the order they were sent; outcomes do not come in that order: that of a message larger than a frame
 *    comes when the peer has it, which may be after those of smaller ones that were sent later.
 *  - SLUICE_CLOSED is the last event of a session, and every session has one. A listener has one if
 *    its device is removed.
 *  - Objects that only the caller closes are pointers; objects that can end on their own (sessions,
 *    listeners) are checked handles: a call with a stale one returns SLUICE_ECLOSED and never crashes.
 *  - Options: `size` first (the SLUICE_NODE, SLUICE_LINK, SLUICE_SEND macros set it), zero means
 *    default, an unknown non-zero tail is refused with SLUICE_EINVAL.
 *  - Handlers never run inside a call and never on the connection-management thread. Handlers of
 *    one session never run at the same time as each other.
 *  - Only sluice_open() and sluice_close() block for longer than a hand-over between threads, and the first
 *    sluice_node_get_info() of a node, which may have to ask the device.
 *  - Times are nanoseconds; deadlines are absolute, on the clock that sluice_now() reads.
 *  - Threads: unless a call says otherwise it may be made from any thread, handlers included.
 *  - pthread_cancel(): a thread is cancelled in no call but a sluice_poll() that waits, and there at once, unless
 *    there is something to return: nothing is lost, the loop is as after a poll that found nothing, and another
 *    thread may poll it. So a wait_ns of 0 is no cancellation point. Elsewhere cancellation acts when the call has
 *    returned: a call is made wholly, and so is a handler, a key_lookup and the log, where no cancellation point acts.
 *    The library's own threads are never cancelled. As most functions, none of these may be called while the type is
 *    PTHREAD_CANCEL_ASYNCHRONOUS.
 *  - fork(): handles that a child inherits belong to the parent, and calls of the child with them return
 *    SLUICE_EFORKED; the parent is unharmed. The child may open nodes of its own. A child that was forked in a
 *    handler must not return from it.
 *  - docs/changes.md lists the public names that have changed.
 */
#ifndef SLUICE_H
#define SLUICE_H

#include <stddef.h>
#include <stdint.h>

#include <sluice/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLUICE_API __attribute__((visibility("default")))
/* For calls whose result must be looked at: a caller that ignores it loses, leaks or misjudges something. */
#define SLUICE_CHECK __attribute__((warn_unused_result))

#define SLUICE_VERSION_MAJOR 0
#define SLUICE_VERSION_MINOR 1
#define SLUICE_VERSION_PATCH 0

typedef struct sluice_node sluice_node;
typedef struct sluice_loop sluice_loop;
typedef struct sluice_msg sluice_msg;

/* Node, slot and generation in one value: two libraries of one process may each have nodes. */
typedef struct sluice_session {
    uint64_t id;
} sluice_session;
typedef struct sluice_listener {
    uint64_t id;
} sluice_listener;

/* What went wrong, for calls of the slow path. `text` is one line, always terminated. */
typedef struct sluice_error {
    int32_t status;   /* sluice_status */
    int32_t reason;   /* sluice_reason */
    int32_t os_errno; /* errno of the failing call, or 0 */
    uint32_t vendor;  /* transport code (REJ reason, completion status), or 0 */
    char text[160];
} sluice_error;

/* ---- events ---------------------------------------------------------------------------------- */

typedef enum sluice_event_type {
    SLUICE_UP =
        1, /* session usable. After DOWN: again, value = nanoseconds without a connection, tag =
                            how often it was made again */
    SLUICE_CLOSED = 2,   /* last event of the session: status, reason, vendor say why (status.h:
                            after which of them to dial again). Of a listener too: session.id is the
                            listener's then, see sluice_listen() */
    SLUICE_MESSAGE = 3,  /* a message from the peer: msg */
    SLUICE_SENT = 4,     /* outcome of a send with a tag: tag, status. 0: the peer's device has the
                            message, or its library where the session has resume_ns; that its
                            application has seen it, only a request's reply says */
    SLUICE_WRITABLE = 5, /* there is room again: one follows the first SLUICE_EAGAIN, however many
                            there were. On the session's loop, whichever thread got that */
    SLUICE_WAKE = 6,     /* sluice_wake() was called on this loop */
    SLUICE_CONNECT = 7,  /* a peer asks to connect (listeners with SLUICE_ASK): peer */
    SLUICE_REQUEST = 8,  /* a request of the peer: msg, token, value = deadline on this clock, 0 if
                            none or more than 71 minutes away; it has exactly one answer,
                            sluice_reply() or sluice_reply_error() */
    SLUICE_REPLY = 9,    /* the one outcome of a request of mine: tag, status; msg if status is 0;
                            vendor = the code of sluice_reply_error() if it is EREJECTED */
    SLUICE_LARGE = 10,   /* links with SLUICE_RECEIVE_INTO: a large message of value bytes waits for
                            sluice_receive_into() to say where it goes: token */
    SLUICE_DONE = 11,    /* the outcome of a one-sided operation with a tag (memory.h): tag, status,
                            value = what the memory held before, of an atomic */
    SLUICE_NOTIFIED = 12, /* the peer's put with notify is complete in my memory: value */
    SLUICE_DOWN =
        13, /* links with resume_ns: the connection was lost: reason, status, vendor as in CLOSED;
                             UP or CLOSED follows */
    SLUICE_MOVED = 14 /* after sluice_session_move(): the session's first event on its new loop */
} sluice_event_type;

/* The peer of a connection request. Borrowed like a message. */
typedef struct sluice_peer {
    char address[64];         /* "192.0.2.1:7471" or "[2001:db8::1]:7471" */
    uint32_t version;         /* protocol version it offers */
    uint32_t message_bytes;   /* log2 of the largest message it offers to carry */
    uint32_t key_id;          /* its identity: the key it proved to have; 0 = none was asked for */
    uint32_t private_bytes;   /* of private_data; 0 = it sent none */
    const void *private_data; /* the private_data of the peer's sluice_dial(); untrusted, but where
                                 key_id is not 0 it comes from the holder of that key */
} sluice_peer;

/* 64 bytes, the same record for handlers and for sluice_poll(). */
typedef struct sluice_event {
    uint16_t type;   /* sluice_event_type */
    uint16_t reason; /* sluice_reason, in SLUICE_CLOSED and SLUICE_DOWN */
    int32_t status;  /* sluice_status */
    sluice_session session;
    void *arg; /* the session's argument */
    union {
        sluice_msg *msg; /* MESSAGE, REQUEST, REPLY: borrowed until the handler returns or the
                                    next poll, unless kept with sluice_keep() or sent on. NULL in a
                                    MESSAGE received into a region, see sluice_receive_into() */
        const sluice_peer *peer; /* CONNECT: borrowed likewise */
    };
    uint64_t tag;    /* SENT, REPLY, DONE: the tag of the call */
    uint32_t vendor; /* CLOSED: transport code behind the reason, or 0 */
    uint32_t bytes;  /* payload bytes of a message (saturated: sluice_size() has them all) */
    uint64_t token;  /* REQUEST, LARGE: its id in the answer. MESSAGE without msg: the same */
    uint64_t value;  /* see the event types */
} sluice_event;

typedef void (*sluice_handler)(const sluice_event *event, void *handler_arg);

/* ---- options --------------------------------------------------------------------------------- */

#define SLUICE_NO_WORKERS UINT32_MAX /* workers: none, sessions are on the application's loops */
#define SLUICE_OFF UINT64_MAX        /* a time: switched off (0 means default) */
#define SLUICE_UNBOUND UINT32_MAX    /* memory_numa: the memory is on no node in particular */

typedef enum sluice_idle {
    SLUICE_IDLE_DEFAULT = 0,  /* adaptive */
    SLUICE_IDLE_ADAPTIVE = 1, /* poll for a short while, then sleep until woken */
    SLUICE_IDLE_SPIN = 2,     /* never sleep: lowest latency, one whole CPU */
    SLUICE_IDLE_BLOCK = 3     /* sleep at once, or within microseconds where sleeps are short */
} sluice_idle;

typedef enum sluice_log_level {
    SLUICE_LOG_ERROR = 0,
    SLUICE_LOG_WARNING = 1,
    SLUICE_LOG_INFO = 2,
    SLUICE_LOG_DEBUG = 3
} sluice_log_level;

/*
 * How a message travels that is larger than a receive buffer: the receiver is told of it and
 * takes it by RDMA READ, or the receiver says where the sender may put it and the sender WRITEs it there. The software
 * device has a third way between processes of one host: the receiver copies it out of memory that both have mapped.
 */
typedef enum sluice_rendezvous {
    SLUICE_RENDEZVOUS_AUTO = 0, /* that copy, else READ; WRITE where READ is not reliable */
    SLUICE_RENDEZVOUS_READ = 1,
    SLUICE_RENDEZVOUS_WRITE = 2 /* not on iWARP: sluice_open() refuses with EDEVICE */
} sluice_rendezvous;

/* The source that reports when memory sent in place goes away, so that its registration may be kept: memory.h. */
typedef enum sluice_registrations {
    SLUICE_REGISTRATIONS_AUTO = 0,     /* the kernel, where that is allowed; else none are kept */
    SLUICE_REGISTRATIONS_NOTIFIED = 1, /* application: sluice_registration_invalidate() */
    SLUICE_REGISTRATIONS_OFF = 2       /* none are kept: plain memory is copied */
} sluice_registrations;

/*
 * Whether the software device reaches other hosts, over TCP; docs/two-hosts.md. It holds for listeners and dials of
 * this node: nodes of one process may differ. A node with OFF makes no socket of the internet family and has no open
 * port. A node with REQUIRE cannot reach a listener of this host that has no port, such as one of a node with OFF.
 */
typedef enum sluice_soft_net {
    SLUICE_SOFT_NET_DEFAULT = 0, /* what SLUICE_SOFT_NET of the environment says, else on */
    SLUICE_SOFT_NET_OFF = 1,     /* within this host, whatever the environment says */
    SLUICE_SOFT_NET_ON = 2,      /* this host through shared memory, others over TCP */
    SLUICE_SOFT_NET_REQUIRE = 3  /* over TCP within this host, too: for tests and measuring */
} sluice_soft_net;

typedef struct sluice_node_options {
    size_t size;
    const char *name;           /* shown by sluice-stat and in the log; default: program name */
    const char *device;         /* "auto" (a NIC if there is one, else soft), "soft", or a name */
    uint32_t workers;           /* library threads; 0 = 1, SLUICE_NO_WORKERS = none */
    uint32_t idle;              /* sluice_idle of the workers and the default of loops */
    const int *worker_cpus;     /* one CPU a worker, -1 = do not pin; NULL = chosen, see docs */
    uint64_t memory_bytes_max;  /* cap on registered memory; default 1 GiB */
    uint64_t message_bytes_max; /* largest message this node sends or accepts; default 64 MiB */
    uint32_t eager_bytes;       /* frame size, header included, 512..65536; default 8 KiB */
    uint32_t sessions_max;      /* default 4096, or as many as memory and device have room for. What
                                   one takes: session_bytes of sluice_node_info; docs/memory.md */
    uint32_t handshakes_max;    /* connections of peers being set up at a time; default 128 */
    uint32_t requests_max;      /* connection requests waiting for a handshake or the application's
                                   decision; peers above it must try again; default 1024 */
    void (*log)(int level, const char *text, void *log_arg); /* default: warnings to stderr */
    void *log_arg;
    uint64_t receive_bytes_max; /* the part of memory_bytes_max that is for receiving, and that
                                   allocating and sending can never use up; default a quarter */
    uint64_t rendezvous_bytes;  /* larger messages go by rendezvous; default: by transport */
    uint32_t rendezvous;        /* sluice_rendezvous */
    uint32_t memory_numa;       /* the NUMA node registered memory is on: its number plus one;
                                   SLUICE_UNBOUND = none; default: SLUICE_NUMA of the environment,
                                   else the device's */
    uint32_t registrations;     /* sluice_registrations: of memory sent in place, see memory.h */
    uint64_t
        registration_bytes_max; /* cap on these, beside memory_bytes_max; default a quarter of it */
    uint32_t soft_net; /* sluice_soft_net, for the software device; an RDMA device ignores it */
    uint32_t reserved; /* 0 */
} sluice_node_options;

/* link flags; a flag of listen is EINVAL in a dial, and the reverse */
#define SLUICE_ASK 1u  /* listen: deliver SLUICE_CONNECT and wait for accept or refuse */
#define SLUICE_ONCE 2u /* dial: one try, at one address; else see sluice_dial() */
#define SLUICE_REUSE                                                                               \
    4u /* listen: the address may still be in use by connections that ended
                           (RDMA_OPTION_ID_REUSEADDR of rdma_set_option(3)) */

#define SLUICE_RECEIVE_INTO 8u /* the application says where large messages go: SLUICE_LARGE */
#define SLUICE_ISOLATED                                                                            \
    16u                 /* receives of its own for each session, even where they could be shared */
#define SLUICE_WAIT 32u /* dial: a listener that is not there yet is awaited, see sluice_dial() */

/*
 * A secret shared with peers, 16 to 64 bytes, and the number by which both sides name it, not 0. The
 * library copies what it is given. docs/security.md says what it protects from and what not.
 */
typedef struct sluice_key {
    uint32_t id;
    uint32_t bytes;
    const void *secret;
} sluice_key;

#define SLUICE_SECRET_MIN 16u
#define SLUICE_SECRET_MAX 64u
#define SLUICE_PRIVATE_MAX 256u

/*
 * Finds the secret of the key that a peer names. Writes up to SLUICE_SECRET_MAX bytes and returns how many,
 * or 0: there is no such key. Called like a handler, on the thread of the loop that gets the session,
 * before the peer is authenticated: do not trust key_id. It should not wait for long.
 */
typedef uint32_t (*sluice_key_lookup)(uint32_t key_id, void *secret, void *lookup_arg);

/* For sluice_listen() (every session of the listener) and sluice_dial() alike. */
typedef struct sluice_link_options {
    size_t size;
    sluice_handler handler; /* called with every event; NULL only together with loop */
    void *handler_arg;
    void *arg;                /* argument of the session, event->arg (accept may replace it) */
    sluice_loop *loop;        /* NULL = a library worker */
    uint32_t flags;           /* SLUICE_ASK ... */
    uint32_t window_messages; /* accepted sends without outcome yet; default 128 */
    uint64_t window_bytes;    /* the same in bytes, one message always fits; default 16 MiB */
    uint64_t timeout_ns;      /* to establish, and for SLUICE_ASK to decide; default 10 s */
    uint32_t credits;         /* frames the peer may have on their way, at most: how many it gets
                                 depends on how many it uses; default 40, 4..1024 */
    /*
     * A peer from which nothing came for two of these intervals is lost (KEEPALIVE). Where an application has nothing to send the
     * library sends a small frame in time, so a loop of the application must be polled once in an interval. Both sides
     * use the longer of their intervals; none, if either has it off. 10 ms to 655 s; default 10 s, SLUICE_OFF = off.
     */
    uint64_t keepalive_ns;
    /*
     * listen: spread the sessions over these loops of this node (instead of loop), each to the loop
     * with the fewest sessions. The array is copied; the loops must stay open while the listener does.
     */
    sluice_loop *const *loops;
    uint32_t loop_count; /* up to 64 */
    /*
     * Authentication. dial: one key, whose id the listener must know. listen: with keys or a lookup
     * every peer must authenticate itself; keys are looked at first, then the hook is asked.
     */
    uint32_t key_count;
    const sluice_key *keys;
    sluice_key_lookup key_lookup;
    void *key_lookup_arg;
    /* dial only: shown to a listener with SLUICE_ASK before it decides; up to SLUICE_PRIVATE_MAX bytes */
    const void *private_data;
    uint32_t private_bytes;
    uint32_t tos; /* type of service of the connection's packets, 0..255: RDMA_OPTION_ID_TOS */
    uint32_t
        ack_timeout;   /* exponent of the device's retry timer (4.096 us << n), 1..31; 0 = rdma_cm's
                             own choice: RDMA_OPTION_ID_ACK_TIMEOUT */
    uint32_t requests; /* requests of this side in flight at a time; default 64, 1..256 */
    /*
     * How long the session may be without a connection; default 0: the loss of its connection ends it. In effect where both sides
     * have it. Then what was accepted is delivered once and in order, whatever happens to connections, while both processes live: each
     * side keeps what it has sent until the other's library has it, and SENT with status 0 says that it has. When the connection is
     * lost there is SLUICE_DOWN; the dialer connects again, to its addresses in turn, and SLUICE_UP follows. Meanwhile calls are
     * as ever, up to the window; a deadline, a cancellation and sluice_hangup() hold. When the time is over, which each
     * side counts for itself, SLUICE_CLOSED has reason RESUME_TIMEOUT; SESSION_UNKNOWN where the peer does not know the session any
     * more: it was restarted, it gave up, or it had hung up and its good-bye was lost with the connection. Then ECLOSED is the
     * outcome of what never left, or not wholly, EUNKNOWN of what left and was not acknowledged. All this holds once SLUICE_UP was
     * delivered on both sides; a connection that is lost before ends the session.
     * A one-sided operation (memory.h) is never done twice. One that was on its way at the loss ends EUNKNOWN, unless it is known to have been
     * done; and what this side had given behind it, and the peer has not got, ends EFENCED: it is not delivered. (A reply that is
     * not is EUNKNOWN to its requester.) The outcomes come with SLUICE_UP. A session whose node has lost its device ends.
     */
    uint64_t resume_ns;
} sluice_link_options;

typedef struct sluice_send_options {
    size_t size;
    uint64_t tag; /* non-zero: one SLUICE_SENT (SLUICE_DONE) with this tag reports the outcome.
                     A request's SLUICE_REPLY comes in any case and has it */
    uint64_t deadline_ns; /* absolute; not handed to the device by then: dropped, ETIMEDOUT; 0 none.
                        Of a request: no reply by then, see sluice_request() */
    uint32_t flags;       /* SLUICE_MORE */
    uint32_t reserved;
} sluice_send_options;
#define SLUICE_MORE 1u     /* another send follows at once: the doorbell of this one may wait */
#define SLUICE_IN_PLACE 2u /* sluice_send_pieces() only: plain memory is not copied, see memory.h */

/* C only; in C++ zero the struct and set .size yourself. */
#ifndef __cplusplus
#define SLUICE_NODE(...) (&(sluice_node_options){.size = sizeof(sluice_node_options), __VA_ARGS__})
#define SLUICE_LINK(...) (&(sluice_link_options){.size = sizeof(sluice_link_options), __VA_ARGS__})
#define SLUICE_SEND(...) (&(sluice_send_options){.size = sizeof(sluice_send_options), __VA_ARGS__})
#endif

/* ---- node ------------------------------------------------------------------------------------ */

/*
 * Opens a node: picks the device, starts the connection-management thread and the workers,
 * registers the first memory. Blocks until that is done. `o` NULL = all defaults; `e` may be NULL.
 * Returns 0 and *out, or a negative status with *e filled in and *out untouched. EINVAL: an option, or
 * sessions_max that need more memory than there may be, or more of the device than it has; ENOMEM,
 * ELIMIT (descriptors): a limit of the system. The text says which limit, the need and the remedy, see
 * docs/memory.md. A node that opens has room for sessions_max sessions, whatever their options are, as far
 * as large messages and replies leave memory for their first receives. Where these sessions, or the device,
 * may need more descriptors than the process may have, its soft limit (RLIMIT_NOFILE) is raised, to the hard
 * one at most, for its children, too, and for good: a program that calls select() lowers the hard one first.
 */
SLUICE_API SLUICE_CHECK int sluice_open(sluice_node **out, const sluice_node_options *o,
                                        sluice_error *e);
/*
 * Closes everything of the node: every session as sluice_hangup() does, with SLUICE_CLOSED on its handler (events of a loop
 * that no thread polls are dropped). Blocks until all are done: grace_ns and what sluice_hangup() takes then, or
 * less. Not from a handler. After it every handle of the node is stale and its messages are freed.
 *
 * It takes longer in two cases. A thread of the application that is inside a handler, the log or a call and does not return is
 * waited for until one second after the grace, or half a second after that thread was seen
 * to enter, if that is later; then the call returns all the same. The log (SLUICE_LOG_ERROR) says which thread is in the way and what stays until it
 * returns: sessions, their memory, the device, a thread of the library. If the log itself does not return, it is not
 * waited for either and nothing is logged. It returns as well, and says so, when no session has ended for 15 s after the grace
 * and no thread is in the way: then the device does not answer. From then on the library calls no handler, no key_lookup and no log any
 * more; one that is still running then may use what it was given.
 */
SLUICE_API void sluice_close(sluice_node *n, uint64_t grace_ns);

/* Huge pages of one size that the system keeps apart on one NUMA node. */
typedef struct sluice_huge_pages {
    int32_t numa;
    uint32_t page_log2;
    uint64_t total, free; /* pages */
} sluice_huge_pages;

typedef struct sluice_node_info {
    size_t size;       /* set by the caller */
    char device[64];   /* "sluice_soft0", "rxe0", ... */
    char why[160];     /* why that device, one line */
    char wake[96];     /* how sleeping threads are woken, one line */
    uint32_t software; /* 1 = software device: figures are not those of a NIC */
    uint32_t workers;
    int32_t worker_cpu[64]; /* -1 = not pinned */
    uint32_t eager_bytes;
    uint32_t inline_bytes; /* bytes of a frame that may be inline in its WR, 0: none */
    uint64_t message_bytes_max;
    uint64_t memory_bytes_max;
    uint64_t memory_bytes; /* registered now */
    uint32_t sessions_max;
    uint32_t sessions;        /* open now */
    int32_t device_numa;      /* NUMA node of the device, -1: none, or not known */
    int32_t memory_numa;      /* the node its memory is bound to, -1: none */
    uint64_t memlock_bytes;   /* the limit on locked memory, UINT64_MAX: none */
    char memory[160];         /* of which pages the registered memory is, one line */
    char placement[120];      /* why the workers are where they are, one line */
    int32_t worker_numa[64];  /* NUMA node of the worker's CPU, -1: not pinned, or not known */
    char receive_memory[160]; /* of which pages the memory for receiving is, one line */
    /* the budget, all of it within memory_bytes_max: sessions x frames x bytes */
    uint64_t receive_bytes_max;
    uint64_t session_bytes;       /* for receiving, that each session has at least */
    uint64_t sessions_bytes;      /* and sessions_max of them */
    uint64_t sessions_bytes_full; /* the same at the default number of credits */
    /* limits of the system; UINT64_MAX: there is none */
    uint64_t cgroup_bytes;   /* memory of the cgroup */
    uint64_t files_max;      /* descriptors */
    uint64_t files;          /* of them open now */
    uint32_t memlock_exempt; /* 1: this process may lock memory above the limit */
    uint32_t huge_count;     /* of huge[] */
    sluice_huge_pages huge[32];
    char other_hosts[120]; /* how the device reaches other hosts, one line */
} sluice_node_info;
SLUICE_API int sluice_node_get_info(sluice_node *n, sluice_node_info *info);

/*
 * Whether library worker `worker` (0 ...) gets new sessions: 0, it does; 1: it does not, and keeps those that it has until
 * they end; SLUICE_DRAIN_MOVE: nor does it keep those that are up and can move (sluice_session_move()): each begins to move to a worker that is
 * not drained. A call with it again moves those that could not yet. When all workers are drained, dials fail with ELIMIT and peers are told BUSY. EINVAL:
 * there is no such worker.
 */
#define SLUICE_DRAIN_MOVE 2
SLUICE_API int sluice_worker_drain(sluice_node *n, uint32_t worker, int drain);
/*
 * How library worker `worker` waits, from now on: a sleeping worker is woken, and a spinning one notices
 * in its next loop iteration. SLUICE_IDLE_DEFAULT is what the node was opened with. EINVAL: there is no such
 * worker or policy.
 */
SLUICE_API int sluice_worker_set_idle(sluice_node *n, uint32_t worker, sluice_idle idle);

/* ---- sessions and listeners ------------------------------------------------------------------- */

/*
 * Listens at "host:port", "[v6]:port" or "*:port" (an optional "sluice://" in front is skipped; a
 * link-local address names its interface, as in "[fe80::1%eth0]:port");
 * port 0 picks one, see sluice_listener_port(). The host must be a local address of the device.
 * "*" and "[::]" are all addresses of IPv6 and of IPv4, "0.0.0.0" those of IPv4. Where the system has no IPv6 "*" is
 * those of IPv4; so it is with a NIC of iWARP, and "[::]" is there what the NIC makes of it.
 * Errors: EADDRESS (malformed, not local, in use: text says which), ELIMIT, EINVAL, EDEVICE (the
 * node's device was removed, or the system refused a call: os_errno), ENOMEM.
 *
 * A listener ends with sluice_unlisten(), for which no event comes, with its node, or with its device. If its
 * device is removed there is one SLUICE_CLOSED for it, with reason DEVICE_REMOVED, status EDEVICE, the link's arg,
 * and the listener's id as session.id, which is never that of a session: compare the two. It comes on the link's
 * loop (the first of several), or by its handler. The application must still call sluice_unlisten() for the handle.
 *
 * A node never uses a removed device again, not even when it is back: dials end with
 * DEVICE_REMOVED, listening and opening loops with EDEVICE, and the texts say that the node must be
 * closed and opened again.
 */
SLUICE_API SLUICE_CHECK int sluice_listen(sluice_node *n, const char *address,
                                          const sluice_link_options *o, sluice_listener *out,
                                          sluice_error *e);
/* The port a listener has; EDEVICE: its device was removed; ECLOSED: it was stopped. */
SLUICE_API int sluice_listener_port(sluice_listener l);
/* Stops listening. Sessions live on; requests not decided yet are refused. */
SLUICE_API void sluice_unlisten(sluice_listener l);

/*
 * Starts to connect and returns at once: SLUICE_UP or SLUICE_CLOSED follows. `address` is "host:port", or up to eight
 * of them with commas, "10.0.0.1:7471,10.0.1.1:7471,nas:7471", which are tried in that order until a listener answers: one
 * that refuses has answered. sluice_session_get_info() tells which it is (`peer`). Sends are accepted
 * only after SLUICE_UP. Host names are resolved by helper threads: names for which no name server answers
 * delay others if they are sixteen or more, and never one that is in /etc/hosts; a name among other addresses delays
 * those by 50 ms at most. The addresses of names are tried like those that were given, eight in all, some of each name:
 * the next one begins when one fails, or beside one whose host has not answered for 250 ms, and the first to answer gets
 * the one request of the dial. A listener that is busy, or does not answer, is asked again, at growing intervals with
 * jitter, until timeout_ns is over. So is one that answers, and then says that it is busy.
 *
 * SLUICE_WAIT: so is one that is not there (NO_LISTENER, NODE_CLOSED), whose host cannot be reached, or whose name has no
 * address, with pauses of up to 3 s. Names are looked up anew each time. With a timeout_ns of SLUICE_OFF the dial waits
 * until it is hung up. sluice_session_get_info() tells meanwhile how many tries there were and, in close_text, what
 * the last one met. It ends at once where waiting does not help: a listener that refuses, or is none of this library;
 * an address that leads to no device, or to another one. It also ends when a listener answers and is lost before
 * the session is up. Not together with SLUICE_ONCE.
 *
 * Errors: EADDRESS (malformed), ELIMIT, EINVAL. What is found out later is in the reason of SLUICE_CLOSED: that of the last try, or of the
 * last one that a later try might have cured.
 */
SLUICE_API SLUICE_CHECK int sluice_dial(sluice_node *n, const char *address,
                                        const sluice_link_options *o, sluice_session *out,
                                        sluice_error *e);

/*
 * The answers to SLUICE_CONNECT, during the event or later within timeout_ns. Accepting sets the
 * session's argument. Refusing carries a code of the application's own (0..65535) and a text of up
 * to 120 bytes to the peer, whose SLUICE_CLOSED has reason REFUSED and the code in `vendor`.
 * ECLOSED when the request is gone or was answered before.
 */
SLUICE_API int sluice_accept(sluice_session s, void *arg);
SLUICE_API int sluice_refuse(sluice_session s, uint16_t code, const char *text);

/*
 * Closes a session that either side began, in any state, any number of times. Returns at once; SLUICE_CLOSED comes when the
 * peer has all that was accepted, or grace_ns and up to 2 s later, whatever the peer does (5 s on InfiniBand and RoCE).
 *
 * From this call on nothing new is accepted from any thread: sends, requests, answers and puts return ECLOSED. Requests of the peer
 * that are not answered by then have the outcome EUNKNOWN there at once. What is not sent when grace_ns is over ends with ECLOSED, and
 * the peer is told. Bytes on their way to it then have half a second for each step of progress, within those 2 s; on InfiniBand and
 * RoCE, where a packet that was lost is sent again after the QP's timeout, twice that timeout more, within those 5 s.
 */
SLUICE_API void sluice_hangup(sluice_session s, uint64_t grace_ns);

/*
 * Moves a session with resume_ns on both sides to another loop of its node, which is polled; or to library
 * worker `worker`. Another connection is made before the first one is left: nothing is lost, doubled or out of order, and sends go
 * on meanwhile. SLUICE_MOVED is the first event on the new loop; handlers of the session never run on two threads at
 * once. Returns at once: 0, it begins, and MOVED follows, or nothing, where the connection cannot be made: then the session is where
 * it was. A connection that is lost on the way is a loss like any other, with SLUICE_DOWN. EAGAIN: it is moving already. EINVAL:
 * the loop is of another node, or is the session's; a worker for a session without a handler; the peer, or this side, does not resume.
 * ECLOSED: not up, closing or gone. ELIMIT, ENOMEM: as sluice_dial(). The other connection is made by the side that dialed; a
 * listener's session asks its peer for it. The loop it is on is polled until then, too, and gets back what it lends. Any thread.
 */
SLUICE_API int sluice_session_move(sluice_session s, sluice_loop *to);
SLUICE_API int sluice_session_move_worker(sluice_session s, uint32_t worker);

/* What carries a session. The software device has two transports, one for this host and one for other hosts. */
typedef enum sluice_transport {
    SLUICE_TRANSPORT_DEVICE,        /* an RDMA device; or not known: not connected yet */
    SLUICE_TRANSPORT_SHARED_MEMORY, /* shared memory of this host */
    SLUICE_TRANSPORT_TCP            /* iWARP over TCP, in user space */
} sluice_transport;

typedef struct sluice_session_info {
    size_t size;                /* set by the caller */
    char peer[64];              /* address of the peer; of a dial with several the one in use */
    uint64_t message_bytes_max; /* agreed with the peer */
    uint32_t eager_bytes;       /* largest message that travels in one frame */
    uint32_t credits;           /* frames the peer lets us have in flight */
    uint32_t close_code;        /* refusal code of the peer, after a refused dial */
    char close_text[124];  /* refusal text of the peer, or what went wrong: a line of its own. Of a
                              dial that is under way: what its last try met */
    uint32_t key_id;       /* key with which both sides authenticated themselves, or 0 */
    uint64_t keepalive_ns; /* interval agreed with the peer, 0 = off */
    uint32_t tries;        /* connection attempts of a dial, the first included */
    /* the stack's own values at the end, behind the reason; -1: it gave none */
    int32_t cm_event; /* enum rdma_cm_event_type */
    int32_t
        cm_status; /* status of that event: a negative errno, or the transport's reject reason */
    int32_t wc_status; /* enum ibv_wc_status of the completion that failed */
    /* as last published by the session's loop */
    uint32_t
        kept; /* messages of the peer that the application keeps; holds credits, see sluice_keep() */
    uint32_t granted;  /* frames the peer may send now */
    uint32_t requests; /* requests of this side without a reply */
    uint32_t shared;   /* 1 = it shares receives with other sessions */
    uint32_t waits;    /* SLUICE_WAITS_WINDOW ...: limits behind the next SLUICE_WRITABLE */
    uint32_t window_messages_used; /* accepted sends without outcome yet, of window_messages */
    uint64_t window_bytes_used;    /* and their bytes, of window_bytes */
    uint32_t transport;            /* sluice_transport: what carries it */
    uint32_t up;                   /* 1 = it has a connection; 0: it opens, is down, or ends */
    uint64_t resumed;              /* how often it got another one */
    uint64_t down_ns_total;        /* and for how long it had none before */
    uint64_t moved;                /* how often it moved to another loop */
} sluice_session_info;
/*
 * After SLUICE_EAGAIN on any thread: the limit that the call met. The loop clears the bit when the
 * SLUICE_WRITABLE is on its way. So the session's own thread finds it if it asks at once; another
 * thread may find no bit left, and should then try again. EAGAIN of sluice_alloc() sets
 * MEMORY too, in every session that will get the event.
 */
#define SLUICE_WAITS_WINDOW 1u   /* window_messages or window_bytes of the link: outcomes */
#define SLUICE_WAITS_REQUESTS 2u /* `requests` of the link: replies */
#define SLUICE_WAITS_MEMORY 4u   /* memory_bytes_max of the node: messages that are sent or freed */
/* Also answers inside the SLUICE_CLOSED event of the session; ECLOSED afterwards. */
SLUICE_API int sluice_session_get_info(sluice_session s, sluice_session_info *info);

/* ---- loops: my own thread ---------------------------------------------------------------------- */

/*
 * A loop is one progress engine and belongs to one thread at a time: the thread that calls
 * sluice_poll() on it. Sessions are put on it with the `loop` link option.
 *
 * When the node's device is removed, the library runs a loop that is not being polled for a
 * moment, so that the device can be closed; it calls no handler and loses nothing: the events
 * wait for the next poll. After that no loop can be opened: EDEVICE (see sluice_listen()).
 */
SLUICE_API SLUICE_CHECK int sluice_loop_open(sluice_node *n, sluice_loop **out, sluice_error *e);
/*
 * Makes progress and returns up to max events (sessions with a handler have it called instead).
 * Waits at most wait_ns when there is nothing: 0 returns at once, SLUICE_OFF waits for ever.
 * Returns the number of events or a negative status. When it returned 0 the loop's fd is armed.
 * A thread may be cancelled in it while it waits, see the head of this file.
 * Arming costs system calls, here and at the peer: a program that spins does not ask for the fd,
 * or spins inside this call with a wait_ns of some microseconds.
 */
SLUICE_API int sluice_poll(sluice_loop *l, sluice_event *events, int max, uint64_t wait_ns);
/* Level-triggered descriptor for epoll and its like: readable when sluice_poll() has work. */
SLUICE_API int sluice_fd(sluice_loop *l);
/* Makes the loop deliver SLUICE_WAKE. Safe in signal handlers. Wakes may be merged. */
SLUICE_API void sluice_wake(sluice_loop *l);
/*
 * How sluice_poll() waits on this loop, from now on: a call that is waiting changes to it at once, and
 * goes on waiting. SLUICE_IDLE_DEFAULT is what the node was opened with. From any thread, while the
 * loop is open. EINVAL: unknown policy; ECLOSED: the node is closed.
 */
SLUICE_API int sluice_loop_set_idle(sluice_loop *l, sluice_idle idle);
/* Only when no session is on it any more, else EINVAL; closing the node closes its loops. */
SLUICE_API int sluice_loop_close(sluice_loop *l);

/* ---- messages ---------------------------------------------------------------------------------- */

/*
 * A registered buffer of the node; never blocks. EMSGSIZE above message_bytes_max. The owner of a message is
 * the caller that allocated it, or that kept it with sluice_keep(), or to which a failed call left it.
 *
 * EAGAIN: the memory for sending is used up for now: try again after the next SLUICE_WRITABLE. (Memory for receiving is
 * apart.) The event comes when enough for the request may have come back, because messages were sent or freed by any
 * thread; if the caller itself holds all of the memory, when it frees enough. Every session that is up on the caller's loop gets one:
 * the loop that the thread polled last, or the worker whose handler it is in; of a thread that has none, the sessions of all loops
 * of the node. Another caller may be faster: then it is EAGAIN again, and another event follows.
 * The calls below that need memory for one session (sluice_send_copy(), sluice_send_pieces(), those of
 * memory.h) return EAGAIN likewise, and that session gets the event.
 * ENOMEM: no memory is in use that could come back: a limit of the node, or of the system, is too low.
 */
SLUICE_API SLUICE_CHECK int sluice_alloc(sluice_node *n, size_t bytes, sluice_msg **out);
SLUICE_API void sluice_free(sluice_msg *m);               /* NULL is allowed */
SLUICE_API void *sluice_data(const sluice_msg *m);        /* payload, 8-byte aligned at least */
SLUICE_API size_t sluice_size(const sluice_msg *m);       /* payload bytes */
SLUICE_API void sluice_trim(sluice_msg *m, size_t bytes); /* shrinks the payload, never grows it */
/*
 * A borrowed message becomes the caller's: to be freed or sent, by any thread, also after its session ended.
 *
 * Until then it holds one of the `credits` of the session it came by: who keeps `credits` - 2 of a peer's messages gets no more from
 * that peer, and every other session goes on as ever. It may be fewer where the node has no memory, or the device no room, for so
 * many, and a few more, for one frame can bring several small messages, and a large one holds the next credit that would
 * return. The bytes of large messages that are kept count besides: a peer has five eighths of receive_bytes_max.
 */
SLUICE_API void sluice_keep(sluice_msg *m);

/*
 * Sends a message. Messages of one session arrive whole, once and in the order accepted (per
 * sending thread). Never blocks. 0: taken, do not touch it again. EAGAIN: window full, one
 * SLUICE_WRITABLE follows; where a call can meet several limits, `waits` of sluice_session_get_info() tells
 * which it was. ECLOSED: not up, closing or gone. EMSGSIZE: above the agreed maximum.
 * EINVAL: the message belongs to another node. The outcome "sent" (status 0) means that the
 * peer's device acknowledged the message, with resume_ns that the peer's library has it. The peer's application gets it, unless the peer
 * hangs up, or the session ends before a large message in front of it is done: messages are delivered in order, outcomes as they are known.
 * A message borrowed from an event may be sent on, and so may a kept one: ENOMEM if no other buffer can
 * replace it among the posted receives, or if the peer it is of has five eighths of receive_bytes_max in such
 * messages, kept or not taken. (If a thread other than the loop's sends it on within its own session,
 * the call takes it even so: the credit returns when there is a buffer.)
 */
SLUICE_API SLUICE_CHECK int sluice_send(sluice_session s, sluice_msg *m,
                                        const sluice_send_options *o);
/* sluice_send() from plain memory: allocates, copies, sends. EAGAIN and ENOMEM also for want of memory. */
SLUICE_API int sluice_send_copy(sluice_session s, const void *data, size_t bytes,
                                const sluice_send_options *o);

/*
 * ---- requests ----------------------------------------------------------------------------------
 *
 * A request is a message with exactly one answer. Many may be in flight (`requests` of the link), and
 * answers come in any order. A request reserves the room in the window for its answer: sluice_reply() never
 * meets a full window. Requests and messages of a session are delivered in the order they were sent;
 * answers are not in that order.
 */

/*
 * Sends a request. As sluice_send(), but the outcome is always reported, by one SLUICE_REPLY with o->tag:
 * status 0 and the reply; EREJECTED and a code (sluice_reply_error()); ETIMEDOUT; ECANCELLED; ECLOSED
 * (it never left); EUNKNOWN (the peer was lost or hung up, it may have been carried out); ENOMEM (the peer had no
 * memory to take it); EMSGSIZE (it is larger than the peer will ever have memory for). The deadline travels with
 * the request as the time that is left, so that the peer can leave out dead work; a reply that comes after the
 * outcome is dropped. EAGAIN: window full or `requests` in flight; one WRITABLE follows when a quarter of that window, or of
 * `requests`, is free. A request counts against the window until its outcome, and against `requests` until the
 * peer has answered, even if the outcome was reported before. ENOMEM: no memory for the table of
 * requests, at the first one. Any thread.
 */
SLUICE_API SLUICE_CHECK int sluice_request(sluice_session s, sluice_msg *m,
                                           const sluice_send_options *o);
/*
 * Answers the request `token` of this session, once, now or later, from any thread. 0: taken, even
 * if the requester no longer waits for the answer. It never returns EAGAIN, and a reply has no outcome. The
 * request's own message may be the reply. EINVAL: there is no such request, or it was answered (of
 * several threads that try, one gets 0), or the message is not the caller's. ECLOSED: the session ended
 * or was hung up. EMSGSIZE: above the agreed maximum. In all these cases the caller still owns the message,
 * and except for ECLOSED the request must still be answered.
 */
SLUICE_API SLUICE_CHECK int sluice_reply(sluice_session s, uint64_t token, sluice_msg *m);
/*
 * sluice_reply() with options (NULL: none): SLUICE_MORE, if another answer follows at once, so that they leave
 * together; if none follows, the answer leaves at the next poll. A tag or a deadline is EINVAL: a reply
 * has no outcome, and never expires.
 */
SLUICE_API SLUICE_CHECK int sluice_reply_with(sluice_session s, uint64_t token, sluice_msg *m,
                                              const sluice_send_options *o);
/*
 * Answers without a message: the requester's REPLY has status EREJECTED and `code` in vendor, 0 to
 * 2^32 - 257. Needs no memory; else as sluice_reply().
 */
SLUICE_API int sluice_reply_error(sluice_session s, uint64_t token, uint32_t code);
/*
 * Whether the requester still waits for the answer: 1, or 0 when it gave up (cancelled, or its
 * deadline passed). The request must be answered all the same. EINVAL, ECLOSED: as sluice_reply(). Works
 * for requests of sessions on the calling thread's loop; for others EINVAL.
 */
SLUICE_API int sluice_request_wanted(sluice_session s, uint64_t token);
/*
 * Gives up every request of this side with this tag that was accepted before. Each still has one outcome:
 * ECANCELLED, or the reply if that was first. The peer is told, and leaves out work that it has not
 * begun. Any thread; from one that does not own the session's loop it takes effect one or two loop iterations
 * later, and up to 256 calls may wait for that: a call above them does nothing.
 */
SLUICE_API void sluice_cancel(sluice_session s, uint64_t tag);

/* ---- small things ------------------------------------------------------------------------------ */

SLUICE_API uint64_t sluice_now(void);                  /* CLOCK_MONOTONIC, nanoseconds */
SLUICE_API const char *sluice_strerror(int status);    /* never NULL */
SLUICE_API const char *sluice_reason_text(int reason); /* never NULL */
SLUICE_API const char *sluice_event_name(int type);    /* never NULL */
SLUICE_API uint32_t sluice_version(void);              /* major << 16 | minor << 8 | patch */

#ifdef __cplusplus
}
#endif
#endif
