/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * softcm_iwarp.h - two ends of a connection as on iWARP, in one process, queue pairs not on the ids.
 */
#ifndef TESTS_SUPPORT_SOFTCM_IWARP_H
#define TESTS_SUPPORT_SOFTCM_IWARP_H

#include "support/softcm.h"
#include "support/softverbs.h"

#define RECEIVES 3
#define REFUSED (-ECONNRESET) /* what REJECTED says */

struct iwarp_ends {
    struct ct_pair cm;
    struct sv_end dialer, listener;
};

/* Parameters that name the queue pair. */
struct rdma_conn_param iwarp_param(const struct sv_end *e, const void *data, uint8_t len);
/* A listener, and two ends with receives posted. */
void iwarp_listen(struct iwarp_ends *s);
/* And the listener was asked. */
void iwarp_request(struct iwarp_ends *s);
/* And accepted: ESTABLISHED on both sides. */
void iwarp_up(struct iwarp_ends *s);
/* Frees all of it. */
void iwarp_close(struct iwarp_ends *s);
/* A test that finds such ends in *state, and leaves them to be closed. */
#define IWARP_WITH(set_up, name) TEST_WITH(set_up, iwarp_closed, name)
int iwarp_listening(void **state);
int iwarp_requested(void **state);
int iwarp_connected(void **state);
int iwarp_closed(void **state);
/* All its receives were flushed, in order. */
void iwarp_expect_flushed(struct sv_end *e);
/* A message of the dialer's arrives in the listener's first receive. */
void iwarp_message(struct sv_end *from, struct sv_end *to);
/* A device like that, for the whole program. */
void iwarp_start(void);

#endif
