/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * names_test.c - names through the kernel's rdma_cm, where librdmacm (60) and the kernel (6.18) can: each
 * lookup has its ADDRINFO_RESOLVED, and what comes of the dial is what comes of it without rdma_cm. Where
 * they cannot, no such event comes and the dials end alike. links: static (the addresses a dial has tried,
 * and a node without these calls)
 */
#include "support/guest.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <sys/utsname.h>

#include "core/session_table.h"
#include "fabric/fabric.h"
#include "node/node.h"

#define ONE_HOST "one.of.rxe"
#define TWO_HOST "two.of.rxe"
#define NO_HOST                                                                                    \
    "nobody.of.rxe" /* no name server is reached from the guest, nor is it in its list */
#define ALSO_HOST "10.77.0.7"

static bool able;

static int find_out(void **state) {
    struct utsname name;
    unsigned major = 0, minor = 0;
    must(uname(&name) == 0 && sscanf(name.release, "%u.%u", &major, &minor) == 2);
    able = (major > 6 || (major == 6 && minor >= 18)) &&
           dlsym(RTLD_DEFAULT, "rdma_resolve_addrinfo") != NULL;
    print_message("Linux %s: names %s through rdma_cm\n", name.release, able ? "go" : "do not go");
    /* First: outside of the guest there is no such setting, and nothing is left behind. */
    must(command("ip", "addr", "add", ALSO_HOST "/24", "dev", guest_setting("KERNEL_NET_A")) == 0);
    FILE *hosts = fopen("/etc/hosts", "a"); /* the guest's own */
    must(hosts);
    must(fprintf(hosts, "%s %s\n%s %s\n%s %s\n", it_host(), ONE_HOST, ALSO_HOST, TWO_HOST,
                 it_host(), TWO_HOST) > 0);
    must(fclose(hosts) == 0);
    return guest_warm_up(state);
}

static int clean_up(void **state) {
    (void)state;
    must(command("ip", "addr", "del", ALSO_HOST "/24", "dev", guest_setting("KERNEL_NET_A")) == 0);
    must(command("sed", "-i", "/ [a-z]*\\.of\\.rxe$/d", "/etc/hosts") == 0);
    return 0;
}

/* ---- what comes of a dial ------------------------------------------------------------------------------ */

struct outcome {
    sluice_event_type type;
    sluice_reason reason;
    char text[124];
    unsigned count;
    char addresses[CM_CANDIDATES][64];
};

static uint64_t events(const struct side *side, unsigned type) {
    return atomic_load(&side->node->stats.page->cm.events[type]);
}

/* Dials the name at the listener's port; of addresses that do not answer there a session comes up all the same. */
static struct outcome dial_name(struct couple *c, const char *name) {
    struct outcome out = {.count = 0};
    guest_dial(&c->b, name, c->port, NULL);
    struct note note;
    must(side_next(&c->b, &note, LIMIT_NS));
    out.type = note.event.type;
    out.reason = note.event.reason;
    snprintf(out.text, sizeof out.text, "%s", note.info.close_text);
    const struct cm_conn *conn = &session_table_at(note.event.session.id)->connection->cm;
    out.count = note.event.reason == SLUICE_REASON_ADDRESS ? 0 : conn->candidate_count;
    for (unsigned i = 0; i < out.count; i++)
        must(inet_ntop(conn->candidates[i].any.sa_family, &conn->candidates[i].v4.sin_addr,
                       out.addresses[i], sizeof out.addresses[i]));
    if (out.type == SLUICE_UP) {
        side_expect(&c->a, SLUICE_UP);
        sluice_hangup(note.event.session, 0);
        side_expect_closed(&c->b, SLUICE_REASON_LOCAL_CLOSE);
        side_expect_closed(&c->a, SLUICE_REASON_PEER_CLOSE);
    }
    return out;
}

static const char *const names[] = {ONE_HOST, TWO_HOST, NO_HOST};
enum { NAMES = sizeof names / sizeof *names, FOUND = 2 };

/* A node of which nobody has dialed anything yet is told that there are no such calls. */
static void without_rdma_cm(struct side *side) {
    static struct fabric_ops ops;
    ops = *side->node->fabric;
    ops.resolve_addrinfo = NULL;
    side->node->fabric = &ops;
}

static void dial_all(bool without, bool handlers, struct outcome out[NAMES]) {
    struct couple c;
    couple_open(&c, handlers, NULL);
    if (without)
        without_rdma_cm(&c.b);
    c.port = side_listen(&c.a, NULL, &c.listener);
    for (unsigned i = 0; i < NAMES; i++)
        out[i] = dial_name(&c, names[i]);
    assert_int_equal(events(&c.b, FABRIC_CM_ADDRINFO_RESOLVED), able && !without ? FOUND : 0);
    assert_int_equal(events(&c.b, FABRIC_CM_ADDRINFO_ERROR), 0); /* the call fails instead */
    couple_close(&c);
}

LEVEL_TEST(a_dial_by_name_ends_the_same_way_with_and_without_rdma_cm, "polled", 0) {
    struct outcome with[NAMES], without[NAMES];
    dial_all(false, handlers_of(state), with);
    dial_all(true, handlers_of(state), without);
    for (unsigned i = 0; i < NAMES; i++) {
        print_message("%s: %s, %u addresses, %s\n", names[i], sluice_event_name(with[i].type),
                      with[i].count, with[i].text);
        assert_int_equal(with[i].type, without[i].type);
        assert_int_equal(with[i].reason, without[i].reason);
        assert_string_equal(with[i].text, without[i].text);
        assert_int_equal(with[i].count, without[i].count);
        assert_memory_equal(with[i].addresses, without[i].addresses, sizeof with[i].addresses);
    }
    assert_int_equal(with[0].type, SLUICE_UP);
    assert_int_equal(with[1].type, SLUICE_UP);
    assert_int_equal(with[1].count, 2);
    assert_int_equal(with[2].reason, SLUICE_REASON_ADDRESS);
}

/* A hundred lookups, half of them cancelled, and a node that is closed while some are under way. */
static void lookups_leave_nothing(void **state) {
    struct couple c;
    couple_open(&c, handlers_of(state), NULL);
    c.port = side_listen(&c.a, NULL, &c.listener);
    for (unsigned i = 0; i < 100; i++) {
        sluice_link_options link = side_link(&c.b, NULL);
        sluice_session session;
        sluice_error e = {0};
        struct note note;
        must(sluice_dial(c.b.node, ONE_HOST ":9", &link, &session, &e) == 0);
        if (i % 2)
            sluice_hangup(session, 0);
        if (i < 90) /* the last ones are the node's */
            must(side_next(&c.b, &note, LIMIT_NS) && note.event.type == SLUICE_CLOSED);
    }
    couple_close(&c);
}

TEST_CASES(LEVEL_CASE(lookups_leave_nothing, "polled", 0),
           LEVEL_CASE(lookups_leave_nothing, "handlers", 1));

int main(void) {
    return tests_run(find_out, clean_up);
}
