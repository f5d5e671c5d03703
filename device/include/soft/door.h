/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * door.h - the calls of one copy of the device as a table. A process can have two copies: the drop-in's, which it was
 * started with, and that of a library inside the program. Both would serve their own queue pairs only, so the library uses
 * the drop-in's: it finds this symbol, and in it the table.
 *
 * Constant data. Any thread.
 */
#ifndef SOFT_DOOR_H
#define SOFT_DOOR_H

#include <stdint.h>

#include "soft/soft.h"

/* Another release's table has another size; what a call takes is changed only with a new SOFT_DOOR_MARK. */
#define SOFT_CALLS(X)                                                                              \
    X(profile_name)                                                                                \
    X(get_device_list)                                                                             \
    X(free_device_list)                                                                            \
    X(get_device_name)                                                                             \
    X(open_device)                                                                                 \
    X(close_device)                                                                                \
    X(query_device)                                                                                \
    X(query_port)                                                                                  \
    X(query_gid)                                                                                   \
    X(get_async_event)                                                                             \
    X(ack_async_event)                                                                             \
    X(alloc_pd)                                                                                    \
    X(dealloc_pd)                                                                                  \
    X(reg_mr)                                                                                      \
    X(dereg_mr)                                                                                    \
    X(create_comp_channel)                                                                         \
    X(destroy_comp_channel)                                                                        \
    X(create_cq)                                                                                   \
    X(cq_any_order)                                                                                \
    X(destroy_cq)                                                                                  \
    X(get_cq_event)                                                                                \
    X(ack_cq_events)                                                                               \
    X(create_srq)                                                                                  \
    X(modify_srq)                                                                                  \
    X(query_srq)                                                                                   \
    X(destroy_srq)                                                                                 \
    X(srq_newest_first)                                                                            \
    X(create_qp)                                                                                   \
    X(modify_qp)                                                                                   \
    X(query_qp)                                                                                    \
    X(destroy_qp)                                                                                  \
    X(post_framed)                                                                                 \
    X(post_words)                                                                                  \
    X(share)                                                                                       \
    X(fetch)                                                                                       \
    X(sleep_begin)                                                                                 \
    X(sleep_end)                                                                                   \
    X(sleep_unfinished)                                                                            \
    X(peer_number)                                                                                 \
    X(over_tcp)                                                                                    \
    X(peer_is_plain)                                                                               \
    X(mem_alloc)                                                                                   \
    X(mem_alloc_huge)                                                                              \
    X(mem_free)                                                                                    \
    X(create_event_channel)                                                                        \
    X(destroy_event_channel)                                                                       \
    X(create_id)                                                                                   \
    X(destroy_id)                                                                                  \
    X(bind_addr)                                                                                   \
    X(resolve_addr)                                                                                \
    X(resolve_route)                                                                               \
    X(connect)                                                                                     \
    X(listen)                                                                                      \
    X(accept)                                                                                      \
    X(reject)                                                                                      \
    X(establish)                                                                                   \
    X(notify)                                                                                      \
    X(disconnect)                                                                                  \
    X(init_qp_attr)                                                                                \
    X(get_cm_event)                                                                                \
    X(ack_cm_event)                                                                                \
    X(get_src_port)                                                                                \
    X(set_option)                                                                                  \
    X(write_cm_event)                                                                              \
    X(resolve_addrinfo)                                                                            \
    X(query_addrinfo)                                                                              \
    X(freeaddrinfo)                                                                                \
    X(cm_net_text)                                                                                 \
    X(cm_set_net)                                                                                  \
    X(cm_reach)

struct soft_calls {
#define SOFT_CALL(name) __typeof__(soft_##name) *name;
    SOFT_CALLS(SOFT_CALL)
#undef SOFT_CALL
};

/* This copy's. */
extern const struct soft_calls soft_calls;

#define SOFT_DOOR_MARK 0x736c7563646f6f72ull
#define SOFT_DOOR_SYMBOL "sluice_soft_door"

struct soft_door {
    uint64_t mark;
    uint64_t size; /* of the table: another release's is not used */
    const struct soft_calls *calls;
};

#endif
