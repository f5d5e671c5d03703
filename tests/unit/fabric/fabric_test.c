/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * fabric_test.c - the choice of fabric and device, over two made-up fabrics; and the system's
 * fabric on whatever machine this is.
 */
#define _GNU_SOURCE
#include "support/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/select.h"
#include "soft/object/profile.h"
#include "soft/soft.h"
#include "fabric/fast.h"

/* ---- made-up fabrics ------------------------------------------------------------------------- */

struct fake_device {
    const char *name;
    unsigned ports, active; /* bit n: port n + 1 is active */
    bool unopenable;
};
struct fake {
    const struct fake_device *devices;
    int count; /* -1: no RDMA support */
};
static struct fake nics, softs;
static int list_error = ENOSYS; /* why there is none */
static int lists, contexts;     /* open ones: nothing may be left open */

static struct ibv_device ibv_devices[2][8];

static const struct fake_device *device_of(const struct ibv_device *device) {
    ptrdiff_t index = device - &ibv_devices[0][0];
    return index < 8 ? &nics.devices[index] : &softs.devices[index - 8];
}

static struct ibv_device **list_of(const struct fake *fake, int row, int *num) {
    if (fake->count < 0) {
        errno = list_error;
        return NULL;
    }
    struct ibv_device **list = calloc((size_t)fake->count + 1, sizeof *list);
    assert_non_null(list);
    for (int i = 0; i < fake->count; i++)
        list[i] = &ibv_devices[row][i];
    *num = fake->count;
    lists++;
    return list;
}
static struct ibv_device **nic_list(int *num) {
    return list_of(&nics, 0, num);
}
static struct ibv_device **soft_list(int *num) {
    return list_of(&softs, 1, num);
}
static void free_list(struct ibv_device **list) {
    lists--;
    free(list);
}
static const char *name_of(struct ibv_device *device) {
    return device_of(device)->name;
}
static struct ibv_context *open_device(struct ibv_device *device) {
    if (device_of(device)->unopenable) {
        errno = EACCES;
        return NULL;
    }
    struct ibv_context *ctx = calloc(1, sizeof *ctx);
    assert_non_null(ctx);
    ctx->device = device;
    contexts++;
    return ctx;
}
static int close_device(struct ibv_context *ctx) {
    contexts--;
    free(ctx);
    return 0;
}
static int query_device(struct ibv_context *ctx, struct ibv_device_attr *attr) {
    memset(attr, 0, sizeof *attr);
    attr->phys_port_cnt = (uint8_t)device_of(ctx->device)->ports;
    return 0;
}
static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr) {
    const struct fake_device *device = device_of(ctx->device);
    if (port < 1 || port > device->ports)
        return EINVAL;
    memset(attr, 0, sizeof *attr);
    attr->state = device->active >> (port - 1) & 1 ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    return 0;
}

static const struct fabric_ops fake_system = {
    .name = "system",
    .get_device_list = nic_list,
    .free_device_list = free_list,
    .get_device_name = name_of,
    .open_device = open_device,
    .close_device = close_device,
    .query_device = query_device,
    .query_port = query_port,
};
static const char *like_none(void) {
    return NULL;
}

static const struct fabric_fast fake_fast = {.get_profile = like_none};
static const struct fabric_ops fake_soft = {
    .name = "soft",
    .fast = &fake_fast,
    .get_device_list = soft_list,
    .free_device_list = free_list,
    .get_device_name = name_of,
};

static const struct fake_device soft0 = {"sluice_soft0", 1, 1, false};

static int setup(void **state) {
    (void)state;
    nics = (struct fake){NULL, 0};
    softs = (struct fake){&soft0, 1};
    return 0;
}

static struct fabric_choice choice;

static void chosen(const char *spec, const char *env, const struct fabric_ops *ops,
                   const char *device) {
    memset(&choice, 0xa5, sizeof choice);
    assert_int_equal(fabric_select_between(&fake_system, &fake_soft, spec, env, &choice), 0);
    assert_ptr_equal(choice.ops, ops);
    assert_string_equal(choice.device, device);
    assert_true(strlen(choice.why) > 10 && strlen(choice.why) < sizeof choice.why);
    assert_int_equal(lists, 0);
    assert_int_equal(contexts, 0);
}

static void refused_with(const char *spec, const char *env, int error, const char *why) {
    memset(&choice, 0xa5, sizeof choice);
    errno = 0;
    assert_int_equal(fabric_select_between(&fake_system, &fake_soft, spec, env, &choice), -1);
    assert_int_equal(errno, error);
    assert_null(choice.ops);
    assert_string_equal(choice.device, "");
    assert_non_null(memchr(choice.why, 0, sizeof choice.why));
    if (!strstr(choice.why, why))
        fail_msg("\"%s\" does not say \"%s\"", choice.why, why);
    assert_int_equal(lists, 0);
    assert_int_equal(contexts, 0);
}

static void refused(const char *spec, const char *env, const char *why) {
    refused_with(spec, env, ENODEV, why);
}

/* ---- auto ------------------------------------------------------------------------------------ */

#define FABRIC_TEST(name) TEST_WITH(setup, NULL, name)

FABRIC_TEST(auto_prefers_a_nic_with_an_active_port) {
    const struct fake_device devices[] = {
        {"mlx5_0", 2, 0, false}, {"mlx5_1", 0, 0, false}, {"mlx5_2", 1, 1, true},
        {"mlx5_3", 3, 4, false}, {"mlx5_4", 1, 1, false},
    };
    nics = (struct fake){devices, 5};
    chosen(NULL, NULL, &fake_system, "mlx5_3");
    chosen("auto", NULL, &fake_system, "mlx5_3");
    chosen("auto", "", &fake_system, "mlx5_3");
    chosen("auto", "auto", &fake_system, "mlx5_3");
    nics.count = 3; /* down, without ports, not openable */
    chosen(NULL, NULL, &fake_soft, "sluice_soft0");
    assert_string_equal(choice.why,
                        "auto: RDMA NIC mlx5_0 has no active port, RDMA NIC mlx5_2 cannot "
                        "be opened: Permission denied, so the software device");
}

/* That a NIC may not be used is not that it is not there. */
FABRIC_TEST(a_nic_that_cannot_be_opened_says_why) {
    const struct fake_device devices[] = {{"mlx5_0", 1, 1, true}};
    nics = (struct fake){devices, 1};
    chosen("auto", NULL, &fake_soft, "sluice_soft0");
    assert_string_equal(choice.why, "auto: RDMA NIC mlx5_0 cannot be opened: Permission denied, so "
                                    "the software device");
    refused_with("mlx5_0", NULL, EACCES, "device mlx5_0 cannot be opened: Permission denied");
    list_error = EMFILE;
    nics.count = -1;
    chosen("auto", NULL, &fake_soft, "sluice_soft0");
    assert_string_equal(choice.why,
                        "auto: the RDMA devices cannot be listed: Too many open files, so "
                        "the software device");
    refused_with("mlx5_0", NULL, EMFILE,
                 "device mlx5_0: the RDMA devices cannot be listed: Too many open files");
    list_error = ENOSYS;
}

FABRIC_TEST(without_a_nic_auto_is_the_software_device) {
    chosen(NULL, NULL, &fake_soft, "sluice_soft0");
    nics.count = -1;
    chosen("auto", NULL, &fake_soft, "sluice_soft0");
    softs.count = -1;
    refused("auto", NULL, "not available");
    softs.count = 0;
    refused(NULL, NULL, "not available");
}

FABRIC_TEST(the_environment_stands_in_for_auto_only) {
    const struct fake_device devices[] = {{"mlx5_0", 1, 1, false}, {"mlx5_1", 1, 1, false}};
    nics = (struct fake){devices, 2};
    chosen(NULL, "soft", &fake_soft, "sluice_soft0");
    chosen("auto", "mlx5_1", &fake_system, "mlx5_1");
    assert_non_null(strstr(choice.why, "SLUICE_DEVICE"));
    chosen("mlx5_0", "soft", &fake_system, "mlx5_0");
    chosen("soft", "mlx5_1", &fake_soft, "sluice_soft0");
    refused("auto", "mlx5_7", "SLUICE_DEVICE");
}

/* ---- names ----------------------------------------------------------------------------------- */

FABRIC_TEST(a_name_is_looked_for_on_both_fabrics) {
    const struct fake_device devices[] = {{"mlx5_0", 1, 0, false}, {"rxe0", 1, 1, false}};
    nics = (struct fake){devices, 2};
    chosen("rxe0", NULL, &fake_system, "rxe0");
    chosen("sluice_soft0", NULL, &fake_soft, "sluice_soft0");
    chosen("soft", NULL, &fake_soft, "sluice_soft0");
    refused("mlx5_0", NULL, "no active port");
    softs.count = 0;
    refused("soft", NULL, "not available");
}

FABRIC_TEST(an_unknown_name_is_answered_with_what_there_is) {
    const struct fake_device devices[] = {{"mlx5_0", 1, 0, false}, {"rxe0", 1, 1, false}};
    refused("nosuch", NULL, "nosuch");
    assert_non_null(strstr(choice.why, "sluice_soft0"));
    nics = (struct fake){devices, 2};
    refused("nosuch", NULL, "mlx5_0, rxe0, sluice_soft0");
    refused("", NULL, "no device");
    nics.count = softs.count = 0;
    refused("nosuch", NULL, "none");
    char name[1000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    refused(name, NULL, "xxxx");
    /* More devices than the line holds: cut, not overrun. */
    static const struct fake_device many[8] = {
        {"a_device_with_a_rather_long_name_0", 1, 1, false},
        {"a_device_with_a_rather_long_name_1", 1, 1, false},
        {"a_device_with_a_rather_long_name_2", 1, 1, false},
        {"a_device_with_a_rather_long_name_3", 1, 1, false},
        {"a_device_with_a_rather_long_name_4", 1, 1, false},
        {"a_device_with_a_rather_long_name_5", 1, 1, false},
        {"a_device_with_a_rather_long_name_6", 1, 1, false},
        {"a_device_with_a_rather_long_name_7", 1, 1, false},
    };
    nics = (struct fake){many, 8};
    refused("nosuch", NULL, "rather_long_name_1");
}

/* ---- the real ones --------------------------------------------------------------------------- */

FABRIC_TEST(every_entry_of_both_tables_is_there) {
    const struct fabric_ops *tables[] = {&fabric_system, &fabric_soft};
    for (int i = 0; i < 2; i++) {
        const char *start = (const char *)&tables[i]->get_device_list;
        size_t bytes = sizeof *tables[i] - offsetof(struct fabric_ops, get_device_list);
        for (size_t at = 0; at < bytes; at += sizeof(void *)) {
            void *entry;
            memcpy(&entry, start + at, sizeof entry);
            assert_non_null(entry);
        }
    }
    assert_null(fabric_system.fast);
    for (size_t at = 0; at < sizeof *fabric_soft.fast; at += sizeof(void *)) {
        void *entry;
        memcpy(&entry, (const char *)fabric_soft.fast + at, sizeof entry);
        assert_non_null(entry);
    }
}

FABRIC_TEST(of_a_nic_its_word_is_taken_and_of_kernel_software_not) {
    static const struct {
        uint32_t vendor;
        bool nic;
    } devices[] = {
        {0x02c9, true}, {0x14e4, true}, {0, false}, {0xffffff, false}, {0x626d74, false}};
    struct fabric_traits traits;
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        const struct ibv_device device = {.transport_type = IBV_TRANSPORT_IB};
        const struct ibv_device_attr attr = {.vendor_id = devices[i].vendor};
        fabric_system.get_traits(&device, &attr, &traits);
        assert_int_equal(traits.drains_shared, devices[i].nic);
        assert_int_equal(traits.exact_windows, devices[i].nic);
        /* The software device is known, unless it is told to be like another one. */
        struct ibv_device_attr soft = attr;
        soft.vendor_part_id = SOFT_PART_PLAIN;
        fabric_soft.get_traits(&device, &soft, &traits);
        assert_true(traits.drains_shared && traits.exact_windows);
        soft.vendor_part_id = SOFT_PART_PLAIN + 1;
        fabric_soft.get_traits(&device, &soft, &traits);
        assert_int_equal(traits.drains_shared, devices[i].nic);
        assert_int_equal(traits.exact_windows, devices[i].nic);
    }
}

/* What InfiniBand and RoCE do is relied upon everywhere but on iWARP; more yet is known of Soft-iWARP. */
FABRIC_TEST(an_iwarp_device_is_told_by_its_transport) {
    static const struct {
        enum ibv_transport_type transport;
        uint32_t vendor;
    } devices[] = {{IBV_TRANSPORT_IB, 0x02c9},
                   {IBV_TRANSPORT_IB, 0xffffff},
                   {IBV_TRANSPORT_IWARP, 0x1425},
                   {IBV_TRANSPORT_IWARP, 0x8086},
                   {IBV_TRANSPORT_IWARP, 0x626d74}};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        const struct ibv_device device = {.transport_type = devices[i].transport};
        const struct ibv_device_attr attr = {.vendor_id = devices[i].vendor};
        bool iwarp = devices[i].transport == IBV_TRANSPORT_IWARP;
        bool kernel = devices[i].vendor == 0x626d74;
        struct fabric_traits traits;
        fabric_system.get_traits(&device, &attr, &traits);
        assert_int_equal(traits.answer_is_up, iwarp);
        assert_int_equal(traits.dialer_first, iwarp);
        assert_int_equal(traits.connect_blocks, iwarp);
        assert_int_equal(traits.sink_is_target, iwarp);
        assert_int_equal(traits.no_immediate, iwarp);
        assert_int_equal(traits.sent_is_local, iwarp);
        assert_int_equal(traits.first_may_stick, kernel);
        assert_int_equal(traits.silent_in_err, kernel);
        assert_int_equal(traits.flushes_twice, kernel);
        assert_false(iwarp && traits.reads_unsafe);
        assert_int_equal(traits.repeats, !iwarp);
        assert_int_equal(traits.sends_in_place, kernel);
        assert_int_equal(traits.posts_by_call, devices[i].vendor == 0xffffff || kernel);
        assert_false(iwarp && (traits.drains_shared || traits.exact_windows));
    }
}

FABRIC_TEST(memory_is_zeroed_and_aligned) {
    const size_t sizes[] = {4096, 65536, 2 << 20, (2 << 20) + 4096, 5 << 20};
    const struct fabric_ops *tables[] = {&fabric_system, &fabric_soft};
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uint8_t *addr = tables[t]->mem_alloc(sizes[i]);
            assert_non_null(addr);
            assert_int_equal((uintptr_t)addr % 4096, 0);
            for (size_t at = 0; at < sizes[i]; at += 512)
                assert_int_equal(addr[at], 0);
            memset(addr, 1, sizes[i]);
            if (t == 0 && sizes[i] >= 2 << 20)
                assert_int_equal((uintptr_t)addr % (2 << 20), 0);
            tables[t]->mem_free(addr, sizes[i]);
        }
    assert_null(fabric_system.mem_alloc(SIZE_MAX & ~(size_t)4095));
    assert_int_equal(errno, ENOMEM);
}

FABRIC_TEST(the_system_answers_without_a_device) {
    int count = -1;
    struct ibv_device **list = fabric_system.get_device_list(&count);
    if (list) {
        assert_true(count >= 0);
        fabric_system.free_device_list(list);
    }
    struct fabric_choice real;
    assert_int_equal(fabric_select("soft", &real), 0);
    assert_ptr_equal(real.ops, &fabric_soft);
    assert_true(strlen(real.device) > 0);
    assert_int_equal(fabric_select("no-such-device", &real), -1);
    assert_non_null(strstr(real.why, "no-such-device"));
}
