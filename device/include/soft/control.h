/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * control.h - the control socket of a process that has the device open, as its other end sees it: abstract, SOCK_SEQPACKET.
 * Its user and root may ask; device/docs/faults.md has the commands.
 *
 * A request is one packet of text. The answer is one or more packets whose first byte says what they
 * are: '+' more follows, '=' the last one, '!' the last one and a refusal, with the reason.
 *
 * No state, any thread, with and without a device open.
 */
#ifndef SOFT_CONTROL_H
#define SOFT_CONTROL_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#define SOFT_CTL_REQUEST 36864 /* longest request */
#define SOFT_CTL_PACKET 16384  /* longest packet of an answer */

/*
 * Connects to the control socket of the process that this PID namespace knows as `pid`. Returns a socket that does
 * not block, the caller's to close, and in *who the credentials of its other end; or -errno: ECONNREFUSED: no
 * process with that pid listens in this network namespace, EAGAIN: too many wait to be heard.
 */
int soft_ctl_connect(pid_t pid, struct ucred *who);
/* The process at the other end belongs to this one's user. */
bool soft_ctl_is_own(const struct ucred *who);

#endif
