/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * auth_test.c - proofs: known answers, every flipped bit is noticed and named rightly; HELLO: every
 * length and every byte is safe to decode.
 *
 * One thread. Whatever a decoder gets lies in memory of exactly that length.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/auth/auth.h"
#include "core/wire/frame.h"

_Static_assert(HELLO_BYTES_MAX <= 512 - FRAME_BYTES, "HELLO fits the smallest frame");

#define PRIVATE "private words"
#define PRIVATE_BYTES (sizeof PRIVATE - 1)

/* One greeting as both sides saw it; a test spoils what one of them sees. */
struct greeting {
    uint8_t key[32];
    struct auth_secret secret;
    uint8_t req[PRIVATE_DATA_REQ_BYTES], rep[PRIVATE_DATA_REP_BYTES];
    uint8_t private_data[PRIVATE_BYTES];
    uint32_t private_bytes;
    struct auth_proof listener, dialer;
};

/* The proofs go into the records as they would: the listener's into the REP. */
static void greet(struct greeting *g) {
    memset(g, 0, sizeof *g);
    for (unsigned i = 0; i < sizeof g->key; i++)
        g->key[i] = (uint8_t)(i + 1);
    for (unsigned i = 0; i < sizeof g->req; i++)
        g->req[i] = (uint8_t)(i * 7 + 1);
    for (unsigned i = 0; i < sizeof g->rep; i++)
        g->rep[i] = (uint8_t)(i * 11 + 3);
    g->secret = (struct auth_secret){g->key, sizeof g->key};
    memcpy(g->private_data, PRIVATE, PRIVATE_BYTES);
    g->private_bytes = PRIVATE_BYTES;
    auth_prove_listener(&g->listener, &g->secret, g->req, g->rep);
    memcpy(g->rep + 52, g->listener.mac, sizeof g->listener.mac);
    memcpy(g->rep + 84, g->listener.check, sizeof g->listener.check);
    auth_prove_dialer(&g->dialer, &g->secret, g->req, g->rep, g->private_data, g->private_bytes);
}

static sluice_reason listener_reason(const struct greeting *g) {
    return auth_verify_listener(&g->listener, &g->secret, g->req, g->rep);
}

static sluice_reason dialer_reason(const struct greeting *g) {
    return auth_verify_dialer(&g->dialer, &g->secret, g->req, g->rep, g->private_data,
                              g->private_bytes);
}

static void assert_hex(const uint8_t *bytes, size_t count, const char *hex) {
    char text[2 * AUTH_HMAC_BYTES + 1];
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

/* ---- known answers --------------------------------------------------------------------------- */

/* RFC 4231, cases 1, 2 and 6: a short, a very short and a long key. */
TEST(hmac_gives_the_known_answers_in_any_pieces) {
    static const char *const text[] = {"Hi There", "what do ya want for nothing?",
                                       "Test Using Larger Than Block-Size Key - Hash Key First"};
    static const char *const answer[] = {
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"};
    uint8_t key[3][131], out[AUTH_HMAC_BYTES];
    const size_t key_bytes[] = {20, 4, 131};
    memset(key[0], 0x0b, 20);
    memcpy(key[1], "Jefe", 4);
    memset(key[2], 0xaa, 131);
    for (unsigned i = 0; i < 3; i++) {
        size_t bytes = strlen(text[i]);
        for (size_t cut = 0; cut <= bytes; cut++) {
            struct auth_piece pieces[] = {
                {cut > 0 ? text[i] : NULL, cut}, {NULL, 0}, {text[i] + cut, bytes - cut}};
            auth_hmac(out, key[i], key_bytes[i], pieces, 3);
            assert_hex(out, sizeof out, answer[i]);
        }
    }
}

/* Computed by another implementation of docs/protocol.md. */
TEST(proofs_are_those_of_the_document) {
    struct greeting g;
    greet(&g);
    assert_hex(g.listener.check, 16, "a5758d1f15bbc4ebcbbb17d7a420a83e");
    assert_hex(g.listener.mac, 32,
               "c833602f071ae5f0bad2c658d8363903d9d7301585d34b73e0ee8bb8837d7fc2");
    assert_hex(g.dialer.check, 16, "df836f63a4c8c1c95a3ff28b6c44e4f5");
    assert_hex(g.dialer.mac, 32,
               "77e846af139b498a1a4d1bf9e659f616393c15829e525fd720d30b1c4a58a739");
}

/* ---- verification ---------------------------------------------------------------------------- */

TEST(both_proofs_verify) {
    struct greeting g;
    greet(&g);
    assert_int_equal(listener_reason(&g), SLUICE_REASON_NONE);
    assert_int_equal(dialer_reason(&g), SLUICE_REASON_NONE);
    for (uint32_t bytes = SLUICE_SECRET_MIN; bytes <= sizeof g.key; bytes++) {
        g.secret.count = bytes;
        auth_prove_listener(&g.listener, &g.secret, g.req, g.rep);
        auth_prove_dialer(&g.dialer, &g.secret, g.req, g.rep, NULL, 0);
        g.private_bytes = 0;
        assert_int_equal(listener_reason(&g), SLUICE_REASON_NONE);
        assert_int_equal(dialer_reason(&g), SLUICE_REASON_NONE);
    }
}

static void expect(sluice_reason got, sluice_reason want, const char *what, size_t bit) {
    if (got != want)
        fail_msg("bit %zu of %s: %s, expected %s", bit, what, sluice_reason_text((int)got),
                 sluice_reason_text((int)want));
}

/* Flips every bit in turn. Bytes from..to-1 are the nonce, from which the check is made. */
static void flip_all(struct greeting *g, uint8_t *bytes, size_t count, const char *what,
                     size_t nonce_from, size_t nonce_to, size_t listener_covers) {
    for (size_t bit = 0; bit < 8 * count; bit++) {
        size_t at = bit / 8;
        bool nonce = at >= nonce_from && at < nonce_to;
        sluice_reason wrong = nonce ? SLUICE_REASON_AUTH_FAILED : SLUICE_REASON_AUTH_ALTERED;
        bytes[at] ^= (uint8_t)(1u << bit % 8);
        expect(dialer_reason(g), wrong, what, bit);
        expect(listener_reason(g), at < listener_covers ? wrong : SLUICE_REASON_NONE, what, bit);
        bytes[at] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(dialer_reason(g), SLUICE_REASON_NONE);
    assert_int_equal(listener_reason(g), SLUICE_REASON_NONE);
}

TEST(every_flipped_bit_of_what_was_negotiated_is_noticed) {
    struct greeting g;
    greet(&g);
    flip_all(&g, g.req, sizeof g.req, "REQ", 40, 56, sizeof g.req);
    flip_all(&g, g.rep, sizeof g.rep, "REP", 36, 52, 52); /* behind lies the listener's proof */
    flip_all(&g, g.private_data, sizeof g.private_data, "the private data", 0, 0, 0);
}

TEST(private_data_cannot_be_cut_or_made_longer) {
    struct greeting g;
    greet(&g);
    for (g.private_bytes = 0; g.private_bytes < PRIVATE_BYTES; g.private_bytes++)
        assert_int_equal(dialer_reason(&g), SLUICE_REASON_AUTH_ALTERED);
    auth_prove_dialer(&g.dialer, &g.secret, g.req, g.rep, g.private_data, PRIVATE_BYTES - 1);
    assert_int_equal(dialer_reason(&g), SLUICE_REASON_AUTH_ALTERED);
}

static void flip_proof(struct greeting *g, struct auth_proof *proof,
                       sluice_reason reason(const struct greeting *)) {
    for (size_t bit = 0; bit < 8 * sizeof proof->check; bit++) {
        proof->check[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect(reason(g), SLUICE_REASON_AUTH_FAILED, "the check", bit);
        proof->mac[bit / 8] ^= 1; /* both wrong: without the key nothing else can be said */
        expect(reason(g), SLUICE_REASON_AUTH_FAILED, "the check, and the MAC", bit);
        proof->mac[bit / 8] ^= 1;
        proof->check[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * sizeof proof->mac; bit++) {
        proof->mac[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect(reason(g), SLUICE_REASON_AUTH_ALTERED, "the MAC", bit);
        proof->mac[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    assert_int_equal(reason(g), SLUICE_REASON_NONE);
}

TEST(every_flipped_bit_of_a_proof_is_noticed) {
    struct greeting g;
    greet(&g);
    flip_proof(&g, &g.listener, listener_reason);
    flip_proof(&g, &g.dialer, dialer_reason);
}

TEST(another_key_proves_nothing) {
    struct greeting g;
    greet(&g);
    for (size_t bit = 0; bit < 8 * sizeof g.key; bit++) {
        g.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
        expect(listener_reason(&g), SLUICE_REASON_AUTH_FAILED, "the secret", bit);
        expect(dialer_reason(&g), SLUICE_REASON_AUTH_FAILED, "the secret", bit);
        g.key[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    g.secret.count--;
    assert_int_equal(listener_reason(&g), SLUICE_REASON_AUTH_FAILED);
    assert_int_equal(dialer_reason(&g), SLUICE_REASON_AUTH_FAILED);
}

/* What somebody without the key can have: the other side's own proof, from the same greeting. */
TEST(the_proof_of_one_direction_is_none_in_the_other) {
    struct greeting g;
    struct auth_proof kept;
    greet(&g);
    kept = g.listener;
    g.listener = g.dialer;
    g.dialer = kept;
    assert_int_equal(listener_reason(&g), SLUICE_REASON_AUTH_FAILED);
    assert_int_equal(dialer_reason(&g), SLUICE_REASON_AUTH_FAILED);
}

/* ---- HELLO ----------------------------------------------------------------------------------- */

TEST(hello_comes_back_as_it_was_written) {
    for (uint32_t bytes = 0; bytes <= SLUICE_PRIVATE_MAX; bytes++) {
        struct auth_hello hello = {.private_bytes = bytes}, got;
        uint8_t wire[HELLO_BYTES_MAX + 1];
        memset(hello.proof.check, 0x11, sizeof hello.proof.check);
        memset(hello.proof.mac, 0x22, sizeof hello.proof.mac);
        for (uint32_t i = 0; i < bytes; i++)
            hello.private_data[i] = (uint8_t)(i ^ bytes);
        memset(wire, 0xee, sizeof wire);
        assert_int_equal(auth_hello_encode(&hello, wire), 50 + bytes);
        assert_int_equal(wire[0], 0x11);
        assert_int_equal(wire[15], 0x11);
        assert_int_equal(wire[16], 0x22);
        assert_int_equal(wire[47], 0x22);
        assert_int_equal(wire[48] | wire[49] << 8, bytes);
        assert_memory_equal(wire + 50, hello.private_data, bytes);
        assert_int_equal(wire[50 + bytes], 0xee);
        assert_int_equal(auth_hello_decode(&got, wire, 50 + bytes, true), SLUICE_REASON_NONE);
        assert_memory_equal(&got, &hello, sizeof hello);
    }
}

/* What the decoder must say, from the document. */
static sluice_reason hello_verdict(const uint8_t *in, size_t len, bool authenticated) {
    if (len < 50 || len != 50u + (in[48] | in[49] << 8))
        return SLUICE_REASON_MALFORMED;
    if (len > 50 + 256)
        return SLUICE_REASON_VALUE;
    for (unsigned i = 0; i < 48 && !authenticated; i++)
        if (in[i] != 0)
            return SLUICE_REASON_PROTOCOL;
    return SLUICE_REASON_NONE;
}

static void decode_exactly(const uint8_t *bytes, size_t len, bool authenticated) {
    uint8_t *exact = malloc(len ? len : 1); /* the sanitizer sees a byte read behind it */
    struct auth_hello got, untouched;
    assert_non_null(exact);
    memcpy(exact, bytes, len);
    memset(&got, 0xa5, sizeof got);
    untouched = got;
    sluice_reason reason = auth_hello_decode(&got, len ? exact : exact + 1, len, authenticated);
    if (reason != hello_verdict(bytes, len, authenticated))
        fail_msg("HELLO of %zu bytes: %s", len, sluice_reason_text((int)reason));
    if (reason != SLUICE_REASON_NONE) {
        assert_memory_equal(&got, &untouched, sizeof got);
    } else {
        assert_int_equal(got.private_bytes, len - 50);
        assert_memory_equal(got.private_data, bytes + 50, len - 50);
        assert_memory_equal(&got.proof, bytes, 48);
    }
    free(exact);
}

TEST(hello_of_every_length_is_judged_and_never_read_beyond) {
    uint8_t bytes[401];
    uint32_t random = 1;
    struct auth_hello got;
    assert_int_equal(auth_hello_decode(&got, NULL, 0, false), SLUICE_REASON_MALFORMED);
    for (size_t len = 0; len <= 400; len++) {
        for (unsigned round = 0; round < 40; round++) {
            memset(bytes, 0, sizeof bytes);
            for (size_t i = 0; round >= 4 && i < len; i++)
                bytes[i] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
            if (round & 1 && len >= 50) { /* the right length, and wrong by one */
                size_t says = len - 50 + (round % 8 == 7);
                bytes[48] = (uint8_t)says;
                bytes[49] = (uint8_t)(says >> 8);
            }
            if (round & 2)
                memset(bytes, 0, len < 48 ? len : 48);
            decode_exactly(bytes, len, round & 4);
        }
    }
}

TEST(a_proof_nobody_agreed_on_breaks_the_protocol) {
    struct auth_hello hello = {.private_bytes = 3}, got;
    uint8_t wire[HELLO_BYTES_MAX];
    size_t bytes = auth_hello_encode(&hello, wire);
    assert_int_equal(auth_hello_decode(&got, wire, bytes, false), SLUICE_REASON_NONE);
    for (size_t bit = 0; bit < 8 * 48; bit++) {
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(auth_hello_decode(&got, wire, bytes, false), SLUICE_REASON_PROTOCOL);
        assert_int_equal(auth_hello_decode(&got, wire, bytes, true), SLUICE_REASON_NONE);
        wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

int main(void) {
    if (!auth_init())
        return 1;
    return tests_run(NULL, NULL);
}
