/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * run.c - looks whether this system has what the device needs, finds the device's libraries beside this
 * program, puts them into the environment and becomes the other program.
 */
#define _GNU_SOURCE
#include "common/run.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/options.h"
#include "common/program_file.h"
#include "common/tool.h"

#ifndef SLUICE_BIN_TO_LIB
#define SLUICE_BIN_TO_LIB "../lib"
#endif

/* ---- what the device needs of the system ------------------------------------------------------------- */

static int check_memfd(void) {
    int fd = memfd_create("sluice-soft-run", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return tool_fail("this system does not allow memory files (memfd_create): %s",
                         strerror(errno));
    int error = ftruncate(fd, 4096) == 0 ? 0 : errno;
    void *at = error ? MAP_FAILED : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && at == MAP_FAILED)
        error = errno;
    if (at != MAP_FAILED)
        munmap(at, 4096);
    close(fd);
    return error ? tool_fail("memory files cannot be used here: %s", tool_write_error(error)) : 0;
}

static int check_socket(void) {
    struct sockaddr_un any = {.sun_family = AF_UNIX}; /* an abstract name of the kernel's choice */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int error = fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof(sa_family_t)) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    return error ? tool_fail("this system does not allow unix sockets: %s", strerror(error)) : 0;
}

/* ---- where the libraries are --------------------------------------------------------------------------- */

struct libraries {
    char preload[PATH_MAX], path[PATH_MAX];
};

static bool there(const char *folder, const char *place, struct libraries *out) {
    char name[PATH_MAX];
    if (snprintf(name, sizeof name, "%s/%s", folder, place) >= (int)sizeof name)
        return false;
    char whole[PATH_MAX];
    if (!realpath(name, whole))
        return false;
    if (snprintf(out->preload, sizeof out->preload, "%s/libsluice-soft.so", whole) >=
            (int)sizeof out->preload ||
        snprintf(out->path, sizeof out->path, "%s/sluice-soft", whole) >= (int)sizeof out->path)
        return false;
    return access(out->preload, R_OK) == 0;
}

static int find(struct libraries *out) {
    static const char *const places[] = {SLUICE_BIN_TO_LIB, "../lib", "../lib64"};
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return tool_fail("cannot find out where this program is: /proc is missing");
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (there(self, places[i], out))
            return 0;
    return tool_fail("libsluice-soft.so is not where it belongs: %.200s/%s", self,
                     SLUICE_BIN_TO_LIB);
}

/* The address sanitizer ends a program before which anything else was loaded. */
static bool refuses_preload(const char *program) {
    return program_file_needs(program, "libasan.so") || program_file_needs(program, "libhwasan.so");
}

/* value in front of what the variable holds already. */
static int put(const char *variable, const char *value, const char *separators) {
    const char *old = getenv(variable);
    char both[PATH_MAX * 2];
    if (strpbrk(value, separators))
        return tool_fail("the folder's name cannot be put into %s: %.200s", variable, value);
    int n = old && *old ? snprintf(both, sizeof both, "%s:%s", value, old)
                        : snprintf(both, sizeof both, "%s", value);
    if (n >= (int)sizeof both || setenv(variable, both, 1) != 0)
        return tool_fail("%s is too long", variable);
    return 0;
}

static int set_environment(bool by_path) {
    struct libraries libraries;
    int rc = find(&libraries);
    if (rc != 0)
        return rc;
    if (!by_path)
        return put("LD_PRELOAD", libraries.preload, ": ");
    char one[PATH_MAX + 32];
    snprintf(one, sizeof one, "%s/libibverbs.so.1", libraries.path);
    if (access(one, R_OK) != 0)
        return tool_fail("built without the libraries for --library-path: %.200s", one);
    return put("LD_LIBRARY_PATH", libraries.path, ":;");
}

static int become(char **argv) {
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGPIPE, SIG_DFL); /* handlers go by themselves, what is ignored stays so */
    execvp(argv[0], argv);
    int error = errno;
    tool_fail("cannot start %.200s: %s", argv[0], strerror(error));
    return error == ENOENT ? 127 : 126;
}

int run_main(int argc, char **argv) {
    bool by_path = false, preload = false;
    const struct option list[] = {
        {.name = "preload",
         .kind = OPTION_FLAG,
         .out = &preload,
         .help = "put libsluice-soft.so into LD_PRELOAD (default, but for a program\n"
                 "with the address sanitizer, which takes no library in front of its own)"},
        {.name = "library-path",
         .kind = OPTION_FLAG,
         .out = &by_path,
         .help = "put libibverbs.so.1 and librdmacm.so.1 in front of the system's,\n"
                 "in LD_LIBRARY_PATH"}};
    struct options options = {
        .about = "run: a program that uses libibverbs or librdmacm, on the software device",
        .usage = "run [--preload | --library-path] [--] PROGRAM [ARGUMENT...]",
        .list = list,
        .count = sizeof list / sizeof *list,
        .notes =
            "Programs of one host that were started so reach each other, and nothing else.\n"
            "The exit status is the program's; 126 or 127: it cannot be started; 1: the system\n"
            "lacks what the device needs, and what is said in one line; 2: wrong usage.\n"};
    int own = 1; /* what follows is the program's */
    while (own < argc && argv[own][0] == '-' && strcmp(argv[own], "--") != 0)
        own++;
    int rc = options_main(&options, own, argv);
    if (rc >= 0)
        return rc;
    if (preload && by_path)
        return tool_usage("run: --preload and --library-path exclude each other");
    int i = own < argc && strcmp(argv[own], "--") == 0 ? own + 1 : own;
    if (i >= argc)
        return tool_usage("run: the program is missing");
    rc = check_memfd();
    if (rc == 0)
        rc = check_socket();
    if (rc == 0)
        rc = set_environment(by_path || (!preload && refuses_preload(argv[i])));
    return rc == 0 ? become(argv + i) : rc;
}
