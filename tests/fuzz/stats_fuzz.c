/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * stats_fuzz.c - any page as the counters of another process: taken only if it cannot shrink and is whole
 * and of this version; and whatever its counters and names are, what sluice-stat prints of it, as text and
 * as JSON, is printable and ends.
 *
 * Input: how the file is made, then words of 8 bytes each behind the number of the word they replace. The
 * tool is compiled into this program.
 */
#define main sluice_stat_main
#include "../../tools/src/sluice-stat.c" /* NOLINT(bugprone-suspicious-include) */
#undef main
#include "../../tools/src/common/json.c"         /* NOLINT(bugprone-suspicious-include) */
#include "../../tools/src/common/options.c"      /* NOLINT(bugprone-suspicious-include) */
#include "../../tools/src/common/session_rows.c" /* NOLINT(bugprone-suspicious-include) */
#include "../../tools/src/common/snapshot.c"     /* NOLINT(bugprone-suspicious-include) */
#include "../../tools/src/common/tool.c"         /* NOLINT(bugprone-suspicious-include) */
#include "../../tools/src/common/units.c"        /* NOLINT(bugprone-suspicious-include) */

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fuzz/fuzz.h"

#define WORDS (sizeof(struct stats_page) / 8)
#define HOW_OTHER_NAME 1u
#define HOW_NOT_SEALED 2u
#define HOW_SHORTER 4u
#define HOW_LONGER 8u
#define HOW_ONLY_GROW 16u

static _Alignas(struct stats_page) uint64_t words[WORDS];
static uint64_t clean[WORDS];

/* What a node would have written, with two loops. */
static void make_clean(void) {
    struct stats stats;
    PROVE(stats_open(&stats, "a node", "a device") == 0);
    for (int i = 0; i < 2; i++)
        atomic_store(&stats.page->loops[i].in_use, 1);
    stats_session_up(stats.page, 0, 77, 0, 2, "192.0.2.1:7471");
    memcpy(clean, stats.page, sizeof clean);
    stats_close(&stats);
}

static int make_file(uint64_t how) {
    size_t bytes = how & HOW_SHORTER ? sizeof words - 4096 : sizeof words;
    int fd = memfd_create(how & HOW_OTHER_NAME ? "sluice-stats" : "sluice-stat",
                          MFD_CLOEXEC | MFD_ALLOW_SEALING);
    PROVE(fd >= 0 && write(fd, words, bytes) == (ssize_t)bytes);
    PROVE(!(how & HOW_LONGER) || ftruncate(fd, (off_t)bytes + 4096) == 0);
    if (!(how & HOW_NOT_SEALED))
        PROVE(fcntl(fd, F_ADD_SEALS, how & HOW_ONLY_GROW ? F_SEAL_GROW : F_SEAL_SHRINK) == 0);
    return fd;
}

static bool is_good(uint64_t how) {
    const struct stats_page *page = (const struct stats_page *)(const void *)words;
    return (how & (HOW_OTHER_NAME | HOW_NOT_SEALED | HOW_ONLY_GROW)) == 0 &&
           (!(how & HOW_SHORTER) == !(how & HOW_LONGER)) && page->magic == STATS_MAGIC &&
           page->version == STATS_VERSION && page->bytes == sizeof *page;
}

/* Printable, and of JSON whatever is opened is closed. */
static void prove_text(const char *text, size_t bytes, bool json) {
    int depth = 0;
    bool quoted = false;
    PROVE(bytes > 0 && text[bytes - 1] == '\n');
    for (size_t i = 0; i < bytes; i++) {
        PROVE((text[i] >= ' ' && text[i] <= '~') || (text[i] == '\n' && (!json || i + 1 == bytes)));
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
        PROVE(!json || depth > 0 || i + 2 >= bytes);
    }
    PROVE(!json || (depth == 0 && !quoted));
}

static void print_and_prove(bool json) {
    const struct stat_options o = {.pid = (uint64_t)getpid(), .json = json};
    FILE *terminal = stdout;
    char *text = NULL;
    size_t bytes = 0;
    stdout = open_memstream(&text, &bytes);
    PROVE(stdout);
    int status = read_nodes(&o, NULL);
    fclose(stdout);
    stdout = terminal;
    PROVE(status == 0);
    prove_text(text, bytes, json);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    const struct stats_page *pages[2];
    uint64_t sums[SUMS] = {0};
    if (clean[0] == 0)
        make_clean();
    memcpy(words, clean, sizeof words);
    uint64_t how = fuzz_take(&in, 1);
    while (in.left > 0) {
        uint64_t at = fuzz_take(&in, 2) % WORDS;
        words[at] = fuzz_take(&in, 8);
    }
    int fd = make_file(how);
    int n = stats_attach((int)getpid(), pages, 2);
    PROVE(n == (is_good(how) ? 1 : how & HOW_OTHER_NAME ? -ENOENT : -EPROTO));
    if (n == 1) {
        stats_detach(pages[0]);
        print_and_prove(false);
        print_and_prove(true);
        const struct stat_options o = {.pid = (uint64_t)getpid()};
        PROVE(read_nodes(&o, sums) == 0);
    }
    close(fd);
    return 0;
}
