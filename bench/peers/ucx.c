/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ucx.c - round trips over UCX with DEPTH of them on their way: what ucx_perftest does not measure. Each is a tagged
 * message that the other process sends back. Which transport is used is said by the environment (UCX_TLS).
 *
 *   peer-ucx trips SIZE COUNT DEPTH CPU_A CPU_B
 */
#include "peer.h"

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

static void open_ucx(int sock) {
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
    const ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                .address = (ucp_address_t *)(void *)theirs};
    check(ucp_ep_create(worker, &to, &ep), "endpoint");
    ucp_worker_release_address(worker, address);
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

int main(int argc, char **argv) {
    uint64_t count = argc == 7 ? strtoull(argv[3], NULL, 10) : 0;
    unsigned depth = argc == 7 ? (unsigned)atoi(argv[4]) : 0;
    size = argc == 7 ? strtoul(argv[2], NULL, 10) : 0;
    if (argc != 7 || strcmp(argv[1], "trips") != 0 || size < 1 || size > SIZE_MAX_UCX ||
        depth < 1 || depth > DEPTH_MAX || count < depth) {
        fprintf(stderr, "usage: peer-ucx trips SIZE COUNT DEPTH CPU_A CPU_B\n");
        return 2;
    }
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        peer_die("socketpair");
    pid_t child = fork();
    if (child < 0)
        peer_die("fork");
    bool server = child == 0;
    close(pair[server]);
    peer_pin(atoi(argv[server ? 5 : 6]));
    open_ucx(pair[!server]);
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
