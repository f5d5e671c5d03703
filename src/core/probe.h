/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * probe.h - a byte that peers may READ, and one that the answers of peers may be written to.
 *
 * Where a completion says only that this side has sent something (fabric_traits.sent_is_local), a READ of the
 * peer's byte proves that the peer has all that was sent before. The values have no meaning: peers may read the one
 * byte and write the other as they like. A READ of no bytes would do by the specification; a busy Soft-iWARP answers it
 * with the bytes that it sent last.
 *
 * Owner: made with the device where sent_is_local is set, else by the CM thread before the first session that needs it;
 * ended with the device. Read by the loop of a session that has agreed on it.
 */
#ifndef CORE_PROBE_H
#define CORE_PROBE_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct sluice_node;

struct probe {
    uint8_t *memory; /* NULL: not needed on this device */
    struct ibv_mr *source, *sink;
};

/* 0, or errno. Harmless when repeated. */
int probe_open(struct sluice_node *n);
void probe_close(struct sluice_node *n);

#endif
