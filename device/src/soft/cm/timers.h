/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * timers.h - the connection manager's times. The kernel's are minutes; these are short, because
 * both ends are on one host and the death of a process is seen at once, not timed out.
 *
 *   SLUICE_SOFT_CM_TIMEOUT_MS   4000   until an unanswered request is given up
 *   SLUICE_SOFT_CM_TRIES          16   how often it is sent in that time
 *   SLUICE_SOFT_CM_WAIT_MS     20000   how long a peer that asked for time is waited for; and for how long a
 *                                      request that finds no room on its way does not count as sent
 *   SLUICE_SOFT_TIMEWAIT_MS      500   from the end of a connection to TIMEWAIT_EXIT
 *   SLUICE_SOFT_CM_REFUSE_MS       0   how long a port without a listener is asked again before the
 *                                      request is refused; 250 for programs written for NICs, some of which
 *                                      begin to listen when they have told the peer to connect, and count
 *                                      on the time a request takes there
 *   SLUICE_SOFT_CM_END_MS          0   how long DISCONNECTED waits, at most, for completions that came before
 *                                      it to be taken; 100 for programs written for NICs (quiet.h)
 *   SLUICE_SOFT_MPA_MS         10000   how long a request of a device that is like iWARP waits for its
 *                                      answer, once the connection exists
 *
 * Read from the environment when first needed; a value out of range counts as not given.
 */
#ifndef SOFT_CM_TIMERS_H
#define SOFT_CM_TIMERS_H

struct soft_cm_timers {
    unsigned answer_ms, tries, wait_ms, timewait_ms, refuse_ms, end_ms, mpa_ms;
};
const struct soft_cm_timers *soft_cm_timers(void);

#endif
