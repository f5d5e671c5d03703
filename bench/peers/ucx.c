/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ucx.c - round trips over UCX with DEPTH of them on their way: what ucx_perftest does not measure. Each is a tagged
 * message that the other process sends back. Which transport is used is said by the environment (UCX_TLS).
 *
 *   peer-ucx trips SIZE COUNT DEPTH CPU_A CPU_B
 *   peer-ucx many CONNECTIONS DEPTH SECONDS CPU_A CPU_B      many endpoints of one worker on either side: many.h
 */
#include "many.h"

#include <sys/socket.h>
#include <ucp/api/ucp.h>

#define DEPTH_MAX 1024
#define SIZE_MAX_UCX (1 << 20)

struct slot {
    uint8_t *data;
    struct slot *next;
};

static ucp_worker_h worker;
static ucp_ep_h ep;
static struct slot slots[DEPTH_MAX], *came; /* came: their message has arrived */
static size_t size;
static unsigned leaving; /* sends that are not complete */

static void check(ucs_status_t status, const char *what) {
    if (status == UCS_OK)
        return;
    fprintf(stderr, "peer-ucx: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}

static void arrived(struct slot *slot) {
    slot->next = came;
    came = slot;
}

static void on_receive(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                       void *slot) {
    check(status, "receive");
    if (info->length != size)
        peer_die("a message of another size came");
    ucp_request_free(request);
    arrived(slot);
}

static void take(struct slot *slot) {
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.recv = on_receive,
                                       .user_data = slot};
    ucs_status_ptr_t rc = ucp_tag_recv_nbx(worker, slot->data, size, 1, UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(rc))
        check(UCS_PTR_STATUS(rc), "receive");
    if (!rc)
        arrived(slot);
}

static void on_sent(void *request, ucs_status_t status, void *slot) {
    check(status, "send");
    ucp_request_free(request);
    leaving--;
    take(slot);
}

/* Sends the slot's message, and receives into it when that is done. */
static void give(struct slot *slot) {
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = on_sent,
                                       .user_data = slot};
    ucs_status_ptr_t rc = ucp_tag_send_nbx(ep, slot->data, size, 1, &param);
    if (UCS_PTR_IS_ERR(rc))
        check(UCS_PTR_STATUS(rc), "send");
    if (rc)
        leaving++;
    else
        take(slot);
}

static void swap(int sock, const void *mine, size_t bytes, void *theirs, size_t *their_bytes) {
    if (write(sock, mine, bytes) != (ssize_t)bytes)
        peer_die("the other process is gone");
    ssize_t n = read(sock, theirs, *their_bytes);
    if (n <= 0)
        peer_die("the other process is gone");
    *their_bytes = (size_t)n;
}

static ucp_address_t *swap_addresses(int sock) {
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG};
    const ucp_worker_params_t one = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                     .thread_mode = UCS_THREAD_MODE_SINGLE};
    static uint8_t theirs[65536];
    size_t bytes, room = sizeof theirs;
    ucp_context_h context;
    ucp_address_t *address;
    check(ucp_init(&params, NULL, &context), "init");
    check(ucp_worker_create(context, &one, &worker), "worker");
    check(ucp_worker_get_address(worker, &address, &bytes), "address");
    swap(sock, address, bytes, theirs, &room);
    ucp_worker_release_address(worker, address);
    return (ucp_address_t *)(void *)theirs;
}

static ucp_ep_h endpoint(const ucp_address_t *address) {
    const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                .address = address};
    ucp_ep_h made;
    check(ucp_ep_create(worker, &to, &made), "endpoint");
    return made;
}

/* Until `count` messages came; each is answered as long as fewer than `sends` were sent. */
static void exchange(uint64_t count, uint64_t sends) {
    for (uint64_t got = 0; got < count;) {
        ucp_worker_progress(worker);
        struct slot *slot = came;
        for (came = NULL; slot; got++) {
            struct slot *next = slot->next;
            if (sends > 0) {
                sends--;
                give(slot);
            }
            slot = next;
        }
    }
    while (leaving > 0)
        ucp_worker_progress(worker);
}

/* The transport may still have what was sent last. */
static void flush(int sock) {
    const ucp_request_param_t param = {0};
    ucs_status_ptr_t rc = ucp_ep_flush_nbx(ep, &param);
    while (UCS_PTR_IS_PTR(rc) && ucp_request_check_status(rc) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    char end;
    size_t one = 1;
    swap(sock, "e", 1, &end, &one);
}

/* ---- many -------------------------------------------------------------------------------------- */

#define ANSWER (UINT64_C(1) << 32) /* in the tag, beside the number of the endpoint */

static int pair[2];
static unsigned endpoints;
static ucp_ep_h *many_ep;

struct one { /* what a connection waits for, or what a server has room for */
    uint8_t data[MANY_BYTES];
    bool done;
};

static void open_many(int sock) {
    const ucp_address_t *address = swap_addresses(sock);
    many_ep = calloc(endpoints, sizeof *many_ep);
    for (unsigned i = 0; many_ep && i < endpoints; i++)
        many_ep[i] = endpoint(address);
    if (!many_ep)
        peer_die("no memory");
}

static void on_many_sent(void *request, ucs_status_t status, void *unused) {
    (void)unused;
    check(status, "send");
    ucp_request_free(request);
}

static void send_on(unsigned i, const void *data, size_t bytes, uint64_t tag) {
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                       .cb.send = on_many_sent};
    ucs_status_ptr_t rc = ucp_tag_send_nbx(many_ep[i], data, bytes, tag, &param);
    if (UCS_PTR_IS_ERR(rc))
        check(UCS_PTR_STATUS(rc), "send");
}

static void listen_for(struct one *one);

static void on_asked(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                     void *arg) {
    struct one *one = arg;
    uint64_t tag = info->sender_tag; /* of the request, which goes */
    check(status, "receive");
    ucp_request_free(request);
    send_on((unsigned)tag, one->data, MANY_BYTES, tag | ANSWER);
    listen_for(one);
}

/* What comes at once is answered, too. A small message is copied before its send returns. */
static void listen_for(struct one *one) {
    ucp_tag_recv_info_t info;
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                       UCP_OP_ATTR_FIELD_USER_DATA |
                                                       UCP_OP_ATTR_FIELD_RECV_INFO,
                                       .cb.recv = on_asked,
                                       .user_data = one,
                                       .recv_info.tag_info = &info};
    for (;;) {
        ucs_status_ptr_t rc = ucp_tag_recv_nbx(worker, one->data, MANY_BYTES, 0, 0, &param);
        if (UCS_PTR_IS_ERR(rc))
            check(UCS_PTR_STATUS(rc), "receive");
        if (rc)
            return;
        send_on((unsigned)info.sender_tag, one->data, MANY_BYTES, info.sender_tag | ANSWER);
    }
}

static void serve(const char *unused) {
    static struct one room[DEPTH_MAX];
    (void)unused;
    open_many(pair[0]);
    for (unsigned i = 0; i < DEPTH_MAX; i++)
        listen_for(&room[i]);
    for (;;)
        ucp_worker_progress(worker);
}

static struct one *waiting;

static void connect_all(const char *unused, unsigned count) {
    (void)unused;
    waiting = calloc(count, sizeof *waiting);
    if (!waiting)
        peer_die("no memory");
    open_many(pair[1]);
}

static void on_answered(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *one) {
    (void)info;
    check(status, "receive");
    ucp_request_free(request);
    ((struct one *)one)->done = true;
}

static void ask(unsigned i, const void *data, size_t bytes) {
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.recv = on_answered,
                                       .user_data = &waiting[i]};
    waiting[i].done = false;
    ucs_status_ptr_t rc =
        ucp_tag_recv_nbx(worker, waiting[i].data, MANY_BYTES, i | ANSWER, UINT64_MAX, &param);
    if (UCS_PTR_IS_ERR(rc))
        check(UCS_PTR_STATUS(rc), "receive");
    waiting[i].done = !rc;
    send_on(i, data, bytes, i);
}

static void await(unsigned i, size_t bytes) {
    (void)bytes;
    while (!waiting[i].done)
        ucp_worker_progress(worker);
}

static int many(int argc, char **argv) {
    static const struct peer_many peer = {"ucx", serve, connect_all, ask, await};
    endpoints = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        peer_die("socketpair");
    return many_main(&peer, argc, argv);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "many") == 0)
        return many(argc, argv);
    uint64_t count = argc == 7 ? strtoull(argv[3], NULL, 10) : 0;
    unsigned depth = argc == 7 ? (unsigned)atoi(argv[4]) : 0;
    size = argc == 7 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc != 7 || strcmp(argv[1], "trips") != 0 || size < 1 || size > SIZE_MAX_UCX ||
        depth < 1 || depth > DEPTH_MAX || count < depth) {
        fprintf(stderr, "usage: peer-ucx trips SIZE COUNT DEPTH CPU_A CPU_B\n");
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        peer_die("socketpair");
    pid_t child = fork();
    if (child < 0)
        peer_die("fork");
    bool server = child == 0;
    close(pair[server]);
    peer_pin(atoi(argv[server ? 5 : 6]));
    ep = endpoint(swap_addresses(pair[!server]));
    for (unsigned i = 0; i < depth; i++)
        if (!(slots[i].data = calloc(1, size)))
            peer_die("no memory");
    uint64_t start = peer_now();
    for (unsigned i = 0; i < depth; i++)
        (server ? take : give)(&slots[i]);
    exchange(count, server ? count : count - depth);
    double s = (double)(peer_now() - start) / 1e9;
    flush(pair[!server]);
    if (server)
        _exit(0);
    printf("{\"peer\":\"ucx\",\"size\":%zu,\"depth\":%u,\"requests_per_s\":%.1f}\n", size, depth,
           (double)count / s);
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}
