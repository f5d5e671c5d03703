/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * traits.c - which promises a device keeps, by the kind of device it reports.
 *
 * The transport's own rules hold for every device of that transport; the kernel's software devices
 * (Soft-RoCE, Soft-iWARP), known by the vendor id they report, which is no vendor's, differ in more points.
 * Where a NIC may be better than the rule, keeping to the rule costs nothing. Pure: both fabrics ask here, so
 * a software device that is configured to be like another one leads the library through the same branches.
 */
#include "fabric/fabric.h"

#define VENDOR_SOFT_ROCE 0xffffffu
#define VENDOR_SOFT_IWARP 0x626d74u

void fabric_traits_of(enum ibv_transport_type transport, const struct ibv_device_attr *attr,
                      struct fabric_traits *traits) {
    bool soft_iwarp = attr->vendor_id == VENDOR_SOFT_IWARP;
    bool nic = attr->vendor_id != 0 && attr->vendor_id != VENDOR_SOFT_ROCE && !soft_iwarp;
    bool iwarp = transport == IBV_TRANSPORT_IWARP;
    *traits = (struct fabric_traits){
        .drains_shared = nic && !iwarp, /* InfiniBand asks for both */
        .exact_windows = nic && !iwarp,
        .answer_is_up = iwarp,
        .dialer_first = iwarp,
        .connect_blocks = iwarp,
        .first_may_stick = soft_iwarp,
        .silent_in_err = soft_iwarp,
        .flushes_twice = soft_iwarp,
        .sends_in_place = soft_iwarp,
        .sent_is_local = iwarp,
        .sink_is_target = iwarp,
        .reads_unsafe = !nic && !iwarp,
        .no_immediate = iwarp,
        .posts_by_call = attr->vendor_id == VENDOR_SOFT_ROCE || soft_iwarp,
        .repeats = !iwarp,
    };
}
