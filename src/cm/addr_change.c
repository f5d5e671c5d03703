/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * addr_change.c - ADDR_CHANGE: the network interface behind an id has another address than it had; UNREACHABLE of a
 * connection that is up: so has the peer's.
 *
 * rdma_get_cm_event(3) calls it a hint. The event does not say whether packets still come through, so a connection
 * that is established or in its handshake, and a listener, goes on: the device ends a session whose packets are not
 * acknowledged, and keepalive one that is silent. The log gets one warning for all ids that change together,
 * and a debug line for each id.
 *
 * UNREACHABLE comes to a dialer that is up when its kernel learns another link address of the peer's, as after a
 * fail-over there. It ends nothing in the kernel. Soft-RoCE sends each packet to where the peer is by then; a NIC
 * that goes on with the old address gets no acknowledgement, and ends the session by that. So it is a hint too.
 *
 * A dial that has not found its peer yet goes by an address and a route that may be no more. Before
 * anything was sent the try is given up, and the next one, with an id of its own, looks both up again.
 * A request that is on its way may still be answered: it has MOVED_NS left for that. The kernel would
 * repeat it for a minute along the way it was given.
 *
 * Owner: the CM thread.
 */
#include "cm/internal.h"
#include "core/context.h"

#define TOLD_NS 1000000000ull  /* between two warnings */
#define MOVED_NS 1000000000ull /* for the answer to a request that was sent before */

/* Whether it is the first for a while. */
static bool is_news(struct cm *cm, uint64_t *told_ns) {
    bool first = *told_ns == 0 || cm->now_ns - *told_ns >= TOLD_NS;
    if (first)
        *told_ns = cm->now_ns;
    return first;
}

static void tell(struct cm *cm, const char *what, const char *whose, const char *outcome) {
    if (is_news(cm, &cm->moved_ns))
        log_write(
            &cm->node->log, SLUICE_LOG_WARNING,
            "an address of %s changed (ADDR_CHANGE): sessions go on as far as the device does",
            cm->node->choice.device);
    log_write(&cm->node->log, SLUICE_LOG_DEBUG, "ADDR_CHANGE: %s%s: %s", what, whose, outcome);
}

/* The address or the route that a dial uses may be wrong now: tries again, at once or soon. */
static void reroute(struct cm *cm, struct cm_conn *conn) {
    stats_add(&cm->stats->address_changed, 1);
    if (conn->owner.state != CM_CONNECTING) {
        cm_try_failed(cm, conn, CM_HOPE_LATER, SLUICE_REASON_UNREACHABLE, 0,
                      "an address of this side changed before a request was sent");
        return;
    }
    uint64_t due = cm->now_ns + MOVED_NS;
    if (conn->step_ns == 0 || conn->step_ns > due)
        cm_watch_step(cm, conn, due);
}

void cm_on_addr_change(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    char address[64];
    (void)event;
    if (owner->state == CM_REMOVAL_WATCH) {
        tell(cm, "the device", "", "it is used on");
        return;
    }
    if (owner->listener) {
        cm_listener_address((struct cm_listener *)(void *)owner, address);
        tell(cm, "the listener at ", address, "it listens on");
        return;
    }
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    struct session *s = session_of_conn(conn);
    bool searching = owner->state == CM_RESOLVING_ADDR || owner->state == CM_RESOLVING_ROUTE ||
                     owner->state == CM_CREATING_QP || owner->state == CM_IN_LINE ||
                     owner->state == CM_CONNECTING;
    if (!searching) {
        atomic_store(&connection_of_conn(conn)->moved,
                     true); /* for a loop that is told no more than a flush */
        tell(cm, conn->passive ? "the session from " : "the session to ", s->peer.address,
             "it goes on as far as the device does");
    } else if (s->link_config.flags & SLUICE_ONCE) {
        tell(cm, "the dial to ", s->peer.address, "its one try goes on");
    } else {
        tell(cm, "the dial to ", s->peer.address, "the route is looked up again");
        reroute(cm, conn);
    }
}

/* A listener's id looks up no peer: for it the event means that the peer did not confirm. */
void cm_on_unreachable(struct cm *cm, struct cm_owner *owner, const struct cm_event *event) {
    struct cm_conn *conn = (struct cm_conn *)(void *)owner;
    if (conn->passive) {
        cm_on_lost(cm, owner, event);
        return;
    }
    const char *peer = session_of_conn(conn)->peer.address;
    if (is_news(cm, &cm->peer_moved_ns))
        log_write(&cm->node->log, SLUICE_LOG_WARNING,
                  "the network says that %s has another link address (UNREACHABLE)", peer);
    log_write(&cm->node->log, SLUICE_LOG_DEBUG,
              "UNREACHABLE: the session to %s: it goes on as far as the device does", peer);
}
