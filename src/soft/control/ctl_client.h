/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ctl_client.h - the other end of a control socket (ctl.h): finds a process by its listening socket, not by the name.
 *
 * No state, any thread, with and without a device open.
 */
#ifndef SOFT_CONTROL_CTL_CLIENT_H
#define SOFT_CONTROL_CTL_CLIENT_H

#include <sys/socket.h>
#include <sys/types.h>

/*
 * Connects to the control socket of the process that this PID namespace knows as `pid`. Returns a socket that does
 * not block, the caller's to close, and in *who the credentials of its other end; or -errno: ECONNREFUSED: no
 * process with that pid listens in this network namespace, EAGAIN: too many wait to be heard.
 */
int soft_ctl_connect(pid_t pid, struct ucred *who);

#endif
