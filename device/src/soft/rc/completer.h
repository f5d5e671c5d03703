/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * completer.h - completion of sends, the end of a QP, and its flush.
 *
 * Owner: the QP's lock.
 */
#ifndef SOFT_RC_COMPLETER_H
#define SOFT_RC_COMPLETER_H

#include <infiniband/verbs.h>
#include <stdbool.h>

struct sink;
struct soft_qp;

void soft_find_due(struct soft_qp *qp); /* a signalled send was transmitted, or some were retired */
void soft_retire(struct soft_qp *qp, struct sink *sink); /* by the acknowledgements known */
void soft_completer(struct soft_qp *qp, struct sink *sink);
bool soft_flush(struct soft_qp *qp, struct sink *sink); /* false: a CQ has no room, call again */
enum ibv_wc_opcode soft_wc_opcode(unsigned opcode);
void soft_qp_fail(struct soft_qp *qp); /* qp->lock: enter ERR */

/*
 * True in the copy for programs that were written for NICs and the system's librdmacm (dropin/), and count on
 * what no specification promises: a peer that is gone is reported after a NIC's timeouts and retries, not as
 * soon as it is seen; a port without a listener is not refused at once; arming a CQ fires for completions
 * that were not taken; a poller without work gives its CPU away now and then; contexts that rdma_cm opened
 * stay open as long as the process. Constant.
 */
extern bool soft_dropin;

#endif
