/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* program_file.c - see program_file.h. The file is anybody's: every offset in it is checked. */
#define _GNU_SOURCE
#include "common/program_file.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
    const uint8_t *bytes;
    size_t size;
};

static bool holds(const struct image *file, uint64_t offset, uint64_t bytes) {
    return offset <= file->size && bytes <= file->size - offset;
}

/* The i-th program header; false: there are no more. */
static bool segment(const struct image *file, unsigned i, Elf64_Phdr *out) {
    Elf64_Ehdr head;
    memcpy(&head, file->bytes, sizeof head);
    uint64_t at = head.e_phoff + (uint64_t)i * sizeof *out;
    if (i >= head.e_phnum || head.e_phentsize != sizeof *out || head.e_phoff > file->size ||
        !holds(file, at, sizeof *out))
        return false;
    memcpy(out, file->bytes + at, sizeof *out);
    return true;
}

/* Where an address of the running program lies in its file; file->size: nowhere. */
static uint64_t offset_of(const struct image *file, uint64_t address) {
    Elf64_Phdr part;
    for (unsigned i = 0; segment(file, i, &part); i++)
        if (part.p_type == PT_LOAD && address >= part.p_vaddr &&
            address - part.p_vaddr < part.p_filesz && part.p_offset <= file->size)
            return part.p_offset + (address - part.p_vaddr);
    return file->size;
}

static bool begins(const struct image *file, uint64_t offset, const char *text) {
    size_t length = strlen(text);
    return holds(file, offset, length) && memcmp(file->bytes + offset, text, length) == 0;
}

static bool needs(const struct image *file, const Elf64_Phdr *dynamic, const char *library) {
    uint64_t count = dynamic->p_filesz / sizeof(Elf64_Dyn), names = file->size;
    if (!holds(file, dynamic->p_offset, dynamic->p_filesz))
        return false;
    const uint8_t *entries = file->bytes + dynamic->p_offset;
    Elf64_Dyn entry;
    for (uint64_t i = 0; i < count; i++) {
        memcpy(&entry, entries + i * sizeof entry, sizeof entry);
        if (entry.d_tag == DT_STRTAB)
            names = offset_of(file, entry.d_un.d_ptr);
    }
    for (uint64_t i = 0; i < count && names < file->size; i++) {
        memcpy(&entry, entries + i * sizeof entry, sizeof entry);
        if (entry.d_tag == DT_NULL)
            break;
        if (entry.d_tag == DT_NEEDED && entry.d_un.d_val < file->size &&
            begins(file, names + entry.d_un.d_val, library))
            return true;
    }
    return false;
}

static bool image_needs(const struct image *file, const char *library) {
    Elf64_Phdr part;
    if (file->size < sizeof(Elf64_Ehdr) || memcmp(file->bytes, ELFMAG, SELFMAG) != 0 ||
        file->bytes[EI_CLASS] != ELFCLASS64)
        return false;
    for (unsigned i = 0; segment(file, i, &part); i++)
        if (part.p_type == PT_DYNAMIC)
            return needs(file, &part, library);
    return false;
}

static bool file_needs(const char *path, const char *library) {
    struct stat st;
    bool found = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        struct image file = {.size = (size_t)st.st_size};
        void *at = mmap(NULL, file.size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED) {
            file.bytes = at;
            found = image_needs(&file, library);
            munmap(at, file.size);
        }
    }
    close(fd);
    return found;
}

bool program_file_needs(const char *name, const char *library) {
    char path[PATH_MAX];
    if (strchr(name, '/'))
        return file_needs(name, library);
    const char *folders = getenv("PATH"); /* without it execvp() has places of its own */
    for (const char *at = folders; at && *at;) {
        size_t length = strcspn(at, ":");
        int n = length ? snprintf(path, sizeof path, "%.*s/%s", (int)length, at, name)
                       : snprintf(path, sizeof path, "./%s", name); /* an empty one: here */
        if (n < (int)sizeof path && access(path, X_OK) == 0)
            return file_needs(path, library);
        at += length + (at[length] == ':');
    }
    return false;
}
