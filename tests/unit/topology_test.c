/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* topology_test.c - the machine is read with its devices, and without what is slow and not asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
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

static void devices_are_found_and_their_names_are_not_looked_up(void **state) {
    (void)state;
    int wanted = nics_of_sysfs(), found = 0;
    if (!topology_here() || wanted == 0) {
        fprintf(stderr, "NOT TESTED: %s\n",
                topology_missing() ? topology_missing() : "no network device on a PCI bus");
        skip();
    }
    for (hwloc_obj_t device = NULL; (device = hwloc_get_next_pcidev(topology_here(), device));) {
        if (device->attr->pcidev.class_id >> 8 == 0x02)
            found++;
        assert_null(hwloc_obj_get_info_by_name(device, "PCIVendor"));
        assert_null(hwloc_obj_get_info_by_name(device, "PCIDevice"));
    }
    assert_int_equal(found, wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_found_and_their_names_are_not_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
