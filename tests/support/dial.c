/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* dial.c - see dial.h. */
#include "support/dial.h"
#include "support/name_server.h"

struct dialer dialer;

/* ---- its environment ------------------------------------------------------------------------- */

static uint64_t dialer_now(void *arg) {
    (void)arg;
    return dialer.now_ns;
}

static bool dialer_random(void *arg, void *out, size_t bytes) {
    if (bytes == sizeof dialer.spread)
        memcpy(out, &dialer.spread, bytes);
    else
        pair_random(arg, out, bytes);
    return true;
}

static int dialer_resolve(void *arg, const char *host, struct sockaddr_storage *out, unsigned max,
                          unsigned *count) {
    (void)arg, (void)host;
    dialer.lookups++;
    name_server_lookup(dialer.names_hang);
    for (*count = 0; *count < dialer.name_count && *count < max; ++*count)
        out[*count] = dialer.names[*count];
    return *count > 0 ? 0 : EAI_NONAME;
}

static const struct sluice_env dialer_env = {
    .now_ns = dialer_now, .random_bytes = dialer_random, .resolve = dialer_resolve};

/* ---- its device ------------------------------------------------------------------------------ */

struct fabric_ops dialer_ops;
struct fabric_fast dialer_fast;

void dialer_plan(const char *fault) {
    if (fault)
        fault_plan(fault);
    else
        fault_clear();
}

static int dialer_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst,
                               int ms) {
    unsigned i = dialer.tries++;
    if (i < DIALER_TRIES) {
        address_format(dst, dialer.tried[i]);
        dialer.times[i] = ms;
    }
    if (dialer.slow)
        dialer.now_ns += (uint64_t)(ms > dialer.early_ms ? ms - dialer.early_ms : 1) * 1000000;
    dialer_plan(i < dialer.scripted ? dialer.script[i] : dialer.always);
    return soft_resolve_addr(id, src, dst, ms);
}

static int dialer_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
    if (dialer.connects < DIALER_TRIES)
        assert_int_equal(private_data_req_decode(&dialer.reqs[dialer.connects], param->private_data,
                                                 param->private_data_len),
                         0);
    dialer.connects++;
    return soft_connect(id, param);
}

static int dialer_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
    enum ibv_qp_state state = attr->qp_state;
    int rc = soft_init_qp_attr(id, attr, mask);
    if (dialer.other_port != 0 && dialer.tries == dialer.other_port)
        attr->port_num = 2;
    if (rc == 0 && state == IBV_QPS_RTR && dialer.over > 0 && dialer.tries <= dialer.over) {
        errno = EINVAL;
        return -1;
    }
    return rc;
}

static struct ibv_qp *dialer_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    dialer.qps++;
    return soft_create_qp(pd, attr);
}

/* ---- the pair -------------------------------------------------------------------------------- */

void dialer_open(struct pair *p, const sluice_node_options *node, const sluice_link_options *link) {
    sluice_node_options o = *node;
    sluice_error e = {0};
    memset(p, 0, sizeof *p);
    memset(&dialer, 0, sizeof dialer);
    pair_clock = 0;
    dialer.now_ns = 1000000000000ull;
    pair_open_side(&p->a, node);
    o.size = sizeof o;
    o.device = "soft";
    o.workers = SLUICE_NO_WORKERS;
    if (node_open_env(&p->b.node, &o, &dialer_env, true, &e) != 0)
        fail_msg("%s", e.text);
    dialer_ops = *p->b.node->fabric;
    dialer_fast = *dialer_ops.fast;
    dialer_ops.fast = &dialer_fast;
    dialer_ops.resolve_addr = dialer_resolve_addr;
    dialer_ops.connect = dialer_connect;
    dialer_ops.init_qp_attr = dialer_init_qp_attr;
    dialer_ops.create_qp = dialer_create_qp;
    p->b.node->fabric = &dialer_ops;
    assert_int_equal(sluice_loop_open(p->b.node, &p->b.loop, &e), 0);
    pair_listen(p, link);
}

int dialer_opened(void **state) {
    static struct pair of_test;
    *state = &of_test;
    dialer_open(*state, PAIR_NODE(), PAIR_LINK());
    return 0;
}

void dialer_script(const char *const *script) {
    for (dialer.scripted = 0; script[dialer.scripted]; dialer.scripted++)
        dialer.script[dialer.scripted] = script[dialer.scripted];
}

void dialer_names(const char *const *names) {
    dialer.name_count = 0;
    memset(dialer.names, 0, sizeof dialer.names);
    for (; *names; names++) {
        union address *at = (union address *)(void *)&dialer.names[dialer.name_count++];
        bool six = strchr(*names, ':') != NULL;
        at->any.sa_family = six ? AF_INET6 : AF_INET;
        assert_int_equal(inet_pton(at->any.sa_family, *names,
                                   six ? (void *)&at->v6.sin6_addr : (void *)&at->v4.sin_addr),
                         1);
    }
}
