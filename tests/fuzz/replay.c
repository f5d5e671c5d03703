/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * replay.c - what libFuzzer would call a target with, without libFuzzer: every file of a folder, in the order of their
 * names. Linked with each target where the address sanitizer is, so that every compiler has a search that is always the
 * same.
 *
 * usage: TARGET FOLDER-OR-FILE [NOTE]
 * NOTE is a file whose last line names the input that is being run, however the process ends.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

#define BYTES_MAX 4096

/* In memory of its own size: a read behind it is seen. */
static bool run(const char *path, FILE *note) {
    static uint8_t bytes[BYTES_MAX];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return false;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact)
        return false;
    if (note) {
        fprintf(note, "%s\n", path);
        fflush(note);
    }
    memcpy(exact, bytes, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return true;
}

static int not_hidden(const struct dirent *entry) {
    return entry->d_name[0] != '.';
}

int main(int argc, char **argv) {
    struct stat st;
    struct dirent **files = NULL;
    char path[4096 + 300];
    if (argc < 2 || argc > 3 || stat(argv[1], &st) != 0) {
        fprintf(stderr, "usage: %s FOLDER-OR-FILE [NOTE]\n", argv[0]);
        return 2;
    }
    FILE *note = argc == 3 ? fopen(argv[2], "w") : NULL;
    if (!S_ISDIR(st.st_mode))
        return run(argv[1], note) ? 0 : 1;
    int count = scandir(argv[1], &files, not_hidden, alphasort), good = 0;
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%.4000s/%s", argv[1], files[i]->d_name);
        good += run(path, note);
        free(files[i]);
    }
    free(files);
    if (note)
        fclose(note);
    printf("%d inputs\n", good);
    return good == count && count > 0 ? 0 : 1;
}
