/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * ctl.h - the control socket of this process (soft/control.h): named SOFT_CTL_PREFIX, the PID that the process has for itself, a
 * dash and a random number. Of other PID namespaces several may have that PID: the name says where to look first, and
 * the kernel which process listens.
 *
 * Served by the engine thread, control lock held. All calls with the control lock held.
 */
#ifndef SOFT_CONTROL_CTL_H
#define SOFT_CONTROL_CTL_H

#include "soft/control.h"

#define SOFT_CTL_PREFIX "sluice-soft.1/ctl/"

/* Without the socket (no descriptor is left) the device works all the same. */
void soft_ctl_start(void);
void soft_ctl_stop(void);
void soft_ctl_forked(void);

#endif
