/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * crc32c.c - the polynomial 0x1edc6f41 reflected, from and to all ones. The CPU's instruction computes it, SSE4.2 (in
 * three chains where there is PCLMUL) or ARMv8's CRC32, if the running CPU has one; a table otherwise. Where the CPU
 * has carry-less products of 512 bits, long input is folded.
 *
 * Pure; any thread.
 */
#include "soft/iwarp/crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#endif

/* ---- by a table, a byte at a time --------------------------------------------------------------------- */

/* The state that each byte leaves behind when the state before was zero. */
static const uint32_t table[256] = {
    0x00000000, 0xf26b8303, 0xe13b70f7, 0x1350f3f4, 0xc79a971f, 0x35f1141c, 0x26a1e7e8, 0xd4ca64eb,
    0x8ad958cf, 0x78b2dbcc, 0x6be22838, 0x9989ab3b, 0x4d43cfd0, 0xbf284cd3, 0xac78bf27, 0x5e133c24,
    0x105ec76f, 0xe235446c, 0xf165b798, 0x030e349b, 0xd7c45070, 0x25afd373, 0x36ff2087, 0xc494a384,
    0x9a879fa0, 0x68ec1ca3, 0x7bbcef57, 0x89d76c54, 0x5d1d08bf, 0xaf768bbc, 0xbc267848, 0x4e4dfb4b,
    0x20bd8ede, 0xd2d60ddd, 0xc186fe29, 0x33ed7d2a, 0xe72719c1, 0x154c9ac2, 0x061c6936, 0xf477ea35,
    0xaa64d611, 0x580f5512, 0x4b5fa6e6, 0xb93425e5, 0x6dfe410e, 0x9f95c20d, 0x8cc531f9, 0x7eaeb2fa,
    0x30e349b1, 0xc288cab2, 0xd1d83946, 0x23b3ba45, 0xf779deae, 0x05125dad, 0x1642ae59, 0xe4292d5a,
    0xba3a117e, 0x4851927d, 0x5b016189, 0xa96ae28a, 0x7da08661, 0x8fcb0562, 0x9c9bf696, 0x6ef07595,
    0x417b1dbc, 0xb3109ebf, 0xa0406d4b, 0x522bee48, 0x86e18aa3, 0x748a09a0, 0x67dafa54, 0x95b17957,
    0xcba24573, 0x39c9c670, 0x2a993584, 0xd8f2b687, 0x0c38d26c, 0xfe53516f, 0xed03a29b, 0x1f682198,
    0x5125dad3, 0xa34e59d0, 0xb01eaa24, 0x42752927, 0x96bf4dcc, 0x64d4cecf, 0x77843d3b, 0x85efbe38,
    0xdbfc821c, 0x2997011f, 0x3ac7f2eb, 0xc8ac71e8, 0x1c661503, 0xee0d9600, 0xfd5d65f4, 0x0f36e6f7,
    0x61c69362, 0x93ad1061, 0x80fde395, 0x72966096, 0xa65c047d, 0x5437877e, 0x4767748a, 0xb50cf789,
    0xeb1fcbad, 0x197448ae, 0x0a24bb5a, 0xf84f3859, 0x2c855cb2, 0xdeeedfb1, 0xcdbe2c45, 0x3fd5af46,
    0x7198540d, 0x83f3d70e, 0x90a324fa, 0x62c8a7f9, 0xb602c312, 0x44694011, 0x5739b3e5, 0xa55230e6,
    0xfb410cc2, 0x092a8fc1, 0x1a7a7c35, 0xe811ff36, 0x3cdb9bdd, 0xceb018de, 0xdde0eb2a, 0x2f8b6829,
    0x82f63b78, 0x709db87b, 0x63cd4b8f, 0x91a6c88c, 0x456cac67, 0xb7072f64, 0xa457dc90, 0x563c5f93,
    0x082f63b7, 0xfa44e0b4, 0xe9141340, 0x1b7f9043, 0xcfb5f4a8, 0x3dde77ab, 0x2e8e845f, 0xdce5075c,
    0x92a8fc17, 0x60c37f14, 0x73938ce0, 0x81f80fe3, 0x55326b08, 0xa759e80b, 0xb4091bff, 0x466298fc,
    0x1871a4d8, 0xea1a27db, 0xf94ad42f, 0x0b21572c, 0xdfeb33c7, 0x2d80b0c4, 0x3ed04330, 0xccbbc033,
    0xa24bb5a6, 0x502036a5, 0x4370c551, 0xb11b4652, 0x65d122b9, 0x97baa1ba, 0x84ea524e, 0x7681d14d,
    0x2892ed69, 0xdaf96e6a, 0xc9a99d9e, 0x3bc21e9d, 0xef087a76, 0x1d63f975, 0x0e330a81, 0xfc588982,
    0xb21572c9, 0x407ef1ca, 0x532e023e, 0xa145813d, 0x758fe5d6, 0x87e466d5, 0x94b49521, 0x66df1622,
    0x38cc2a06, 0xcaa7a905, 0xd9f75af1, 0x2b9cd9f2, 0xff56bd19, 0x0d3d3e1a, 0x1e6dcdee, 0xec064eed,
    0xc38d26c4, 0x31e6a5c7, 0x22b65633, 0xd0ddd530, 0x0417b1db, 0xf67c32d8, 0xe52cc12c, 0x1747422f,
    0x49547e0b, 0xbb3ffd08, 0xa86f0efc, 0x5a048dff, 0x8ecee914, 0x7ca56a17, 0x6ff599e3, 0x9d9e1ae0,
    0xd3d3e1ab, 0x21b862a8, 0x32e8915c, 0xc083125f, 0x144976b4, 0xe622f5b7, 0xf5720643, 0x07198540,
    0x590ab964, 0xab613a67, 0xb831c993, 0x4a5a4a90, 0x9e902e7b, 0x6cfbad78, 0x7fab5e8c, 0x8dc0dd8f,
    0xe330a81a, 0x115b2b19, 0x020bd8ed, 0xf0605bee, 0x24aa3f05, 0xd6c1bc06, 0xc5914ff2, 0x37faccf1,
    0x69e9f0d5, 0x9b8273d6, 0x88d28022, 0x7ab90321, 0xae7367ca, 0x5c18e4c9, 0x4f48173d, 0xbd23943e,
    0xf36e6f75, 0x0105ec76, 0x12551f82, 0xe03e9c81, 0x34f4f86a, 0xc69f7b69, 0xd5cf889d, 0x27a40b9e,
    0x79b737ba, 0x8bdcb4b9, 0x988c474d, 0x6ae7c44e, 0xbe2da0a5, 0x4c4623a6, 0x5f16d052, 0xad7d5351,
};

static uint32_t by_table(uint32_t state, const uint8_t *at, size_t bytes) {
    for (; bytes > 0; bytes--)
        state = state >> 8 ^ table[(uint8_t)(state ^ *at++)];
    return state;
}

/* ---- by an instruction, eight bytes at a time ----------------------------------------------------------- */

#if defined(__x86_64__)

static bool has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) static uint64_t step(uint64_t state, const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return _mm_crc32_u64(state, word);
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t state, const uint8_t *at,
                                                                 size_t bytes) {
    uint64_t wide = state;
    for (; bytes >= 8; bytes -= 8, at += 8)
        wide = step(wide, at);
    state = (uint32_t)wide;
    for (; bytes > 0; bytes--)
        state = _mm_crc32_u8(state, *at++);
    return state;
}

/* ---- by three chains of the instruction at a time --------------------------------------------------------- */

/*
 * The instruction takes three cycles, and one may begin each cycle. At the end the results of the first two chains are
 * moved on over the bytes of the chains behind them: a carry-less product with x to the power of 8 bits a byte less 33,
 * which the instruction reduces to 32 bits.
 */
#define CHAINS 3u
#define CHAIN_BYTES 128u
#define OVER_ONE 0x0d3b6092 /* x^(8 * 128 - 33) modulo the polynomial, reflected */
#define OVER_TWO 0xb9e02b86 /* x^(8 * 256 - 33) */

static bool has_chains(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

__attribute__((target("sse4.2,pclmul"))) static uint64_t move_on(uint64_t state, uint32_t power) {
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi64_si128((int64_t)state), _mm_cvtsi32_si128((int)power), 0);
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t
by_chains(uint32_t state, const uint8_t *at, size_t bytes) {
    for (; bytes >= CHAINS * CHAIN_BYTES; bytes -= CHAINS * CHAIN_BYTES) {
        uint64_t first = state, second = 0, third = 0;
        for (unsigned i = 0; i < CHAIN_BYTES; i += 8, at += 8) {
            first = step(first, at);
            second = step(second, at + CHAIN_BYTES);
            third = step(third, at + 2 * CHAIN_BYTES);
        }
        at += (CHAINS - 1) * CHAIN_BYTES;
        state = (uint32_t)(move_on(first, OVER_TWO) ^ move_on(second, OVER_ONE) ^ third);
    }
    return by_instruction(state, at, bytes);
}

/* ---- by folding 256 bytes at a time ----------------------------------------------------------------------- */

/*
 * A block of 16 bytes is moved on over D bytes by two carry-less products, of its first half with x to the power of
 * 8 D + 31 and of its second with 8 D - 33, both modulo the polynomial and reflected; the result is added to the block
 * that lies D bytes behind it. An instruction does that for four blocks. The instruction above reduces the last one.
 */
#define FOLD_BYTES 256u
#define FOLD_16 0x493c7d27, 0xf20c0dfe /* second half, first half */
#define FOLD_64 0x9e4addf8, 0x740eef02
#define FOLD_256 0xb9e02b86, 0xdcb17aa4

#define WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

static bool has_folds(void) {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
}

/* Four blocks, moved on, and those that lie there. */
WIDE static inline __m512i fold_wide(__m512i blocks, __m512i by, __m512i there) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(blocks, by, 0x00),
                                     _mm512_clmulepi64_epi128(blocks, by, 0x11), there, 0x96);
}

WIDE static inline __m128i fold_one(__m128i block, __m128i by, __m128i there) {
    return _mm_xor_si128(
        _mm_xor_si128(_mm_clmulepi64_si128(block, by, 0x00), _mm_clmulepi64_si128(block, by, 0x11)),
        there);
}

/* Of at least FOLD_BYTES. */
WIDE static uint32_t by_folds(uint32_t state, const uint8_t *at, size_t bytes) {
    const __m512i by_256 = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_256));
    const __m512i by_64 = _mm512_broadcast_i32x4(_mm_set_epi64x(FOLD_64));
    const __m128i by_16 = _mm_set_epi64x(FOLD_16);
    __m512i part[4];
    for (unsigned i = 0; i < 4; i++)
        part[i] = _mm512_loadu_si512(at + 64 * i);
    part[0] = _mm512_xor_si512(part[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    at += FOLD_BYTES, bytes -= FOLD_BYTES;
    for (; bytes >= FOLD_BYTES; bytes -= FOLD_BYTES, at += FOLD_BYTES)
        for (unsigned i = 0; i < 4; i++)
            part[i] = fold_wide(part[i], by_256, _mm512_loadu_si512(at + 64 * i));
    for (unsigned i = 1; i < 4; i++)
        part[i] = fold_wide(part[i - 1], by_64, part[i]);
    __m512i last = part[3];
    for (; bytes >= 64; bytes -= 64, at += 64)
        last = fold_wide(last, by_64, _mm512_loadu_si512(at));
    __m128i block =
        fold_one(_mm512_castsi512_si128(last), by_16, _mm512_extracti32x4_epi32(last, 1));
    block = fold_one(block, by_16, _mm512_extracti32x4_epi32(last, 2));
    block = fold_one(block, by_16, _mm512_extracti32x4_epi32(last, 3));
    uint64_t wide = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(block));
    wide = _mm_crc32_u64(wide, (uint64_t)_mm_extract_epi64(block, 1));
    return by_instruction((uint32_t)wide, at, bytes);
}

#elif defined(__aarch64__) && defined(__AARCH64EL__)

static bool has_instruction(void) {
    static atomic_int known; /* 0: not asked yet, 1: the CPU has none, 2: the CPU has it */
    int has = atomic_load_explicit(&known, memory_order_relaxed);
    if (has == 0) {
        has = getauxval(AT_HWCAP) & HWCAP_CRC32 ? 2 : 1;
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has == 2;
}

/* In assembly, since compilers differ in how a function is marked as using this extension. */
static uint32_t by_instruction(uint32_t state, const uint8_t *at, size_t bytes) {
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    }
    for (; bytes > 0; bytes--, at++)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)*at));
    return state;
}

#else

static bool has_instruction(void) {
    return false;
}

static uint32_t by_instruction(uint32_t state, const uint8_t *at, size_t bytes) {
    return by_table(state, at, bytes);
}

#endif

#if !defined(__x86_64__)

static bool has_chains(void) {
    return false;
}

static uint32_t by_chains(uint32_t state, const uint8_t *at, size_t bytes) {
    return by_instruction(state, at, bytes);
}

#define FOLD_BYTES SIZE_MAX

static bool has_folds(void) {
    return false;
}

static uint32_t by_folds(uint32_t state, const uint8_t *at, size_t bytes) {
    return by_instruction(state, at, bytes);
}

#endif

/* ---- calls of other files -------------------------------------------------------------------------------- */

bool iwarp_crc32c_has(enum iwarp_crc_way way) {
    switch (way) {
    case IWARP_CRC_FOLDS:
        return has_folds();
    case IWARP_CRC_CHAINS:
        return has_chains();
    case IWARP_CRC_INSTRUCTION:
        return has_instruction();
    default:
        return true;
    }
}

uint32_t iwarp_crc32c_by(enum iwarp_crc_way way, uint32_t crc, const void *data, size_t bytes) {
    switch (way) {
    case IWARP_CRC_FOLDS:
        return bytes >= FOLD_BYTES ? ~by_folds(~crc, data, bytes) : ~by_chains(~crc, data, bytes);
    case IWARP_CRC_CHAINS:
        return ~by_chains(~crc, data, bytes);
    case IWARP_CRC_INSTRUCTION:
        return ~by_instruction(~crc, data, bytes);
    default:
        return ~by_table(~crc, data, bytes);
    }
}

uint32_t iwarp_crc32c(uint32_t crc, const void *data, size_t bytes) {
    if (bytes >= FOLD_BYTES && has_folds())
        return ~by_folds(~crc, data, bytes);
    if (has_chains())
        return ~by_chains(~crc, data, bytes);
    return has_instruction() ? ~by_instruction(~crc, data, bytes) : ~by_table(~crc, data, bytes);
}
