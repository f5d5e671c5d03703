/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ctl.h - the control socket of a process that has the device open: abstract, SOCK_SEQPACKET, named
 * SOFT_CTL_PREFIX, the PID it has for itself, a dash and a random number. Of other PID namespaces several may have that
 * PID: the name says where to look first, and the kernel which process listens. Its user and root may ask;
 * docs/faults.md has the commands, ctl_client.h finds it.
 *
 * A request is one packet of text. The answer is one or more packets whose first byte says what they
 * are: '+' more follows, '=' the last one, '!' the last one and a refusal, with the reason.
 * Served by the engine thread, control lock held. All calls with the control lock held.
 */
#ifndef SOFT_CONTROL_CTL_H
#define SOFT_CONTROL_CTL_H

#define SOFT_CTL_PREFIX "sluice-soft.1/ctl/"
#define SOFT_CTL_REQUEST 36864 /* longest request */
#define SOFT_CTL_PACKET 16384  /* longest packet of an answer */

/* Without the socket (no descriptor is left) the device works all the same. */
void soft_ctl_start(void);
void soft_ctl_stop(void);
void soft_ctl_forked(void);

#endif
