/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * suite.h - what two hosts must be able to do with each other, however they are joined: latency, bandwidth,
 * requests, a file, messages, and one-sided operations from either side.
 */
#ifndef KERNEL_SUITE_H
#define KERNEL_SUITE_H

#include "support/far_flow.h"

#include <sluice/memory.h>

/* ---- tools ------------------------------------------------------------------------------------------ */

/* A tool over here against its server over there, which it finds at $AT; what it printed is in `out`. */
static int tool_run(const char *server, const char *client, char *out, size_t bytes) {
    struct peer peer;
    char line[640];
    far_start(&peer, "exec %s", server);
    int port = far_number(&peer, "listening on ");
    snprintf(line, sizeof line, "PATH=$SLUICE_BIN_DIR:$PATH; AT=%s:%d; %s", far_host(), port,
             client);
    FILE *pipe = popen(line, "r");
    must(pipe);
    size_t n = fread(out, 1, bytes - 1, pipe);
    out[n] = 0;
    int status = pclose(pipe);
    print_message("%s", out);
    int end = far_end(&peer);
    assert_int_equal(end, 0);
    return status;
}

LEVEL_TEST(latency_is_measured, "tools", 0) {
    char out[2048];
    assert_int_equal(tool_run("sluice-lat -p 0 --mode block",
                              "sluice-lat $AT --mode block -n 100 --json", out, sizeof out),
                     0);
    assert_non_null(strstr(out, "{\"size\": 64, \"iterations\": 100, \"p50_ns\": "));
}

LEVEL_TEST(bandwidth_is_measured, "tools", 0) {
    char out[2048];
    assert_int_equal(tool_run("sluice-bw -p 0 --mode block",
                              "sluice-bw $AT --mode block -b -s 64K -n 100 --json", out,
                              sizeof out),
                     0);
    assert_non_null(strstr(out, "\"messages\": 200,"));
}

LEVEL_TEST(requests_are_answered, "tools", 0) {
    char out[2048];
    assert_int_equal(tool_run("sluice-bw -p 0 --mode block",
                              "sluice-bw $AT --mode block --requests 8 -s 1K -n 200 --json", out,
                              sizeof out),
                     0);
    assert_non_null(strstr(out, "\"depth\": 8, \"requests\": 200,"));
}

/* The sum of what was sent, and the sum of what is there. */
static void send_a_file(unsigned bytes) {
    struct peer peer;
    char line[512], here[64] = "", there[64];
    far_start(&peer, "bash -c 'sluice-cat -l %s:0 2>&3 3>&- | cksum' 3>&1", far_host());
    int port = far_number(&peer, "listening on ");
    snprintf(line, sizeof line,
             "head -c %u /dev/urandom > file && cksum < file && "
             "$SLUICE_BIN_DIR/sluice-cat %s:%d < file",
             bytes, far_host(), port);
    FILE *out = popen(line, "r");
    must(out && fgets(here, sizeof here, out));
    must(pclose(out) == 0);
    here[strcspn(here, "\n")] = 0;
    snprintf(there, sizeof there, "%s", peer_line(&peer));
    assert_string_equal(here, there);
    assert_int_equal(far_end(&peer), 0);
    unlink("file");
}

LEVEL_TEST(a_file_arrives_as_it_was_sent, "tools", 0) {
    send_a_file(0);
    send_a_file(1);
    send_a_file(3000000);
}

/* ---- messages and memory ----------------------------------------------------------------------------- */

LEVEL_BOTH(messages_go_to_and_fro) {
    struct far_flow f;
    far_flow_open(&f, handlers_of(state), 0);
    far_flow_messages(&f, 200);
    far_flow_close(&f);
}

#define REGION_BYTES (1u << 20)
#define PART_BYTES 100000u /* what memory_peer puts at a time */

static struct note memory_expect(struct side *side, sluice_event_type type) {
    struct note note;
    must(side_next(side, &note, FLOW_SILENCE_NS));
    if (note.event.type != type)
        print_error("%s (status %d, %s)\n", sluice_event_name(note.event.type), note.event.status,
                    sluice_reason_text(note.event.reason));
    must(note.event.type == type && (type != SLUICE_DONE || note.event.status == 0));
    return note;
}

/* Our bytes go to the memory over there and come back; a word of it is added to. */
static void memory_there(unsigned rounds) {
    struct side side;
    struct peer target;
    sluice_region *region;
    sluice_token token;
    const uint64_t back_at = 500000, word_at = 800000;
    const sluice_send_options *o = SLUICE_SEND(.tag = 1);
    far_start(&target, "exec memory_peer target");
    int port = far_number(&target, "port ");
    side_open(&side, false, NULL);
    must(sluice_region_open(side.node, NULL, REGION_BYTES, 0, &region, NULL) == 0);
    far_address(true);
    sluice_session s = side_dial(&side, port, NULL);
    memory_expect(&side, SLUICE_UP);
    struct note note = memory_expect(&side, SLUICE_MESSAGE);
    must(sluice_size(note.msg) == sizeof token);
    memcpy(&token, sluice_data(note.msg), sizeof token);
    note_free(&note);
    uint8_t *data = sluice_region_data(region);
    for (unsigned i = 0; i < rounds; i++) {
        for (size_t k = 0; k < PART_BYTES; k++)
            data[k] = it_byte(k, i);
        must(sluice_put(s, region, 0, PART_BYTES, &token, 0, o) == 0);
        memory_expect(&side, SLUICE_DONE);
        must(sluice_get(s, region, back_at, PART_BYTES, &token, 0, o) == 0);
        memory_expect(&side, SLUICE_DONE);
        assert_memory_equal(data, data + back_at, PART_BYTES);
        if (far_iwarp())
            continue; /* it has no atomics */
        must(sluice_fetch_add(s, &token, word_at, 3, o) == 0);
        assert_int_equal(memory_expect(&side, SLUICE_DONE).event.value, i * 3);
    }
    side_close(&side, 0);
    assert_int_equal(far_end(&target), 0);
}

/* The other host dials, puts into our memory and says so: the bytes are there when it does. */
static void memory_here(unsigned rounds) {
    struct side side;
    struct peer peer;
    sluice_region *region;
    sluice_token token;
    const uint32_t rights = SLUICE_MAY_READ | SLUICE_MAY_WRITE;
    side_open(&side, false, NULL);
    must(sluice_region_open(side.node, NULL, REGION_BYTES, rights, &region, NULL) == 0);
    must(sluice_region_token(region, 0, REGION_BYTES, rights, &token) == 0);
    far_address(false);
    int port = side_listen(&side, NULL, NULL);
    far_start(&peer, "SLUICE_TEST_HOST=%s exec memory_peer put:%d %u", it_host(), port, rounds);
    sluice_session s = memory_expect(&side, SLUICE_UP).event.session;
    must(sluice_send_copy(s, &token, sizeof token, NULL) == 0);
    const uint8_t *data = sluice_region_data(region);
    for (unsigned i = 0; i < rounds; i++) {
        struct note note = memory_expect(&side, SLUICE_NOTIFIED);
        assert_int_equal(note.event.value, i);
        for (size_t k = 0; k < PART_BYTES; k++)
            must(data[k] == it_byte(k, i));
        must(sluice_send_copy(s, &i, sizeof i, NULL) == 0);
    }
    peer_expect(&peer, "done ");
    (void)far_end(&peer); /* it exits when the session does, or it is told */
    side_close(&side, 0);
}

LEVEL_TEST(memory_is_reached_from_either_side, "polled", 0) {
    memory_there(10);
    memory_here(10);
}

#endif
