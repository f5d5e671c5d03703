/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* machine.c - see machine.h. */
#include "support/machine.h"

hwloc_topology_t machine(const char *text) {
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    assert_int_equal(hwloc_topology_set_synthetic(topology, text), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}

const char *machine_xml(const char *text, const int *nodes, int count, int *bytes) {
    static char with[262144];
    hwloc_topology_t plain = machine(text);
    char *xml, *out = with;
    int length;
    assert_int_equal(hwloc_topology_export_xmlbuffer(plain, &xml, &length, 0), 0);
    assert_true((size_t)length + 4096 < sizeof with);
    for (const char *line = xml; *line;) {
        const char *end = strchr(line, '\n') ? strchr(line, '\n') + 1 : line + strlen(line);
        memcpy(out, line, (size_t)(end - line));
        out += end - line;
        int numa;
        const char *node = strstr(line, "<object type=\"NUMANode\" os_index=\"");
        if (node && node < end &&
            sscanf(node, "<object type=\"NUMANode\" os_index=\"%d", &numa) == 1)
            for (int i = 0; i < count; i++)
                if (nodes[i] == numa) { /* behind the object, which has one child */
                    const char *close = strstr(line, "</object>");
                    assert_non_null(close);
                    memcpy(out, end, (size_t)(close + 9 - end));
                    out += close + 9 - end;
                    end = close + 9;
                    out += sprintf(
                        out,
                        "<object type=\"Bridge\" gp_index=\"%d\" bridge_type=\"0-1\" depth=\"0\""
                        " bridge_pci=\"%04d:[00-ff]\"><object type=\"PCIDev\" gp_index=\"%d\""
                        " pci_busid=\"%04d:3b:00.0\" pci_type=\"0207 [15b3:1017] [15b3:0020] 00\""
                        " pci_link_speed=\"0.000000\"><object type=\"OSDev\" gp_index=\"%d\""
                        " name=\"mlx5_%d\" osdev_type=\"3\"/></object></object>\n",
                        1000 + numa, numa, 2000 + numa, numa, 3000 + numa, numa);
                }
        line = end;
    }
    *out = 0;
    *bytes = (int)(out - with) + 1;
    hwloc_free_xmlbuffer(plain, xml);
    hwloc_topology_destroy(plain);
    return with;
}

hwloc_topology_t machine_with_nics(const char *text, const int *nodes, int count) {
    hwloc_topology_t topology;
    int bytes;
    const char *xml = machine_xml(text, nodes, count, &bytes);
    assert_int_equal(hwloc_topology_init(&topology), 0);
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    assert_int_equal(hwloc_topology_set_xmlbuffer(topology, xml, bytes), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    return topology;
}
