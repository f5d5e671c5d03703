/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * record_decide_test.c - random records do no harm, a refusal's text is printable, a decision lies
 * within both proposals, and the dialer's check refuses every value that does not.
 */
#include "support/record.h"

#include "common/sanitize.h"

#ifdef SANITIZE_THREAD
enum { RANDOM_RECORDS = 100000 }; /* one thread: there is nothing to find, and it takes long */
#else
enum { RANDOM_RECORDS = 1000000 };
#endif

/* ---- texts ------------------------------------------------------------------------------------ */

/* A refusal's text goes to a terminal: no control character of any kind survives. */
TEST(refusal_texts_are_made_printable) {
    const struct {
        const char *sent, *shown;
    } texts[] = {
        {"plain text, 100 %", "plain text, 100 %"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x1b[2J\a\r\n\t\x7f", "?[2J?????"},
        {"\x9b"
         "31m",
         "?31m"}, /* 8-bit control */
        {"\xc2\x9b"
         "31m",
         "??31m"},               /* the same as UTF-8 */
        {"\xe0\x82\x9b", "???"}, /* and overlong */
        {"\xf0\x80\x82\x9b", "????"},
        {"\xff\xfe\xc0\x80\xf8", "?????"},
        {"cut \xe2\x82", "cut ??"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        union any_record record = record_sample(REJ), got;
        uint8_t bytes[256];
        snprintf(record.rej.text, sizeof record.rej.text, "%s", texts[i].sent);
        size_t used = record_encode(REJ, &record, bytes);
        assert_int_equal(record_decode(REJ, &got, bytes, used), SLUICE_REASON_NONE);
        assert_string_equal(got.rej.text, texts[i].shown);
    }
    /* A zero byte inside would end the text early for some readers and not for others. */
    union any_record record = record_sample(REJ), got;
    uint8_t bytes[256];
    size_t used = record_encode(REJ, &record, bytes);
    bytes[10] = 0;
    assert_int_equal(record_decode(REJ, &got, bytes, used), SLUICE_REASON_NONE);
    assert_string_equal(got.rej.text, "no? today");
}

/* ---- random records -------------------------------------------------------------------------- */

/* A record that is right, then damaged a little: pure noise would never get past the magic. */
static size_t random_record(enum kind kind, uint8_t out[256]) {
    memset(out, 0, 256);
    size_t bytes = record_kind_bytes[kind];
    record_random_fill(out, bytes);
    if (record_below(16) == 0)
        return record_below(257);
    out[0] = 'S';
    out[1] = 'L';
    out[2] = kind == REJ ? 0 : 1;
    if (kind == REJ) {
        out[3] = (uint8_t)(8 + record_below(121));
        memset(out + out[3], 0, 256u - out[3]);
    } else {
        size_t features = kind == REQ ? 5 : 4;
        out[3] = kind == REQ ? 1 + (uint8_t)record_below(3) : PRIVATE_DATA_REP_BYTES;
        out[features + 2] =
            (uint8_t[]){0, 1, 3}[record_below(3)]; /* nothing, HANDSHAKE, and HMAC too */
        if (kind == REQ) {
            out[4] = PRIVATE_DATA_REQ_BYTES;
            if (!(out[7] & 2))
                memset(out + 36, 0, 4);
        } else {
            out[7] = 0;
        }
        out[8] = (uint8_t)(9 + record_below(8));
        out[9] = (uint8_t)(out[8] + record_below(41u - out[8]));
        uint32_t credits = 4 + record_below(1021);
        out[12] = (uint8_t)credits;
        out[13] = (uint8_t)(credits >> 8);
    }
    for (uint32_t damage = record_below(3); damage > 0; damage--)
        out[record_below(256)] ^= (uint8_t)(1u << record_below(8));
    return record_below(4) == 0 ? record_below(257) : bytes + record_below(257 - (uint32_t)bytes);
}

TEST(a_million_random_records) {
    record_seed = 20240229;
    unsigned good[KINDS] = {0};
    unsigned reasons[32] = {0};
    for (int i = 0; i < RANDOM_RECORDS; i++) {
        enum kind kind = (enum kind)(i % KINDS);
        uint8_t in[256], again[256];
        union any_record record, back;
        size_t len = random_record(kind, in);
        /* Reads behind len are seen by the sanitizer: the record ends where the memory ends. */
        uint8_t *exact = malloc(len ? len : 1);
        assert_non_null(exact);
        memcpy(exact, in, len);
        sluice_reason reason = record_decode_exact(kind, &record, exact, len);
        free(exact);
        reasons[reason]++;
        if (reason != SLUICE_REASON_NONE)
            continue;
        good[kind]++;
        size_t used = record_encode(kind, &record, again);
        if (kind != REJ) /* every byte of the input is in the record */
            assert_memory_equal(in, again, used);
        assert_int_equal(record_decode_exact(kind, &back, again, used), SLUICE_REASON_NONE);
        record_assert_same(kind, &back, &record);
    }
    /* The generator reaches what it is meant to reach. */
    for (enum kind kind = REQ; kind < KINDS; kind++)
        assert_uint_in_range(good[kind], RANDOM_RECORDS / 100, RANDOM_RECORDS / 2);
    const sluice_reason reached[] = {SLUICE_REASON_NOT_SLUICE, SLUICE_REASON_MALFORMED,
                                     SLUICE_REASON_VERSION, SLUICE_REASON_UNSUPPORTED,
                                     SLUICE_REASON_VALUE};
    unsigned total = good[REQ] + good[REP] + good[REJ];
    for (size_t i = 0; i < sizeof reached / sizeof reached[0]; i++) {
        assert_true(reasons[reached[i]] > 100);
        total += reasons[reached[i]];
    }
    assert_int_equal(total, RANDOM_RECORDS); /* and no other reason is ever given */
}

/* ---- decide and check ------------------------------------------------------------------------ */

static struct private_data_req random_proposal(void) {
    struct private_data_req req = {.version_min = 1, .version_max = (uint8_t)(1 + record_below(3))};
    req.eager_log2 = (uint8_t)(9 + record_below(8));
    req.message_log2 = (uint8_t)(req.eager_log2 + record_below(41u - req.eager_log2));
    req.depth_in = (uint8_t)record_below(256);
    req.depth_out = (uint8_t)record_below(256);
    req.credits = (uint16_t)(4 + record_below(1021));
    req.keepalive = record_below(4) ? (uint16_t)record_below(65536) : 0;
    req.features = record_below(65536);
    req.features |= record_below(2) ? PRIVATE_DATA_FEATURE_HANDSHAKE : 0;
    record_random_fill(req.session_id, 16);
    record_random_fill(req.nonce, 16);
    return req;
}

TEST(decisions_lie_within_both_proposals) {
    record_seed = 7;
    for (int i = 0; i < 100000; i++) {
        struct private_data_req req = random_proposal(), own = random_proposal();
        own.version_max = PRIVATE_DATA_VERSION_MAX;
        own.features =
            PRIVATE_DATA_FEATURES_KNOWN & ~PRIVATE_DATA_FEATURE_HMAC; /* what a node proposes */
        if (record_below(2)) {
            req.features |= PRIVATE_DATA_FEATURE_HANDSHAKE | PRIVATE_DATA_FEATURE_HMAC;
            req.key_id = 1 + record_below(1000);
            own.features |= PRIVATE_DATA_FEATURE_HMAC;
        }
        struct private_data_rep rep;
        assert_int_equal(private_data_decide(&rep, &req, &own), SLUICE_REASON_NONE);
        assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_NONE);
        assert_true(rep.eager_log2 <= req.eager_log2 && rep.eager_log2 <= own.eager_log2);
        assert_true(rep.message_log2 <= req.message_log2 && rep.message_log2 <= own.message_log2);
        assert_true(rep.depth_in <= own.depth_in && rep.depth_in <= req.depth_out);
        assert_true(rep.depth_out <= own.depth_out && rep.depth_out <= req.depth_in);
        assert_int_equal(rep.credits, own.credits);
        assert_true(rep.keepalive == 0
                        ? !req.keepalive || !own.keepalive
                        : rep.keepalive >= req.keepalive && rep.keepalive >= own.keepalive);
        assert_int_equal(rep.version, PRIVATE_DATA_VERSION_MAX);
        assert_int_equal(rep.features, req.features & own.features);
        assert_int_equal(rep.features & PRIVATE_DATA_FEATURES_MUST,
                         req.features & PRIVATE_DATA_FEATURES_MUST);
        assert_int_equal(rep.last_sequence, 0);
        assert_memory_equal(rep.session_id, req.session_id, 16);
        assert_memory_equal(rep.nonce, own.nonce, 16);
        /* What was decided can be sent. */
        uint8_t bytes[PRIVATE_DATA_REP_BYTES];
        struct private_data_rep back;
        private_data_rep_encode(&rep, bytes);
        assert_int_equal(private_data_rep_decode(&back, bytes, sizeof bytes), SLUICE_REASON_NONE);
        assert_int_equal(private_data_check(&back, &req), SLUICE_REASON_NONE);
    }
}

/* It takes the place of the session's, or is made beside it; where the listener has no such sessions, none is known. */
TEST(another_connection_of_a_session_is_one_or_the_other) {
    const uint32_t resumes = PRIVATE_DATA_FEATURE_RESUMES, joins = PRIVATE_DATA_FEATURE_JOINS;
    struct private_data_req req = record_sample_req(), own = record_sample_req();
    struct private_data_rep rep;
    req.last_sequence = own.last_sequence = 0;
    for (unsigned which = 1; which < 4; which++) {
        uint32_t bits = (which & 1 ? resumes : 0) | (which & 2 ? joins : 0);
        req.features = (req.features & ~(resumes | joins)) | bits;
        own.features |= resumes | joins;
        assert_int_equal(private_data_decide(&rep, &req, &own),
                         which == 3 ? SLUICE_REASON_UNSUPPORTED : SLUICE_REASON_NONE);
        own.features &= ~bits;
        assert_int_equal(private_data_decide(&rep, &req, &own), SLUICE_REASON_SESSION_UNKNOWN);
    }
}

TEST(every_value_is_decided_as_the_table_says) {
    struct private_data_req req = record_sample_req(), own = record_sample_req();
    struct private_data_rep rep;
    req.last_sequence = own.last_sequence = 0;
#define DECIDED(change, condition)                                                                 \
    do {                                                                                           \
        change;                                                                                    \
        assert_int_equal(private_data_decide(&rep, &req, &own), SLUICE_REASON_NONE);               \
        assert_true(condition);                                                                    \
    } while (0)
    DECIDED((req.version_max = 3, own.version_max = 2), rep.version == 2);
    DECIDED((req.version_max = 1, own.version_max = 2), rep.version == 1);
    DECIDED((req.version_min = 1, req.version_max = 255), rep.version == 2);
    const uint32_t known = PRIVATE_DATA_FEATURES_KNOWN & ~PRIVATE_DATA_FEATURE_JOINS;
    own.features = known | 0x0101;
    req.features = known | 0x8001;
    DECIDED(, rep.features == (known | 0x0001));
    DECIDED((req.eager_log2 = 12, own.eager_log2 = 11), rep.eager_log2 == 11);
    DECIDED(req.eager_log2 = 10, rep.eager_log2 == 10);
    DECIDED((req.message_log2 = 22, own.message_log2 = 21), rep.message_log2 == 21);
    DECIDED(req.message_log2 = 20, rep.message_log2 == 20);
    /* The listener serves what the dialer wants outstanding, and the other way round. */
    req.depth_in = 3;
    req.depth_out = 50;
    own.depth_in = 16;
    own.depth_out = 8;
    DECIDED(, rep.depth_in == 16 && rep.depth_out == 3);
    DECIDED((req.depth_in = 50, req.depth_out = 2), rep.depth_in == 2 && rep.depth_out == 8);
    DECIDED((req.depth_in = 0, req.depth_out = 0), rep.depth_in == 0 && rep.depth_out == 0);
    DECIDED((req.credits = 4, own.credits = 1024), rep.credits == 1024);
    DECIDED((req.credits = 1024, own.credits = 4), rep.credits == 4);
    DECIDED((req.keepalive = 5, own.keepalive = 7), rep.keepalive == 7);
    DECIDED((req.keepalive = 9, own.keepalive = 7), rep.keepalive == 9);
    DECIDED((req.keepalive = 0, own.keepalive = 7), rep.keepalive == 0);
    DECIDED((req.keepalive = 5, own.keepalive = 0), rep.keepalive == 0);
    DECIDED(own.session_id[3] ^= 1, memcmp(rep.session_id, req.session_id, 16) == 0);
    DECIDED(own.nonce[3] ^= 1, memcmp(rep.nonce, own.nonce, 16) == 0);
#undef DECIDED
    /* The proof is not the decision's to make. */
    const uint8_t zero[PRIVATE_DATA_MAC_BYTES] = {0};
    assert_memory_equal(rep.mac, zero, PRIVATE_DATA_MAC_BYTES);
    assert_memory_equal(rep.check, zero, PRIVATE_DATA_CHECK_BYTES);
}

/* A refusal leaves the output alone. */
static sluice_reason refusal(const struct private_data_req *req,
                             const struct private_data_req *own) {
    struct private_data_rep rep, before;
    memset(&before, 0xa5, sizeof before);
    memcpy(&rep, &before, sizeof rep);
    sluice_reason reason = private_data_decide(&rep, req, own);
    if (reason != SLUICE_REASON_NONE)
        assert_memory_equal(&rep, &before, sizeof rep);
    return reason;
}

TEST(decide_refuses_what_it_cannot_do) {
    struct private_data_req own = record_sample_req(), req = record_sample_req();
    req.features = own.features = PRIVATE_DATA_FEATURE_HANDSHAKE;
    req.key_id = req.last_sequence = 0;
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_NONE);
    req.version_min = 2;
    req.version_max = 3;
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_VERSION);
    req.version_min = req.version_max = 1;
    own.version_min = own.version_max = 2;
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_VERSION);
    own.version_min = own.version_max = 1;

    req.last_sequence = 1; /* wants to resume */
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_UNSUPPORTED);
    req.last_sequence = 0;

    req.key_id = 1; /* has a key, and the listener has none */
    req.features |= PRIVATE_DATA_FEATURE_HMAC;
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_AUTH_KEY);
    own.features |= PRIVATE_DATA_FEATURE_HMAC; /* both have one */
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_NONE);
    req.key_id = 0; /* the listener wants one */
    req.features &= ~PRIVATE_DATA_FEATURE_HMAC;
    assert_int_equal(refusal(&req, &own), SLUICE_REASON_AUTH_REQUIRED);
}

TEST(check_refuses_more_than_was_proposed) {
    struct private_data_req req = record_sample_req(), own = record_sample_req();
    req.key_id = req.last_sequence = 0;
    req.features = PRIVATE_DATA_FEATURE_HANDSHAKE | 0x0010;
    own.features = PRIVATE_DATA_FEATURE_HANDSHAKE;
    struct private_data_rep good, rep;
    assert_int_equal(private_data_decide(&good, &req, &own), SLUICE_REASON_NONE);
    assert_int_equal(private_data_check(&good, &req), SLUICE_REASON_NONE);
#define REFUSED(change, reason)                                                                    \
    do {                                                                                           \
        rep = good;                                                                                \
        change;                                                                                    \
        assert_int_equal(private_data_check(&rep, &req), reason);                                  \
    } while (0)
    REFUSED(rep.version = 2, SLUICE_REASON_VERSION);
    REFUSED(rep.version = 0, SLUICE_REASON_VERSION);
    for (unsigned bit = 0; bit < 24; bit++)
        if (!(req.features >> bit & 1))
            REFUSED(rep.features |= 1u << bit, SLUICE_REASON_UNSUPPORTED);
    REFUSED(rep.features |= 0x0010, SLUICE_REASON_NONE);
    REFUSED(rep.eager_log2--, SLUICE_REASON_NONE);
    REFUSED(rep.message_log2--, SLUICE_REASON_NONE);
    REFUSED(rep.depth_in = rep.depth_out = 0, SLUICE_REASON_NONE);
    REFUSED(rep.credits = 1024, SLUICE_REASON_NONE); /* the listener's own affair */
    REFUSED(rep.eager_log2 = req.eager_log2 + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.message_log2 = req.message_log2 + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.depth_in = req.depth_out + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.depth_out = req.depth_in + 1, SLUICE_REASON_VALUE);
    REFUSED(rep.keepalive = req.keepalive - 1, SLUICE_REASON_VALUE);
    REFUSED(rep.keepalive = req.keepalive + 1, SLUICE_REASON_NONE);
    REFUSED(rep.keepalive = 0, SLUICE_REASON_NONE);
    for (unsigned at = 0; at < 16; at++)
        REFUSED(rep.session_id[at] ^= 1, SLUICE_REASON_PROTOCOL);
    REFUSED(rep.last_sequence = 1, SLUICE_REASON_PROTOCOL);
    for (unsigned at = 0; at < PRIVATE_DATA_MAC_BYTES; at++)
        REFUSED(rep.mac[at] = 1, SLUICE_REASON_PROTOCOL);
    for (unsigned at = 0; at < PRIVATE_DATA_CHECK_BYTES; at++)
        REFUSED(rep.check[at] = 1, SLUICE_REASON_PROTOCOL);
    /* In the table's order: what is broken first is the reason. */
    REFUSED((rep.session_id[0] ^= 1, rep.eager_log2 = 40), SLUICE_REASON_VALUE);
    REFUSED((rep.eager_log2 = 40, rep.features = 0), SLUICE_REASON_UNSUPPORTED);
    REFUSED((rep.features = 0, rep.version = 9), SLUICE_REASON_VERSION);
    req.keepalive = 0;
    REFUSED(rep.keepalive = 1, SLUICE_REASON_VALUE);
#undef REFUSED
}

/* Between the two somebody strikes out the proof, or the greeting that carries it. */
TEST(check_refuses_a_change_of_what_must_be_understood) {
    struct private_data_req req = record_sample_req(), own = record_sample_req();
    req.last_sequence = 0;
    struct private_data_rep good, rep;
    assert_int_equal(private_data_decide(&good, &req, &own), SLUICE_REASON_NONE);
    memset(good.mac, 0x5a, sizeof good.mac);
    memset(good.check, 0xa5, sizeof good.check);
    assert_int_equal(private_data_check(&good, &req), SLUICE_REASON_NONE);
    rep = good;
    rep.features &= ~PRIVATE_DATA_FEATURE_HMAC;
    assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_AUTH_ALTERED);
    rep.features &= ~PRIVATE_DATA_FEATURE_HANDSHAKE;
    assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_AUTH_ALTERED);
    rep.features = good.features & ~PRIVATE_DATA_FEATURE_HANDSHAKE;
    assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_UNSUPPORTED);
    rep.features = good.features & PRIVATE_DATA_FEATURES_MUST; /* the optional ones may go */
    assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_NONE);

    /* A greeting without a proof may not be struck out either. */
    req.key_id = 0;
    req.features = own.features = PRIVATE_DATA_FEATURE_HANDSHAKE;
    assert_int_equal(private_data_decide(&rep, &req, &own), SLUICE_REASON_NONE);
    assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_NONE);
    rep.features = 0;
    assert_int_equal(private_data_check(&rep, &req), SLUICE_REASON_UNSUPPORTED);
}
