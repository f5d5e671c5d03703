/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * crc32c.c - the polynomial 0x1edc6f41 reflected, from and to all ones. The CPU's instruction computes it, SSE4.2 (in
 * three chains where there is PCLMUL) or ARMv8's CRC32, if the running CPU has one that is faster than tables. Where the
 * CPU has carry-less products of 512 bits, long input is folded.
 *
 * Any thread.
 */
#include "soft/iwarp/crc32c.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "soft/ipc/engine.h"

/* ---- by tables, sixteen bytes at a time ----------------------------------------------------------------- */

#define SLICES 16u
#define POLYNOMIAL 0x82f63b78u /* reflected */

/* What each byte leaves behind, when the state before was zero, after so many bytes of zero behind it. */
static uint32_t table[SLICES][256];
static pthread_once_t table_made = PTHREAD_ONCE_INIT;

static void make_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; bit++)
            state = state >> 1 ^ (state & 1 ? POLYNOMIAL : 0);
        table[0][byte] = state;
    }
    for (unsigned slice = 1; slice < SLICES; slice++)
        for (unsigned byte = 0; byte < 256; byte++) {
            uint32_t before = table[slice - 1][byte];
            table[slice][byte] = before >> 8 ^ table[0][(uint8_t)before];
        }
}

static uint32_t word_at(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Four bytes, the last of which stands before `behind` others. */
static uint32_t four(uint32_t word, unsigned behind) {
    return table[behind + 3][(uint8_t)word] ^ table[behind + 2][(uint8_t)(word >> 8)] ^
           table[behind + 1][(uint8_t)(word >> 16)] ^ table[behind][word >> 24];
}

static uint32_t by_tables(uint32_t state, const uint8_t *at, size_t bytes) {
    for (; bytes >= SLICES; bytes -= SLICES, at += SLICES)
        state = four(state ^ word_at(at), 12) ^ four(word_at(at + 4), 8) ^
                four(word_at(at + 8), 4) ^ four(word_at(at + 12), 0);
    for (; bytes > 0; bytes--)
        state = state >> 8 ^ table[0][(uint8_t)(state ^ *at++)];
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
    return by_tables(state, at, bytes);
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
        (void)pthread_once(&table_made, make_table);
        return ~by_tables(~crc, data, bytes);
    }
}

/* ---- the way of this process ----------------------------------------------------------------------------- */

#define SAMPLE 1024u
#define ROUNDS 8u

static _Atomic enum iwarp_crc_way chosen = IWARP_CRC_WAYS; /* which is: none yet */

/* Of several times the shortest: in it nothing came between. */
static uint64_t time_of(enum iwarp_crc_way way) {
    static const uint8_t sample[SAMPLE];
    uint64_t least = UINT64_MAX;
    uint32_t crc = iwarp_crc32c_by(way, 0, sample, sizeof sample);
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t before = soft_now_ns();
        crc = iwarp_crc32c_by(way, crc, sample, sizeof sample);
        __asm__ volatile("" : : "r"(crc));
        uint64_t took = soft_now_ns() - before;
        least = took < least ? took : least;
    }
    return least;
}

/*
 * The instruction, except where the CPU is emulated: there it takes several times as long as the tables do. So the two are
 * measured once, which takes some microseconds; folds are faster wherever there are any.
 */
enum iwarp_crc_way iwarp_crc32c_way(void) {
    enum iwarp_crc_way way = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (__builtin_expect(way != IWARP_CRC_WAYS, 1))
        return way;
    way = IWARP_CRC_FOLDS;
    while (way > IWARP_CRC_TABLE && !iwarp_crc32c_has(way))
        way--;
    if (way != IWARP_CRC_TABLE && time_of(IWARP_CRC_TABLE) < time_of(way))
        way = IWARP_CRC_TABLE;
    atomic_store_explicit(&chosen, way, memory_order_relaxed);
    return way;
}

uint32_t iwarp_crc32c(uint32_t crc, const void *data, size_t bytes) {
    return iwarp_crc32c_by(iwarp_crc32c_way(), crc, data, bytes);
}
