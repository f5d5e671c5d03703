/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_address_test.c - binding, ports and their conflicts, resolving, options, getaddrinfo.
 */
#include "support/child.h"
#include "soft/cm/addr.h"
#include "support/softcm.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/wait.h>

static struct rdma_event_channel *channel;

static int setup(void **state) {
    (void)state;
    channel = soft_create_event_channel();
    return channel ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    soft_destroy_event_channel(channel);
    return 0;
}

static int bind4(struct rdma_cm_id *id, const char *text, uint16_t port) {
    struct sockaddr_in addr = softcm_in(text, port);
    return soft_bind_addr(id, (struct sockaddr *)&addr);
}

static int bind6(struct rdma_cm_id *id, const char *text, uint16_t port) {
    struct sockaddr_in6 addr = softcm_in6(text, port);
    return soft_bind_addr(id, (struct sockaddr *)&addr);
}

static uint16_t port_of(struct rdma_cm_id *id) {
    return ntohs(soft_get_src_port(id));
}

static void set_flag(struct rdma_cm_id *id, int name, int value) {
    assert_int_equal(soft_set_option(id, RDMA_OPTION_ID, name, &value, sizeof value), 0);
}

/* ---- bind_addr ------------------------------------------------------------------------------------- */

/* First: it forks, before any thread. */
TEST(privileged_port_needs_privilege) {
    if (geteuid() != 0)
        skip();
    pid_t child = child_fork(); /* nothing of the device is used by this process yet or ever */
    assert_true(child >= 0);
    if (!child) {
        if (setuid(65534))
            _exit(9);
        struct rdma_event_channel *own = soft_create_event_channel();
        struct rdma_cm_id *id;
        struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(1)};
        if (!own || soft_create_id(own, &id, NULL, RDMA_PS_TCP))
            _exit(8);
        _exit(soft_bind_addr(id, (struct sockaddr *)&addr) == -1 && errno == EACCES ? 0 : 7);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

#define CHANNEL_TEST(name) TEST_WITH(setup, teardown, name)

CHANNEL_TEST(every_local_address_belongs_to_the_device) {
    struct ifaddrs *list;
    assert_int_equal(getifaddrs(&list), 0);
    int seen = 0;
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        if (!one->ifa_addr ||
            (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
            continue;
        struct rdma_cm_id *id = ct_id(channel);
        assert_int_equal(soft_bind_addr(id, one->ifa_addr), 0);
        assert_non_null(id->verbs);
        soft_destroy_id(id);
        seen++;
    }
    freeifaddrs(list);
    assert_true(seen > 0);
    struct rdma_cm_id *id = ct_id(channel);
    assert_int_equal(bind4(id, "127.77.66.55", 0), 0); /* the whole of 127/8 */
    soft_destroy_id(id);
}

/* A link-local address is of one interface: bound there, not on another, and nowhere without a zone. */
CHANNEL_TEST(a_link_local_address_needs_its_zone) {
    struct ifaddrs *list;
    unsigned seen = 0;
    assert_int_equal(getifaddrs(&list), 0);
    for (struct ifaddrs *one = list; one; one = one->ifa_next) {
        struct sockaddr_in6 addr;
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET6)
            continue;
        memcpy(&addr, one->ifa_addr, sizeof addr);
        if (!IN6_IS_ADDR_LINKLOCAL(&addr.sin6_addr))
            continue;
        struct rdma_cm_id *id = ct_id(channel);
        uint32_t zone = addr.sin6_scope_id;
        addr.sin6_scope_id = 0;
        assert_fails(soft_bind_addr(id, (struct sockaddr *)&addr), EINVAL);
        addr.sin6_scope_id = if_nametoindex("lo");
        assert_fails(soft_bind_addr(id, (struct sockaddr *)&addr), EADDRNOTAVAIL);
        addr.sin6_scope_id = zone;
        assert_int_equal(soft_bind_addr(id, (struct sockaddr *)&addr), 0);
        soft_destroy_id(id);
        seen++;
    }
    freeifaddrs(list);
    if (seen == 0)
        skip(); /* no interface has one */
}

/* ---- conflicts ------------------------------------------------------------------------------------- */

CHANNEL_TEST(wildcard_clash_is_eaddrnotavail) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel);
    assert_int_equal(bind4(a, "0.0.0.0", 0), 0);
    assert_fails(bind4(b, "127.0.0.1", port_of(a)), EADDRNOTAVAIL);
    assert_fails(bind4(b, "0.0.0.0", port_of(a)), EADDRNOTAVAIL);
    assert_fails(bind6(b, "::", port_of(a)), EADDRNOTAVAIL); /* both families, by default */
    assert_fails(bind6(b, "::1", port_of(a)), EADDRNOTAVAIL);
    soft_destroy_id(a);
    assert_int_equal(bind4(b, "127.0.0.1", 0), 0);
    a = ct_id(channel);
    assert_fails(bind4(a, "0.0.0.0", port_of(b)), EADDRNOTAVAIL);
    soft_destroy_id(a);
    soft_destroy_id(b);
}

CHANNEL_TEST(afonly_lets_both_families_have_a_port) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel);
    assert_int_equal(bind4(a, "0.0.0.0", 0), 0);
    set_flag(b, RDMA_OPTION_ID_AFONLY, 1);
    assert_int_equal(bind6(b, "::", port_of(a)), 0);
    assert_int_equal(soft_listen(a, 1), 0);
    assert_int_equal(soft_listen(b, 1), 0);
    soft_destroy_id(a);
    soft_destroy_id(b);
}

/* ---- listen ------------------------------------------------------------------------------------------ */

CHANNEL_TEST(backlog_is_clamped) {
    const int asked[] = {0, -5, 1, 1024, 1025};
    const unsigned got[] = {1024, 1024, 1, 1024, 1024};
    for (int i = 0; i < 5; i++) {
        struct rdma_cm_id *id = ct_id(channel);
        ct_listen(id, asked[i]);
        assert_int_equal(soft_cm_id_of(id)->backlog, got[i]);
        soft_destroy_id(id);
    }
}

/* ---- resolving --------------------------------------------------------------------------------------- */

CHANNEL_TEST(resolve_addr_fills_the_route) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
    assert_non_null(id->verbs);
    assert_non_null(id->pd);
    assert_int_equal(id->port_num, 1);
    assert_int_equal(ntohs(soft_get_dst_port(id)), 4711);
    assert_true(port_of(id) != 0);
    assert_int_equal(id->route.addr.src_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    static const uint8_t mapped[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};
    assert_memory_equal(id->route.addr.addr.ibaddr.dgid.raw, mapped, 16);
    assert_memory_equal(id->route.addr.addr.ibaddr.sgid.raw, mapped, 16);
    assert_int_equal(soft_resolve_route(id, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    assert_int_equal(id->route.num_paths, 1);
    assert_memory_equal(id->route.path_rec->dgid.raw, mapped, 16);
    soft_destroy_id(id);
}

CHANNEL_TEST(resolve_addr_of_another_host_is_an_addr_error) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = softcm_in("203.0.113.77", 4711);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ADDR_ERROR), -EREMOTE);
    assert_null(id->verbs);
    ct_resolve(id, 4711); /* the same id may try again */
    soft_destroy_id(id);
}

CHANNEL_TEST(a_source_of_the_other_family_is_einval) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    struct sockaddr_in6 other = softcm_in6("::1", 0);
    assert_fails(soft_resolve_addr(id, (struct sockaddr *)&other, (struct sockaddr *)&dst, 1000),
                 EINVAL);
    ct_resolve(id, 4711); /* the kernel leaves it bound to the source */
    soft_destroy_id(id);
    id = ct_id(channel);
    assert_int_equal(bind6(id, "::1", 0), 0);
    assert_fails(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), EINVAL);
    soft_destroy_id(id);
}

CHANNEL_TEST(resolve_keeps_what_was_bound) {
    struct rdma_cm_id *id = ct_id(channel);
    assert_int_equal(bind4(id, "127.0.0.5", 0), 0);
    uint16_t port = port_of(id);
    ct_resolve(id, 4711);
    assert_int_equal(port_of(id), port);
    assert_int_equal(id->route.addr.src_sin.sin_addr.s_addr, inet_addr("127.0.0.5"));
    soft_destroy_id(id);
    id = ct_id(channel);
    assert_int_equal(bind4(id, "0.0.0.0", 0), 0);
    port = port_of(id);
    ct_resolve(id, 4711);
    assert_int_equal(port_of(id), port);
    assert_int_equal(id->route.addr.src_sin.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    soft_destroy_id(id);
}

CHANNEL_TEST(connecting_ids_get_different_source_ports) {
    struct rdma_cm_id *a = ct_id(channel), *b = ct_id(channel);
    ct_resolve(a, 4711);
    ct_resolve(b, 4711);
    assert_int_not_equal(port_of(a), port_of(b));
    soft_destroy_id(a);
    soft_destroy_id(b);
}

/* ---- options ----------------------------------------------------------------------------------------- */

CHANNEL_TEST(an_option_without_a_value_is_einval) {
    struct rdma_cm_id *id = ct_id(channel);
    assert_fails(soft_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EINVAL);
    soft_destroy_id(id);
}

CHANNEL_TEST(ib_path_resolves_the_route) {
    struct rdma_cm_id *id = ct_id(channel);
    struct sockaddr_in dst = softcm_in("127.0.0.1", 4711);
    struct ibv_path_data path = {.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY |
                                          IBV_PATH_FLAG_BIDIRECTIONAL};
    struct ibv_path_data wrong = {.flags = IBV_PATH_FLAG_ALTERNATE};
    assert_fails(soft_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path),
                 EINVAL);
    assert_int_equal(soft_resolve_addr(id, NULL, (struct sockaddr *)&dst, 1000), 0);
    ct_take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_fails(soft_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 3), EINVAL);
    assert_fails(soft_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 0), EINVAL);
    assert_fails(soft_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &wrong, sizeof wrong),
                 EINVAL);
    assert_int_equal(soft_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path),
                     0);
    assert_int_equal(ct_take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
    soft_destroy_id(id);
}

CHANNEL_TEST(ece_is_not_supported) {
    struct rdma_cm_id *id = ct_id(channel);
    struct ibv_ece ece = {0};
    assert_fails(soft_set_local_ece(id, &ece), EOPNOTSUPP);
    assert_fails(soft_get_remote_ece(id, &ece), EOPNOTSUPP);
    assert_fails(soft_set_local_ece(id, NULL), EINVAL);
    soft_destroy_id(id);
}

/* ---- getaddrinfo -------------------------------------------------------------------------------------- */

CHANNEL_TEST(getaddrinfo_of_a_server_and_a_client) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *res;
    assert_int_equal(soft_getaddrinfo("127.0.0.1", "4711", &hints, &res), 0);
    assert_int_equal(res->ai_qp_type, IBV_QPT_RC);
    assert_int_equal(res->ai_port_space, RDMA_PS_TCP);
    assert_non_null(res->ai_src_addr);
    assert_null(res->ai_dst_addr);
    assert_int_equal(((struct sockaddr_in *)res->ai_src_addr)->sin_port, htons(4711));
    soft_freeaddrinfo(res);
    hints.ai_flags = RAI_NUMERICHOST;
    assert_int_equal(soft_getaddrinfo("127.0.0.1", "4711", &hints, &res), 0);
    assert_non_null(res->ai_dst_addr);
    assert_int_equal(res->ai_dst_len, sizeof(struct sockaddr_in));
    soft_freeaddrinfo(res);
    hints = (struct rdma_addrinfo){.ai_port_space = RDMA_PS_UDP, .ai_flags = RAI_NUMERICHOST};
    assert_int_equal(soft_getaddrinfo("127.0.0.1", "4711", &hints, &res), 0);
    assert_int_equal(res->ai_qp_type, IBV_QPT_UD);
    soft_freeaddrinfo(res);
}

/* Who asks so tells others the address; a server asks for its service, too, and a number is what it says. */
CHANNEL_TEST(getaddrinfo_of_a_name_of_this_host_is_an_address_that_others_reach) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_family = AF_INET}, *res;
    struct sockaddr_in loopback = softcm_in("127.0.0.1", 0);
    struct sockaddr_storage outside;
    bool elsewhere = soft_cm_addr_outside(&outside, AF_INET);
    const struct {
        const char *node, *service;
        bool told;
    } asked[] = {{"localhost", NULL, true}, {"localhost", "0", false}, {"127.0.0.1", NULL, false}};
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++) {
        assert_int_equal(soft_getaddrinfo(asked[i].node, asked[i].service, &hints, &res), 0);
        const struct sockaddr *want =
            elsewhere && asked[i].told ? (struct sockaddr *)&outside : (struct sockaddr *)&loopback;
        assert_true(soft_cm_addr_equal(res->ai_src_addr, want));
        assert_int_equal(soft_cm_addr_port(res->ai_src_addr), 0);
        soft_freeaddrinfo(res);
    }
}

CHANNEL_TEST(getaddrinfo_without_names_copies_the_hints) {
    struct sockaddr_in src = softcm_in("127.0.0.1", 1), dst = softcm_in("127.0.0.2", 2);
    struct rdma_addrinfo *res, hints = {.ai_port_space = RDMA_PS_TCP,
                                        .ai_src_addr = (struct sockaddr *)&src,
                                        .ai_src_len = sizeof src,
                                        .ai_dst_addr = (struct sockaddr *)&dst,
                                        .ai_dst_len = sizeof dst};
    assert_int_equal(soft_getaddrinfo(NULL, NULL, &hints, &res), 0);
    assert_memory_equal(res->ai_src_addr, &src, sizeof src);
    assert_memory_equal(res->ai_dst_addr, &dst, sizeof dst);
    assert_ptr_not_equal(res->ai_dst_addr, &dst);
    soft_freeaddrinfo(res);
}

CHANNEL_TEST(getaddrinfo_errors) {
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST}, *res = NULL;
    assert_fails(soft_getaddrinfo(NULL, NULL, NULL, &res), EINVAL);
    assert_int_equal(soft_getaddrinfo("no address", "4711", &hints, &res), EAI_NONAME);
    assert_null(res);
}

CHANNEL_TEST(resolve_addrinfo_reports_by_event) {
    struct rdma_cm_id *id = ct_id(channel);
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST}, *res;
    assert_fails(soft_query_addrinfo(id, &res), ENOENT);
    assert_int_equal(soft_resolve_addrinfo(id, "127.0.0.1", "4711", &hints), 0);
    assert_fails(soft_resolve_addrinfo(id, "127.0.0.1", "4711", &hints), EBUSY);
    assert_int_equal(ct_take(channel, SOFT_CM_EVENT_ADDRINFO_RESOLVED), 0);
    assert_int_equal(soft_query_addrinfo(id, &res), 0);
    soft_freeaddrinfo(res);
    assert_int_equal(soft_resolve_addrinfo(id, "no address", "4711", &hints), 0);
    assert_int_equal(ct_take(channel, SOFT_CM_EVENT_ADDRINFO_ERROR), ENOENT); /* positive */
    soft_destroy_id(id);
}

CHANNEL_TEST(get_devices_returns_the_device) {
    int count = 0;
    struct ibv_context **list = soft_get_devices(&count);
    assert_non_null(list);
    assert_int_equal(count, 1);
    assert_string_equal(soft_get_device_name(list[0]->device), SOFT_DEVICE_NAME);
    assert_null(list[1]);
    soft_free_devices(list);
}

int main(void) {
    softcm_start();
    return tests_run(NULL, NULL);
}
