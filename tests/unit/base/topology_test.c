/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * topology_test.c - the machine is read with its devices where there are RDMA devices, and without what is
 * slow and not asked for.
 */
#include "support/test.h"

#include <dirent.h>
#include <stdio.h>

#include "base/topology.h"

/* The devices whose place on the bus sysfs knows, of the kinds that hwloc takes for important. */
static int nics_of_sysfs(void) {
    int found = 0;
    DIR *dir = opendir("/sys/bus/pci/devices");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[sizeof "/sys/bus/pci/devices//class" + sizeof entry->d_name];
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", entry->d_name);
        FILE *file = entry->d_name[0] != '.' ? fopen(path, "r") : NULL;
        unsigned class = 0;
        if (file && fscanf(file, "%x", &class) == 1 && class >> 16 == 0x02)
            found++;
        if (file)
            fclose(file);
    }
    if (dir)
        closedir(dir);
    return found;
}

static bool has_devices(hwloc_topology_t topology) {
    return hwloc_get_next_pcidev(topology, NULL) || hwloc_get_next_osdev(topology, NULL);
}

static bool has_rdma_devices(void) {
    int found = 0;
    DIR *dir = opendir("/sys/class/infiniband");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        found += entry->d_name[0] != '.';
    if (dir)
        closedir(dir);
    return found > 0;
}

/* Most of the time that opening a node took went into looking at devices that have no part in it. */
TEST(devices_are_looked_at_for_rdma_devices_only) {
    hwloc_topology_t without = topology_read(false), with = topology_read(true);
    assert_non_null(without);
    assert_non_null(with);
    assert_false(has_devices(without));
    assert_true(hwloc_bitmap_isequal(hwloc_topology_get_complete_cpuset(without),
                                     hwloc_topology_get_complete_cpuset(with)));
    if (topology_here() && has_devices(with))
        assert_int_equal(has_devices(topology_here()), has_rdma_devices());
    hwloc_topology_destroy(without);
    hwloc_topology_destroy(with);
}

TEST(devices_are_found_and_their_names_are_not_looked_up) {
    int wanted = nics_of_sysfs(), found = 0;
    hwloc_topology_t topology = topology_read(true);
    if (!topology || wanted == 0) {
        fprintf(stderr, "NOT TESTED: %s\n",
                topology ? "no network device on a PCI bus" : "the machine cannot be read");
        if (topology)
            hwloc_topology_destroy(topology);
        skip();
    }
    for (hwloc_obj_t device = NULL; (device = hwloc_get_next_pcidev(topology, device));) {
        if (device->attr->pcidev.class_id >> 8 == 0x02)
            found++;
        assert_null(hwloc_obj_get_info_by_name(device, "PCIVendor"));
        assert_null(hwloc_obj_get_info_by_name(device, "PCIDevice"));
    }
    assert_int_equal(found, wanted);
    hwloc_topology_destroy(topology);
}
