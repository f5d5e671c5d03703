/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * placement_test.c - that a node does what its plan says: its threads are on those CPUs and its memory is
 * wished on that NUMA node, its device is looked for where the system tells of it, and options and
 * environment reach the plan.
 *
 * A process reads its topology once: every case has a process of its own.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/topology.h"
#include "support/child.h"
#include "support/wait.h"
#include "support/machine.h"
#include "node/node.h"
#include "node/worker_select.h"

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);                     \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static const char *const variables[] = {"SLUICE_CPUS",     "SLUICE_NUMA",   "SLUICE_HUGE_PAGES",
                                        "HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "HWLOC_THISSYSTEM"};

/* Runs it in a process that has never asked for its topology and claims CPUs of its own. 77: skipped. */
static void apart(void (*run)(void)) {
    static char prefix[64];
    static const uint64_t first = 0; /* claims begin at the first CPU */
    pid_t child = child_fork();
    assert_true(child >= 0);
    if (child == 0) {
        snprintf(prefix, sizeof prefix, "sluice-placement-test-%d-", (int)getpid());
        cpu_claim_prefix = prefix;
        cpu_claim_begin = &first;
        for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
            unsetenv(variables[i]);
        run();
        _exit(0);
    }
    int status = wait_exit(child);
    if (status == 77)
        skip();
    assert_int_equal(status, 0);
}

/* ---- a node on this machine ------------------------------------------------------------------------ */

static sluice_node *open_node(const sluice_node_options *o) {
    sluice_node *node = NULL;
    sluice_error e = {0};
    if (sluice_open(&node, o, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        _exit(1);
    }
    return node;
}

static sluice_node_info info_of(sluice_node *node) {
    sluice_node_info info = {.size = sizeof info};
    EXPECT(sluice_node_get_info(node, &info) == 0);
    return info;
}

static void expect_refused(const sluice_node_options *o, const char *text) {
    sluice_node *node = NULL;
    sluice_error e = {0};
    EXPECT(sluice_open(&node, o, &e) == SLUICE_EINVAL);
    if (!strstr(e.text, text))
        fprintf(stderr, "%s\n", e.text);
    EXPECT(strstr(e.text, text));
}

/* The only CPU a thread of this process may run on, by its name; -1: several, -2: there is no such thread. */
static int cpu_of_thread(const char *name) {
    int found = -2;
    DIR *dir = opendir("/proc/self/task");
    EXPECT(dir);
    for (struct dirent *at; (at = readdir(dir)) != NULL;) {
        char path[300], line[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", at->d_name);
        FILE *file = fopen(path, "r");
        bool read = file && fgets(line, sizeof line, file);
        if (file)
            fclose(file);
        line[strcspn(line, "\n")] = 0;
        if (!read || strcmp(line, name) != 0)
            continue;
        cpu_set_t set;
        int status = sched_getaffinity((pid_t)atoi(at->d_name), sizeof set, &set);
        EXPECT(status == 0 || errno == ESRCH);
        if (status != 0)
            continue; /* joined, and listed until the kernel was done with it */
        found = -1;
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&set) == 1; cpu++)
            if (CPU_ISSET(cpu, &set))
                found = cpu;
    }
    closedir(dir);
    return found;
}

/* Two CPUs of this process, the first the larger: not the order anybody would take them in. */
static bool two_cpus(int cpus[2]) {
    cpu_set_t set;
    int count = 0;
    EXPECT(sched_getaffinity(0, sizeof set, &set) == 0);
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
        if (CPU_ISSET(cpu, &set) && (count < 2 || cpu < cpus[1]))
            cpus[count < 2 ? count++ : 1] = cpu;
    return count == 2;
}

static void pin(void) {
    int cpus[2];
    char text[32];
    if (!two_cpus(cpus)) {
        fprintf(stderr, "SKIPPED: THIS MACHINE HAS ONE CPU\n");
        _exit(77);
    }
    /* Nobody says anything: each worker has a CPU of its own, in the plan's order, and is there. */
    sluice_node *node = open_node(SLUICE_NODE(.device = "soft", .workers = 2));
    sluice_node_info info = info_of(node);
    for (int i = 0; i < 2; i++) {
        EXPECT(info.worker_cpu[i] == node->plan->cpus[i]);
        EXPECT(cpu_of_thread(i ? "sluice-w1" : "sluice-w0") == node->plan->cpus[i]);
    }
    sluice_close(node, 0);
    snprintf(text, sizeof text, "%d,%d", cpus[0], cpus[1]);
    setenv("SLUICE_CPUS", text, 1);
    node = open_node(SLUICE_NODE(.device = "soft", .workers = 2));
    info = info_of(node);
    EXPECT(info.worker_cpu[0] == cpus[0] && info.worker_cpu[1] == cpus[1]);
    EXPECT(cpu_of_thread("sluice-w0") == cpus[0] && cpu_of_thread("sluice-w1") == cpus[1]);
    EXPECT(info.worker_numa[0] == cpu_numa_node(cpus[0]));
    sluice_close(node, 0);
    /* The option comes before the environment; -1 is not pinned. */
    const int mine[] = {cpus[1], -1};
    node = open_node(SLUICE_NODE(.device = "soft", .workers = 2, .worker_cpus = mine));
    info = info_of(node);
    EXPECT(info.worker_cpu[0] == cpus[1] && info.worker_cpu[1] == -1);
    EXPECT(cpu_of_thread("sluice-w0") == cpus[1] && cpu_of_thread("sluice-w1") == -1);
    sluice_close(node, 0);
    const int wrong[] = {CPU_SETSIZE - 1};
    expect_refused(SLUICE_NODE(.device = "soft", .worker_cpus = wrong), "worker_cpus names CPU");
    setenv("SLUICE_CPUS", "1023", 1);
    expect_refused(SLUICE_NODE(.device = "soft"), "SLUICE_CPUS names CPU 1023");
}

TEST(workers_run_on_the_cpus_they_are_given) {
    apart(pin);
}

static int first_numa(void) {
    hwloc_topology_t topology = topology_here();
    hwloc_obj_t node = topology ? hwloc_get_obj_by_type(topology, HWLOC_OBJ_NUMANODE, 0) : NULL;
    if (!node)
        _exit(77);
    return (int)node->os_index;
}

static void check_bound(sluice_node *node, int numa) {
    sluice_node_info info = info_of(node);
    EXPECT(info.memory_numa == numa);
    for (int pool = 0; pool < STATS_POOLS; pool++)
        EXPECT(node->stats.page->memory[pool].numa == numa);
    EXPECT((strstr(info.memory, "NUMA node") != NULL) == (numa >= 0));
    EXPECT((strstr(info.receive_memory, "NUMA node") != NULL) == (numa >= 0));
    sluice_close(node, 0);
}

static void bind_memory(void) {
    int numa = first_numa();
    char text[16];
    check_bound(open_node(SLUICE_NODE(.device = "soft")), -1);
    snprintf(text, sizeof text, "%d", numa);
    setenv("SLUICE_NUMA", text, 1);
    check_bound(open_node(SLUICE_NODE(.device = "soft")), numa);
    check_bound(open_node(SLUICE_NODE(.device = "soft", .memory_numa = SLUICE_UNBOUND)), -1);
    setenv("SLUICE_NUMA", "none", 1);
    check_bound(open_node(SLUICE_NODE(.device = "soft", .memory_numa = (uint32_t)numa + 1)), numa);
    setenv("SLUICE_NUMA", "4000", 1);
    expect_refused(SLUICE_NODE(.device = "soft"), "SLUICE_NUMA names NUMA node 4000");
    expect_refused(SLUICE_NODE(.device = "soft", .memory_numa = 3001),
                   "memory_numa names NUMA node 3000");
}

TEST(memory_is_wished_on_the_node_that_was_named) {
    apart(bind_memory);
}

static void choose_pages(void) {
    sluice_node *node = open_node(SLUICE_NODE(.device = "soft"));
    EXPECT(!strstr(info_of(node).memory, "ordinary pages"));
    sluice_close(node, 0);
    setenv("SLUICE_HUGE_PAGES", "no", 1);
    node = open_node(SLUICE_NODE(.device = "soft"));
    sluice_node_info info = info_of(node);
    EXPECT(strstr(info.memory, "on ordinary pages") && !strchr(info.memory, ','));
    EXPECT(strstr(info.receive_memory, "on ordinary pages"));
    sluice_close(node, 0);
    setenv("SLUICE_HUGE_PAGES", "4K", 1);
    expect_refused(SLUICE_NODE(.device = "soft"), "SLUICE_HUGE_PAGES: '4K' is none of no, 2M, 1G");
}

TEST(the_environments_pages_are_taken_or_refused) {
    apart(choose_pages);
}

/* ---- another machine ------------------------------------------------------------------------------- */

/* hwloc believes whatever it is told, and that it bound memory there. */
static void told_of_another_machine(void) {
    setenv("HWLOC_SYNTHETIC", "numa:4 core:256 pu:1", 1);
    sluice_node *node = open_node(SLUICE_NODE(.device = "soft", .workers = 2));
    sluice_node_info info = info_of(node);
    EXPECT(topology_here() == NULL);
    EXPECT(topology_bind(node, 1, 0) < 0);
    EXPECT(strstr(info.placement, "hwloc describes another machine"));
    EXPECT(info.worker_cpu[0] == -1 && info.worker_cpu[1] == -1);
    check_bound(node, -1);
    setenv("SLUICE_NUMA", "1", 1);
    expect_refused(SLUICE_NODE(.device = "soft"), "SLUICE_NUMA names NUMA node 1, which is not");
}

TEST(another_machines_topology_is_not_taken_for_ours) {
    apart(told_of_another_machine);
}

static _Atomic int unpinned;

static void on_log(int level, const char *text, void *arg) {
    (void)arg;
    if (level == SLUICE_LOG_WARNING &&
        strstr(text, "cannot be pinned to CPU 1000: Invalid argument"))
        unpinned++;
}

/* What hwloc says is there need not be: a file may be of another day. */
static void pin_to_nothing(void) {
    setenv("HWLOC_SYNTHETIC", "numa:1 core:1001 pu:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    setenv("SLUICE_CPUS", "1000", 1);
    if (sysconf(_SC_NPROCESSORS_CONF) > 1000)
        _exit(77);
    sluice_node *node = open_node(SLUICE_NODE(.device = "soft", .log = on_log));
    EXPECT(unpinned == 1);
    sluice_node_info info = info_of(node);
    EXPECT(info.worker_cpu[0] == -1 && info.worker_numa[0] == -1);
    EXPECT(node->workers[0].loop->stats->cpu == -1 && node->workers[0].loop->stats->numa == -1);
    EXPECT(cpu_of_thread("sluice-w0") != 1000);
    sluice_close(node, 0);
}

TEST(a_worker_that_cannot_be_pinned_is_told_of_and_works) {
    apart(pin_to_nothing);
}

/* From here on hwloc is made to believe that a machine which is not here is. */

static struct cpu_plan plan_made;
static struct memory_budget need_made;
static struct sluice_node made; /* as far as its plan needs it */
static struct ibv_device device;
static struct ibv_context context = {.device = &device};
static int near_first = -1; /* the helper's answer: this CPU and the next; -1: it knows nothing */

static int affinity_cpus(struct hwloc_topology *topology, struct ibv_device *dev,
                         struct hwloc_bitmap_s *set) {
    EXPECT(topology == topology_here() && dev == &device);
    if (near_first < 0)
        return -1;
    hwloc_bitmap_set_range(set, (unsigned)near_first, near_first + 1);
    return 0;
}

static const struct fabric_ops nic_fabric = {.name = "nic", .affinity_cpus = affinity_cpus};

static void plan_for(const char *name) {
    memset(&made, 0, sizeof made);
    memset(&plan_made, 0, sizeof plan_made);
    memset(&need_made, 0, sizeof need_made);
    made.plan = &plan_made;
    made.memory_budget = &need_made;
    made.fabric = &nic_fabric;
    made.context = &context;
    snprintf(made.choice.device, sizeof made.choice.device, "%s", name);
    made.options.workers = 2;
    EXPECT(worker_select_plan(&made) == 0);
    fprintf(stderr, "%s\n", made.plan->why);
}

static void check_plan(int numa, int first_cpu, const char *source) {
    EXPECT(made.device_numa == numa && made.plan->arena_numa == numa);
    EXPECT(made.plan->cpus[0] == first_cpu && made.plan->worker_cpu[1] == first_cpu + 1);
    EXPECT(strstr(made.plan->why, source));
}

static void ask_the_helper(void) {
    setenv("HWLOC_SYNTHETIC", "numa:4 core:2 pu:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    near_first = 4;
    plan_for("nobodys_0");
    check_plan(2, 4, "the CPUs next to it");
}

TEST(a_node_asks_the_helper_for_its_device) {
    apart(ask_the_helper);
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    EXPECT(file);
    fputs(text, file);
    fclose(file);
}

/* A sysfs that only this process sees: a device on the PCI bus, of which the kernel gives a node. */
static void make_sysfs(const char *name, const char *numa) {
    char path[160];
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", "/sys/class", "tmpfs", 0, NULL) != 0) {
        fprintf(stderr, "SKIPPED: THIS PROCESS MAY NOT HAVE A SYSFS OF ITS OWN\n");
        _exit(77);
    }
    mkdir("/sys/class/infiniband", 0777);
    mkdir("/sys/class/pci", 0777);
    mkdir("/sys/class/pci/0003:3b:00.0", 0777);
    put("/sys/class/pci/0003:3b:00.0/numa_node", numa);
    snprintf(path, sizeof path, "/sys/class/infiniband/%s", name);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", name);
    EXPECT(symlink("../../pci/0003:3b:00.0", path) == 0);
}

static void find_on_the_bus(void) {
    static const int nodes[] = {1, 3};
    char path[] = "/tmp/sluice-machine-XXXXXX";
    int bytes, fd = mkstemp(path);
    const char *xml = machine_xml("numa:4 core:2 pu:1", nodes, 2, &bytes);
    EXPECT(fd >= 0 && write(fd, xml, (size_t)bytes - 1) == bytes - 1);
    close(fd);
    setenv("HWLOC_XMLFILE", path, 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    make_sysfs("renamed_0",
               "-1\n"); /* without an RDMA device nobody asks for its place in the tree */
    (void)topology_here();
    unlink(path);
    EXPECT(topology_here());
    plan_for("mlx5_1");
    check_plan(1, 2, "hwloc's device of that name");
    plan_for("renamed_0");
    check_plan(3, 6, "hwloc's PCI device");
}

TEST(a_node_finds_its_device_in_hwlocs_tree) {
    apart(find_on_the_bus);
}

static void ask_the_kernel(void) {
    setenv("HWLOC_SYNTHETIC", "numa:4 core:2 pu:1", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    make_sysfs("mlx5_9", "2\n");
    plan_for("mlx5_9");
    check_plan(2, 4, "the kernel");
    /* The kernel knows it, but the node is not among ours: no worker is nearer than another. */
    put("/sys/class/pci/0003:3b:00.0/numa_node", "7\n");
    plan_for("mlx5_9");
    check_plan(-1, 0, "mlx5_9 is on NUMA node 7, which is not there for this process");
}

TEST(a_node_asks_the_kernel_last) {
    apart(ask_the_kernel);
}
