/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * load.c - an ordinary program that is linked with none of the RDMA libraries and loads them itself, by the names
 * that programs use; and a plugin of its own that only its own search path finds. Nothing of Sluice is in it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct ibv_device;

static void *symbol(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (!found)
        fprintf(stderr, "%s in %s: %s\n", name, library, dlerror());
    return found;
}

static int lists_the_device(const char *library) {
    struct ibv_device **(*list_of)(int *) =
        (struct ibv_device * *(*)(int *)) symbol(library, "ibv_get_device_list");
    const char *(*name_of)(struct ibv_device *) =
        (const char *(*)(struct ibv_device *))symbol(library, "ibv_get_device_name");
    int count = 0;
    struct ibv_device **list = list_of && name_of ? list_of(&count) : NULL;
    if (list && count == 1 && strcmp(name_of(list[0]), "sluice_soft0") == 0)
        return 1;
    fprintf(stderr, "%s: %d devices, not one software device\n", library, count);
    return 0;
}

int main(void) {
    void *(*channel)(void) = (void *(*)(void))symbol("librdmacm.so.1", "rdma_create_event_channel");
    void (*end)(void *) = (void (*)(void *))symbol("librdmacm.so.1", "rdma_destroy_event_channel");
    void *opened = channel ? channel() : NULL; /* without a device: fails where the system's is */
    if (!opened)
        fprintf(stderr, "no event channel\n");
    else if (end)
        end(opened);
    int plugin = symbol("libconformance_plugin.so", "plugin") != NULL;
    return opened && end && plugin && lists_the_device("libibverbs.so.1") ? 0 : 1;
}
