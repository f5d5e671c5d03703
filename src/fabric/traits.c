/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * traits.c - what can be relied upon of a device, by the kind of device it says it is.
 *
 * The kernel's software devices (Soft-RoCE, Soft-iWARP) are told by the vendor they give, which is
 * nobody's. A NIC's word is taken. Pure: both fabrics ask here, so a software device that is told to be
 * like another one leads the library through the same branches.
 */
#include "fabric/fabric.h"

#define VENDOR_SOFT_ROCE 0xffffffu
#define VENDOR_SOFT_IWARP 0x626d74u

void fabric_traits_of(enum ibv_transport_type transport, const struct ibv_device_attr *attr,
                      struct fabric_traits *traits) {
    bool nic = attr->vendor_id != 0 && attr->vendor_id != VENDOR_SOFT_ROCE &&
               attr->vendor_id != VENDOR_SOFT_IWARP;
    (void)transport;
    *traits = (struct fabric_traits){.drains_shared = nic, .exact_windows = nic};
}
