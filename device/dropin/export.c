/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * export.c - symbols by which a libsluice in the same process finds this copy of the device, so that the process has
 * one device and not two (fabric/dropin.c looks for them). And a file that one library insists on.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dropin/dropin.h"
#include "soft/door.h"
#include "soft/rc/completer.h"

extern const struct soft_door sluice_soft_door;
EXPORT const struct soft_door sluice_soft_door = {
    .mark = SOFT_DOOR_MARK, .size = sizeof(struct soft_calls), .calls = &soft_calls};

/* The programs were written for NICs: see completer.h. */
__attribute__((constructor)) static void serve_strangers(void) {
    soft_dropin = true;
}

/*
 * UCX takes a device only if there is a character device of its name that it may read and write, though
 * it does not open it. There is none, and making one needs root: for that one path the answer is
 * /dev/null's. Everything else goes to the system as it came.
 */
static const char device_file[] = "/dev/infiniband/" SOFT_DEVICE_NAME;

static const char *stand_in(const char *path) {
    return path && strcmp(path, device_file) == 0 ? "/dev/null" : path;
}

EXPORT int stat(const char *restrict path, struct stat *restrict out) {
    return fstatat(AT_FDCWD, stand_in(path), out, 0);
}

EXPORT int access(const char *path, int mode) {
    return faccessat(AT_FDCWD, stand_in(path), mode, 0);
}
