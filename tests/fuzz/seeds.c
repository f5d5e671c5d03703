/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * seeds.c - writes the inputs a fuzz target starts from: for each kind a few that are right, so that
 * the fuzzer does not have to find the magic, the lengths and the ranges by itself.
 *
 * usage: fuzz_seeds TARGET FOLDER
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/auth/auth.h"
#include "core/wire/private_data.h"
#include "core/wire/frame.h"
#include "core/session.h"
#include "core/wire/token.h"

static const char *folder;
static unsigned written;
static int failed;

static void write_seed(const void *front, size_t front_bytes, const void *data, size_t bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/seed%u", folder, written++);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        failed = 1;
        return;
    }
    failed |= fwrite(front, 1, front_bytes, file) != front_bytes;
    failed |= fwrite(data, 1, bytes, file) != bytes;
    failed |= fclose(file) != 0;
}

/* What proposal_take() makes frames of 16 KiB, messages of 16 MiB, 16 and 8 deep, of; no keys. */
static const uint8_t plain[12] = {0x41, 0, 0, 5, 10, 16, 8, 60, 0, 100, 0, 0};
static const uint8_t keyed[12] = {0x41, 0, 1, 5, 10, 16, 8, 60, 0, 100, 0, 0};

static struct private_data_req sample_req(int key) {
    struct private_data_req req = {.version_min = 1,
                                   .version_max = 3,
                                   .features = 0x41 | (key ? PRIVATE_DATA_FEATURES_KNOWN : 0),
                                   .eager_log2 = 14,
                                   .message_log2 = 24,
                                   .depth_in = 16,
                                   .depth_out = 8,
                                   .credits = 64,
                                   .keepalive = 100,
                                   .key_id = key ? 7 : 0};
    memset(req.session_id, 0x51, sizeof req.session_id);
    return req;
}

static void reqs(void) {
    for (int key = 0; key < 2; key++) {
        struct private_data_req req = sample_req(key);
        uint8_t bytes[148] = {0};
        private_data_req_encode(&req, bytes);
        write_seed(key ? keyed : plain, 12, bytes, PRIVATE_DATA_REQ_BYTES);
        write_seed(key ? keyed : plain, 12, bytes, sizeof bytes);
        bytes[32] = 1; /* resume */
        write_seed(plain, 12, bytes, PRIVATE_DATA_REQ_BYTES);
    }
}

static void reps(void) {
    for (int key = 0; key < 2; key++) {
        struct private_data_rep rep = {.version = 1,
                                       .features = PRIVATE_DATA_FEATURE_GREETING |
                                                   (key ? PRIVATE_DATA_FEATURE_HMAC : 0),
                                       .eager_log2 = 12,
                                       .message_log2 = 20,
                                       .depth_in = 4,
                                       .depth_out = 3,
                                       .credits = 32,
                                       .keepalive = 200};
        memset(rep.session_id, 0x51, sizeof rep.session_id);
        if (key)
            memset(rep.mac, 0x33, sizeof rep.mac + sizeof rep.check);
        uint8_t bytes[196] = {0};
        private_data_rep_encode(&rep, bytes);
        write_seed(key ? keyed : plain, 12, bytes, PRIVATE_DATA_REP_BYTES);
        write_seed(key ? keyed : plain, 12, bytes, sizeof bytes);
    }
}

static void rejs(void) {
    static const char *const texts[] = {"", "not today",
                                        "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
                                        "\x1b[2J\xc2\x9b\xe0\x82\x9b"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct private_data_rej rej = {.reason = (uint16_t)(5 + i), .code = 4711};
        uint8_t bytes[PRIVATE_DATA_REJ_BYTES + 20] = {0};
        snprintf(rej.text, sizeof rej.text, "%s", texts[i]);
        write_seed(NULL, 0, bytes, private_data_rej_encode(&rej, bytes));
        write_seed(NULL, 0, bytes, sizeof bytes);
    }
}

/* In front, whether there is a proof; private data of none, of some, and of all that fits. */
static void hellos(void) {
    static const uint32_t sizes[] = {0, 5, SLUICE_PRIVATE_MAX};
    for (uint8_t proven = 0; proven < 2; proven++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct auth_hello hello = {.private_bytes = sizes[i]};
            if (proven)
                memset(&hello.proof, 0x33, sizeof hello.proof);
            memset(hello.private_data, 'x', sizes[i]);
            uint8_t bytes[HELLO_BYTES_MAX];
            write_seed(&proven, 1, bytes, auth_hello_encode(&hello, bytes));
        }
}

/* The counters of frame_fuzz.c: frames of 16 KiB, 64 credits of which 32 are free, 10 on the way; and
 * the greeting, if it is a frame of one. */
static void frames(void) {
    for (uint8_t type = FRAME_DATA; type < FRAME_TYPES; type++) {
        int numbered = FRAME_NUMBERED >> type & 1;
        bool any = numbered && type != FRAME_NOTIFY && type != FRAME_ANNOUNCE;
        uint8_t payload = any || type == FRAME_HELLO || type == FRAME_REFUSE ? 64
                          : type == FRAME_ANNOUNCE                           ? ANNOUNCE_BYTES
                          : type == FRAME_READY                              ? READY_BYTES
                                                                             : 0;
        uint8_t greeting = type == FRAME_HELLO                             ? 4 | GREET_HELLO
                           : type == FRAME_WELCOME || type == FRAME_REFUSE ? GREET_ANSWER
                                                                           : GREET_NONE;
        const uint8_t front[18] = {5,  60, 0,   32, 0, 100, 0,       0, 0,
                                   10, 0,  200, 0,  0, 0,   payload, 0, greeting};
        struct frame f = {.type = type,
                          .flags = type == FRAME_FRAG ? FRAME_FIRST : 0,
                          .credits = 3,
                          .sequence = 200u + (unsigned)numbered,
                          .ack = 105,
                          .length = payload,
                          .total = type == FRAME_FRAG ? 100000 : 0};
        uint64_t wire[FRAME_BYTES / 8];
        frame_put((uint8_t *)wire, &f);
        write_seed(front, sizeof front, wire, sizeof wire);
    }
}

static void tokens(void) {
    const struct token kinds[] = {
        {1, 1, 4096, 1}, {7, UINT32_MAX, UINT64_MAX, 1}, {2, 0x1234, 0x7f0000001000, 1 << 20}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint8_t right = 0; right < 2; right++) {
            sluice_token token;
            token_put(&token, &kinds[i]);
            write_seed(&right, 1, token.bytes, sizeof token.bytes);
        }
}

/* In front what pack_fuzz.c takes; then one item, and several of all types and lengths. */
static void packs(void) {
    for (uint8_t replies = 0; replies < 2; replies++)
        for (unsigned count = 1; count < 9; count += 3) {
            const uint8_t front[4] = {replies, 0, 0, FRAME_DATA};
            uint64_t words[40] = {0};
            uint32_t end = 0;
            for (unsigned i = 0; i < count; i++) {
                uint64_t *item = &words[(end + 7) / 8];
                uint32_t length = i * 5;
                item[0] = replies ? FRAME_REPLY : i & 1 ? FRAME_REQUEST : FRAME_DATA;
                item[1] = item[0] == FRAME_DATA ? 0 : 0x700000000 + i;
                item[0] |= (uint64_t)length << 32;
                memset(item + 2, 'x', length);
                end = (uint32_t)((uint8_t *)(item + 2) - (uint8_t *)words) + length;
            }
            write_seed(front, sizeof front, words, end);
        }
}

int main(int argc, char **argv) {
    const struct {
        const char *target;
        void (*write)(void);
    } kinds[] = {{"record_req_fuzz", reqs}, {"record_rep_fuzz", reps}, {"record_rej_fuzz", rejs},
                 {"hello_fuzz", hellos},    {"frame_fuzz", frames},    {"token_fuzz", tokens},
                 {"pack_fuzz", packs}};
    if (argc != 3) {
        fprintf(stderr, "usage: fuzz_seeds TARGET FOLDER\n");
        return 2;
    }
    folder = argv[2];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].target) == 0)
            kinds[i].write();
    return failed || written == 0;
}
