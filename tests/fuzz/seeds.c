/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * seeds.c - writes the inputs a fuzz target starts from: for each kind a few that are right, so that
 * the fuzzer does not have to find the magic, the lengths and the ranges by itself.
 *
 * usage: fuzz_seeds TARGET FOLDER [COUNT SEED]
 * COUNT: so many more, made of these by numbers that only look random: several behind one another, some bytes
 * of them changed. For targets whose search is not the same every time when it is led by coverage, because
 * the device's thread has a part in that.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/auth/auth.h"
#include "core/wire/private_data.h"
#include "core/wire/frame.h"
#include "core/session.h"
#include "core/wire/token.h"
#include "seeds.h"
#include "soft/iwarp/ddp.h"
#include "soft/iwarp/fpdu.h"
#include "soft/iwarp/handshake.h"
#include "soft/iwarp/rdmap.h"
#include "soft/iwarp/wire.h"

#define KNOWN_MAX 256
#define BYTES_MAX 320

static const char *folder;
static unsigned written;
static int failed;

static struct {
    uint8_t bytes[BYTES_MAX], marks[BYTES_MAX];
    size_t count;
} known[KNOWN_MAX];
static unsigned known_count;
static uint8_t marks[BYTES_MAX];

void seed_mark(size_t at, enum seed_change change) {
    if (at < BYTES_MAX)
        marks[at] = (uint8_t)change;
}

static void remember(const void *front, size_t front_bytes, const void *data, size_t bytes) {
    if (known_count == KNOWN_MAX || front_bytes + bytes > BYTES_MAX)
        return;
    if (front_bytes > 0)
        memcpy(known[known_count].bytes, front, front_bytes);
    if (bytes > 0)
        memcpy(known[known_count].bytes + front_bytes, data, bytes);
    memcpy(known[known_count].marks, marks, sizeof marks);
    memset(marks, 0, sizeof marks);
    known[known_count++].count = front_bytes + bytes;
}

void seed_write(const void *front, size_t front_bytes, const void *data, size_t bytes) {
    char path[4096];
    snprintf(path, sizeof path, "%s/seed%u", folder, written++);
    FILE *file = fopen(path, "wb");
    if (!file) {
        perror(path);
        failed = 1;
        return;
    }
    failed |= front_bytes > 0 && fwrite(front, 1, front_bytes, file) != front_bytes;
    failed |= bytes > 0 && fwrite(data, 1, bytes, file) != bytes;
    failed |= fclose(file) != 0;
    remember(front, front_bytes, data, bytes);
}

/* ---- more of them -------------------------------------------------------------------------------- */

static uint64_t random_next;

static uint32_t random_below(uint32_t limit) {
    random_next = random_next * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_next >> 33) % limit;
}

static void change_bytes(uint8_t *bytes, size_t count) {
    for (uint32_t left = random_below(5); left > 0; left--) {
        uint8_t *at = &bytes[random_below((uint32_t)count)];
        *at = random_below(2) ? (uint8_t)random_below(256) : (uint8_t)(*at ^ 1u << random_below(8));
    }
}

/* One change, of as many bytes as are taken for it. Returns how many. */
static size_t make_change(uint8_t *at, enum seed_change change) {
    size_t n = 2;
    if (change == SEED_TELL) {
        at[0] = (uint8_t)(208 + random_below(16));
        at[1] = (uint8_t)(random_below(4) ? random_below(24) : random_below(256));
        n += 4;
    } else if (change == SEED_ANY) {
        at[0] = (uint8_t)(random_below(2) ? 208 + random_below(32) : 240 + 2 * random_below(8));
        at[1] = (uint8_t)random_below(256);
        n = at[0] < 240 ? 1 : 5;
    } else {
        at[0] = (uint8_t)(224 + random_below(32));
        at[1] = (uint8_t)random_below(10);
        n += at[1] < 7 ? 1 : 2;
    }
    for (size_t i = 2; i < n; i++)
        at[i] = (uint8_t)(random_below(3) ? 0 : random_below(256));
    return n;
}

/* Behind each other, here and there with a change. Returns how many bytes there are then. */
static size_t append(uint8_t *bytes, size_t n, unsigned from, size_t skip) {
    for (size_t i = skip; i < known[from].count && n < BYTES_MAX - 8; i++) {
        enum seed_change change = (enum seed_change)known[from].marks[i];
        if (change != SEED_SAME && random_below(6) == 0)
            n += make_change(bytes + n, change);
        else
            bytes[n++] = known[from].bytes[i];
    }
    return n;
}

/* The first byte of an input says how it begins: of those behind it is left out. */
static void write_more(unsigned count) {
    unsigned seeds = known_count;
    for (unsigned i = 0; i < count; i++) {
        uint8_t bytes[BYTES_MAX];
        size_t n = 0;
        for (uint32_t parts = 1 + random_below(6); parts > 0; parts--)
            n = append(bytes, n, random_below(seeds), n > 0);
        if (n > 0 && random_below(2))
            change_bytes(bytes, n);
        seed_write("", 0, bytes, n);
    }
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
        seed_write(key ? keyed : plain, 12, bytes, PRIVATE_DATA_REQ_BYTES);
        seed_write(key ? keyed : plain, 12, bytes, sizeof bytes);
        bytes[32] = 1; /* resume */
        seed_write(plain, 12, bytes, PRIVATE_DATA_REQ_BYTES);
    }
}

static void reps(void) {
    for (int key = 0; key < 2; key++) {
        struct private_data_rep rep = {.version = 1,
                                       .features = PRIVATE_DATA_FEATURE_HANDSHAKE |
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
        seed_write(key ? keyed : plain, 12, bytes, PRIVATE_DATA_REP_BYTES);
        seed_write(key ? keyed : plain, 12, bytes, sizeof bytes);
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
        seed_write(NULL, 0, bytes, private_data_rej_encode(&rej, bytes));
        seed_write(NULL, 0, bytes, sizeof bytes);
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
            seed_write(&proven, 1, bytes, auth_hello_encode(&hello, bytes));
        }
}

/* The counters of frame_fuzz.c: frames of 16 KiB, 64 credits of which 32 are free, 10 on the way; and
 * the greeting, if it is a frame of one. */
static void frames(void) {
    for (uint8_t type = FRAME_DATA; type < FRAME_TYPES; type++) {
        int numbered = FRAME_NUMBERED >> type & 1;
        bool any = numbered && type != FRAME_NOTIFY && type != FRAME_RTS;
        uint8_t payload = any || type == FRAME_HELLO || type == FRAME_REFUSE ? 64
                          : type == FRAME_RTS                                ? FRAME_RTS_BYTES
                          : type == FRAME_RTR                                ? FRAME_RTR_BYTES
                                                                             : 0;
        uint8_t greeting = type == FRAME_HELLO                             ? 4 | HANDSHAKE_HELLO
                           : type == FRAME_WELCOME || type == FRAME_REFUSE ? HANDSHAKE_ANSWER
                                                                           : HANDSHAKE_NONE;
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
        seed_write(front, sizeof front, wire, sizeof wire);
    }
}

static void tokens(void) {
    const struct token kinds[] = {
        {1, 1, 4096, 1}, {7, UINT32_MAX, UINT64_MAX, 1}, {2, 0x1234, 0x7f0000001000, 1 << 20}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (uint8_t right = 0; right < 2; right++) {
            sluice_token token;
            token_put(&token, &kinds[i]);
            seed_write(&right, 1, token.bytes, sizeof token.bytes);
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
            seed_write(front, sizeof front, words, end);
        }
}

static void texts_of(const char *const *texts, size_t count) {
    for (size_t i = 0; i < count; i++)
        seed_write("", 0, texts[i], strlen(texts[i]));
}

static void plans(void) {
    static const char *const texts[] = {
        "qp=1 send=100 status=RETRY_EXC_ERR",
        "qp=* recv=3 rnr=10\n# a remark\nqp=0x123401 send=* delay=1us",
        "cm=REQ n=2 loss; cm_in=REP delay=5ms",
        "qp=1 send=3 cut; qp=2 send=* corrupt\nqp=* recv=2.. stall=5ms",
        "seed=7 qp=* send=1/100 loss",
        "call=reg_mr n=3 error=ENOMEM",
        "event=CONNECT_REQUEST n=1 lose",
        "profile=rxe",
        "device=remove"};
    texts_of(texts, sizeof texts / sizeof *texts);
}

static void names(void) {
    static const char *const texts[] = {
        "sluice-soft.1/cm/106/47f000001/7471", "sluice-soft.1/cm/106/4any/1",
        "sluice-soft.1/cm/111/oany/65535/r1f-2a",
        "sluice-soft.1/cm/106/600000000000000000000000000000001/80"};
    texts_of(texts, sizeof texts / sizeof *texts);
}

/* One frame of iWARP. Returns its bytes. */
static size_t iwarp_frame(uint8_t *at, const struct iwarp_ddp *ddp, unsigned payload) {
    size_t n = IWARP_LENGTH_BYTES + iwarp_ddp_put(at + IWARP_LENGTH_BYTES, ddp);
    memset(at + n, 'x', payload);
    n += payload;
    iwarp_put16(at, (uint16_t)(n - IWARP_LENGTH_BYTES));
    for (; n % 4 != 0; n++)
        at[n] = 0;
    iwarp_crc32c_put(at + n, iwarp_crc32c(0, at, n));
    return n + IWARP_CRC_BYTES;
}

/* Around what the device makes itself. */
static size_t iwarp_own(uint8_t *at, uint8_t opcode, uint32_t msn, const uint8_t *payload,
                        unsigned bytes) {
    struct iwarp_ddp ddp = {opcode, true, 0, 0, iwarp_opcode_queue(opcode), msn, 0};
    size_t n = iwarp_frame(at, &ddp, bytes);
    memcpy(at + IWARP_LENGTH_BYTES + IWARP_UNTAGGED_BYTES, payload, bytes);
    iwarp_crc32c_put(at + n - IWARP_CRC_BYTES, iwarp_crc32c(0, at, n - IWARP_CRC_BYTES));
    return n;
}

/* What two of this device alone say: immediate data; atomics and their answers. */
static size_t iwarp_immediates(uint8_t *at) {
    static const struct {
        struct iwarp_ddp ddp;
        uint8_t payload;
    } rows[] = {{{IWARP_SEND_IMMEDIATE, false, 5, 0, 0, 1, 0}, 8},
                {{IWARP_SEND_IMMEDIATE, true, 5, 0, 0, 1, 8}, 5},
                {{IWARP_WRITE, true, 7, 24, 0, 0, 0}, 9},
                {{IWARP_IMMEDIATE_SOLICITED, true, 0, 0, 0, 2, 0}, IWARP_IMMEDIATE_BYTES},
                {{IWARP_SEND_IMMEDIATE_SOLICITED, true, 6, 0, 0, 3, 0}, 0}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        n += iwarp_frame(at + n, &rows[i].ddp, rows[i].payload);
    return n;
}

static size_t iwarp_atomics(uint8_t *at) {
    static const enum iwarp_atomic_kind kinds[] = {IWARP_FETCH_AND_ADD, IWARP_COMPARE_AND_SWAP};
    uint8_t payload[IWARP_ATOMIC_BYTES];
    size_t n = 0;
    for (uint32_t i = 0; i < 2; i++) {
        struct iwarp_atomic atomic = {kinds[i], i, 7, 16 + 8 * i, 3, 0};
        iwarp_atomic_put(payload, &atomic);
        n += iwarp_own(at + n, IWARP_ATOMIC_REQUEST, i + 1, payload, IWARP_ATOMIC_BYTES);
        iwarp_atomic_response_put(payload, &(struct iwarp_atomic_response){i, 9});
        n += iwarp_own(at + n, IWARP_ATOMIC_RESPONSE, i + 1, payload, IWARP_ATOMIC_RESPONSE_BYTES);
    }
    return n;
}

/* In front what iwarp_fuzz.c takes: how, receives and READs, seed. Each message alone, and some behind each other. */
static void iwarp(void) {
    static const struct {
        struct iwarp_ddp ddp;
        uint8_t payload;
    } rows[] = {{{IWARP_SEND, true, 0, 0, 0, 1, 0}, 6},
                {{IWARP_SEND_SOLICITED, false, 0, 0, 0, 2, 0}, 20},
                {{IWARP_WRITE, false, 7, 16, 0, 0, 0}, 8},
                {{IWARP_SEND_SOLICITED, true, 0, 0, 0, 2, 20}, 20},
                {{IWARP_WRITE, true, 7, 24, 0, 0, 0}, 9},
                {{IWARP_READ_RESPONSE, true, 9, 0, 0, 0, 0}, 40},
                {{IWARP_SEND_INVALIDATE, true, 7, 0, 0, 3, 0}, 3},
                {{IWARP_IMMEDIATE, true, 0, 0, 0, 4, 0}, IWARP_IMMEDIATE_BYTES},
                {{IWARP_READ_REQUEST, true, 0, 0, 1, 1, 0}, IWARP_READ_BYTES},
                {{IWARP_ATOMIC_RESPONSE, true, 0, 0, 3, 1, 0}, IWARP_ATOMIC_RESPONSE_BYTES},
                {{IWARP_TERMINATE, true, 0, 0, 2, 1, 0}, 24},
                {{IWARP_ATOMIC_REQUEST, true, 0, 0, 1, 1, 0}, IWARP_ATOMIC_BYTES}};
    static const uint8_t hows[] = {0x02, 0x03, 0x13};
    uint8_t bytes[1024];
    for (size_t h = 0; h < sizeof hows; h++) {
        const uint8_t front[3] = {hows[h], 0x1f, (uint8_t)h};
        for (size_t first = 0; first < sizeof rows / sizeof *rows; first++) {
            size_t n = 0;
            for (size_t i = first; i < sizeof rows / sizeof *rows && n < BYTES_MAX - 100; i++)
                n += iwarp_frame(bytes + n, &rows[i].ddp, rows[i].payload);
            seed_write(front, sizeof front, bytes, n);
        }
        seed_write(front, sizeof front, bytes, iwarp_immediates(bytes));
        seed_write(front, sizeof front, bytes, iwarp_atomics(bytes));
    }
    for (uint8_t reply = 0; reply < 2; reply++)
        for (uint8_t revision = 1; revision < 3; revision++) {
            struct iwarp_handshake h = {.reply = reply,
                                        .revision = revision,
                                        .crc = true,
                                        .enhanced = revision == 2,
                                        .peer_to_peer = true,
                                        .rtr_write = true,
                                        .ird = 4,
                                        .ord = 4,
                                        .extended = true,
                                        .data = (const uint8_t *)"some data",
                                        .bytes = 9};
            const uint8_t front[3] = {(uint8_t)(4 | reply << 3 | 3), 0, revision};
            seed_write(front, sizeof front, bytes, iwarp_handshake_put(bytes, &h));
        }
}

/* Acts of half_open_fuzz.c: the act, and 11 for each socket behind the first; what it takes. */
static void half_opens(void) {
    static const struct {
        uint8_t bytes[24], count;
    } rows[] = {
        {{2, 255, 10, 6, 10, 4}, 6},                              /* ask, accept, end */
        {{2, 255, 10, 7}, 4},                                     /* refuse */
        {{2, 7, 10, 2, 13, 10, 2, 255, 10, 8}, 10},               /* in pieces, drop */
        {{2, 19, 5, 13, 20, 15}, 6},                              /* break off */
        {{3, 255, 3, 10}, 4},                                     /* a wrong byte */
        {{3, 255, 16, 10, 14, 255, 17, 10, 25, 255, 18, 10}, 12}, /* at three sockets */
        {{1,   20,  'M', 'P', 'A', ' ', 'I',  'D', ' ', 'R', 'e', 'q',
          ' ', 'F', 'r', 'a', 'm', 'e', 0x50, 2,   0,   4,   10},
         23},                                                    /* by hand, unended */
        {{0, 11, 22, 33, 9, 2, 255, 13, 255, 10}, 10},           /* silent; listen anew */
        {{2, 255, 13, 255, 24, 255, 35, 255, 10, 9, 10}, 11},    /* more than the backlog has */
        {{2, 255, 10, 6, 2, 9, 1, 5, 1, 2, 3, 4, 5, 10, 5}, 15}, /* behind the reply; reset */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        seed_write(NULL, 0, rows[i].bytes, rows[i].count);
}

int main(int argc, char **argv) {
    const struct {
        const char *target;
        void (*write)(void);
    } kinds[] = {{"record_req_fuzz", reqs},
                 {"record_rep_fuzz", reps},
                 {"record_rej_fuzz", rejs},
                 {"hello_fuzz", hellos},
                 {"frame_fuzz", frames},
                 {"token_fuzz", tokens},
                 {"pack_fuzz", packs},
                 {"plan_fuzz", plans},
                 {"name_fuzz", names},
                 {"iwarp_fuzz", iwarp},
                 {"half_open_fuzz", half_opens},
                 {"rendezvous_fuzz", scenario_rendezvous},
                 {"credit_fuzz", scenario_credit},
                 {"request_fuzz", scenario_request},
                 {"greeting_fuzz", scenario_greeting},
                 {"control_fuzz", scenario_control},
                 {"slot_fuzz", scenario_slot},
                 {"stats_fuzz", scenario_stats}};
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: fuzz_seeds TARGET FOLDER [COUNT SEED]\n");
        return 2;
    }
    folder = argv[2];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argv[1], kinds[i].target) == 0)
            kinds[i].write();
    if (argc == 5 && known_count > 0) {
        random_next = strtoul(argv[4], NULL, 10);
        write_more((unsigned)strtoul(argv[3], NULL, 10));
    }
    return failed || written == 0;
}
