/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * capture_frames - makes of a capture of iWARP one in which each packet is one frame, in the order of its stream.
 *
 *   capture_frames IN OUT
 *
 * What two processors send may be captured in another order, what was lost is there twice, and a frame is split over packets
 * as TCP likes. A decoder that puts that together has limits of its own: tshark forgets what a packet has of a frame
 * if it is less than eight bytes, and then finds no frame any more. Built by support/judge_capture.sh.
 *
 * Exit status 1: bytes of a stream are in no whole frame. The frames before them are in OUT.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum {
    FILE_HEAD = 24,
    PACKET_HEAD = 16,
    ETHERNET = 14,
    STREAMS = 4096,
    HANDSHAKE = 20,
    PACKET_BYTES = 65535
};

/* A packet of TCP where it is in the file. */
struct packet {
    const uint8_t *head, *ip, *tcp, *data;
    uint32_t seq, bytes;
    struct packet *next;
};

/* One direction of a connection. */
struct stream {
    uint8_t ends[12]; /* addresses and ports */
    uint32_t next;    /* the byte that comes next */
    bool handshake;   /* its request or reply was seen */
    bool broken;
    struct packet *early; /* in the order of their bytes */
    uint8_t *partial;     /* of a frame; PACKET_BYTES */
    size_t count;
};

static struct stream streams[STREAMS];
static unsigned stream_count;
static FILE *out;

static void fail(const char *what) {
    printf("capture_frames: %s\n", what);
    exit(2);
}

static unsigned get16(const uint8_t *at) {
    return (unsigned)at[0] << 8 | at[1];
}
static uint32_t get32(const uint8_t *at) {
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

/* ---- out ------------------------------------------------------------------------------------------------- */

static void write_packet(const struct packet *p, uint32_t seq, const uint8_t *data, size_t bytes) {
    const size_t before = (size_t)(p->data - p->head) - PACKET_HEAD;
    const uint32_t total = (uint32_t)(before + bytes);
    uint8_t head[PACKET_HEAD + 256];
    memcpy(head, p->head, PACKET_HEAD + before);
    memcpy(head + 8, &total, sizeof total);
    memcpy(head + 12, &total, sizeof total);
    uint8_t *ip = head + (p->ip - p->head), *tcp = head + (p->tcp - p->head);
    ip[2] = (uint8_t)((total - ETHERNET) >> 8);
    ip[3] = (uint8_t)(total - ETHERNET);
    for (int i = 0; i < 4; i++)
        tcp[4 + i] = (uint8_t)(seq >> (24 - 8 * i));
    if (total - ETHERNET > PACKET_BYTES)
        fail("a frame is longer than a packet");
    fwrite(head, 1, PACKET_HEAD + before, out);
    fwrite(data, 1, bytes, out);
}

/* 0: not known yet. */
static size_t frame_bytes(const struct stream *s) {
    if (s->handshake)
        return s->count < 2 ? 0 : (get16(s->partial) + 2 + 3) / 4 * 4 + 4;
    return s->count < HANDSHAKE ? 0 : HANDSHAKE + get16(s->partial + 18);
}

/* `data` is what comes next of the stream; p brought it. */
static void take(struct stream *s, const struct packet *p, const uint8_t *data, size_t bytes) {
    for (size_t n; bytes > 0 && !s->broken; data += n, bytes -= n) {
        const size_t needed = s->handshake ? 2 : HANDSHAKE;
        size_t whole = frame_bytes(s);
        n = (whole ? whole : needed) - s->count;
        n = n < bytes ? n : bytes;
        memcpy(s->partial + s->count, data, n);
        s->count += n;
        s->next += (uint32_t)n;
        whole = frame_bytes(s);
        s->broken = whole > PACKET_BYTES || (!s->handshake && s->count == HANDSHAKE &&
                                             memcmp(s->partial, "MPA ID Re", 9) != 0);
        if (whole > 0 && s->count == whole && !s->broken) {
            write_packet(p, s->next - (uint32_t)whole, s->partial, whole);
            s->handshake = true;
            s->count = 0;
        }
    }
}

/* ---- in -------------------------------------------------------------------------------------------------- */

static struct stream *stream_of(const struct packet *p) {
    uint8_t ends[12];
    memcpy(ends, p->ip + 12, 8);
    memcpy(ends + 8, p->tcp, 4);
    /* The newest, as ports are used again. */
    for (unsigned i = stream_count; i > 0; i--)
        if (memcmp(streams[i - 1].ends, ends, sizeof ends) == 0)
            return &streams[i - 1];
    return NULL;
}

static void begin_stream(const struct packet *p) {
    struct stream *s = stream_of(p);
    write_packet(p, p->seq, NULL, 0);
    if (s && s->next == p->seq + 1)
        return; /* the same SYN again */
    if (stream_count == STREAMS)
        fail("too many connections");
    s = &streams[stream_count++];
    memcpy(s->ends, p->ip + 12, 8);
    memcpy(s->ends + 8, p->tcp, 4);
    s->next = p->seq + 1;
    s->partial = malloc(PACKET_BYTES);
    if (!s->partial)
        fail("no memory");
}

static void keep(struct stream *s, const struct packet *p) {
    struct packet **at = &s->early, *copy = malloc(sizeof *copy);
    if (!copy)
        fail("no memory");
    while (*at && (int32_t)((*at)->seq - p->seq) < 0)
        at = &(*at)->next;
    *copy = *p;
    copy->next = *at;
    *at = copy;
}

/* Of what is kept, all that comes next. */
static void advance(struct stream *s) {
    while (s->early && (int32_t)(s->early->seq - s->next) <= 0) {
        struct packet *p = s->early;
        const uint32_t known = s->next - p->seq;
        s->early = p->next;
        if (known < p->bytes)
            take(s, p, p->data + known, p->bytes - known);
        free(p);
    }
}

/* False: not a whole packet of TCP over IPv4. */
static bool parse(struct packet *p, const uint8_t *head, uint32_t captured) {
    const uint8_t *ip = head + PACKET_HEAD + ETHERNET;
    if (captured < ETHERNET + 40 || get16(ip - 2) != 0x0800 || ip[0] >> 4 != 4 ||
        ip[9] != IPPROTO_TCP)
        return false;
    const uint32_t ip_bytes = (ip[0] & 15u) * 4, total = captured - ETHERNET;
    if (total < ip_bytes + 20)
        return false;
    const uint8_t *tcp = ip + ip_bytes;
    const uint32_t before = ip_bytes + (uint32_t)(tcp[12] >> 4) * 4, length = get16(ip + 2);
    /* A large packet that the kernel splits later may say 0; a short one has a pad. */
    const uint32_t end = length == 0 || length > total ? total : length;
    if (end < before)
        return false;
    *p = (struct packet){head, ip, tcp, ip + before, get32(tcp + 4), end - before, NULL};
    return true;
}

static void take_packet(const struct packet *p) {
    if (p->tcp[13] & 2 /* SYN */) {
        begin_stream(p);
        return;
    }
    struct stream *s = stream_of(p);
    if (p->bytes == 0)
        return;
    if (!s)
        fail("a connection's begin was not captured");
    keep(s, p);
    advance(s);
}

/* What is left in no frame. */
static int judge(void) {
    unsigned frameless = 0;
    for (unsigned i = 0; i < stream_count; i++) {
        const struct stream *s = &streams[i];
        if (s->count == 0 && !s->early && !s->broken)
            continue;
        if (frameless++ == 0)
            printf("bytes of no frame: from port %u to %u, %zu bytes of one%s%s\n",
                   get16(s->ends + 8), get16(s->ends + 10), s->count,
                   s->early ? ", more behind a gap" : "",
                   s->broken ? ", which is none of iWARP" : "");
    }
    return frameless != 0;
}

int main(int argc, char **argv) {
    struct stat file;
    struct packet p;
    int fd = argc == 3 ? open(argv[1], O_RDONLY) : -1;
    if (fd < 0 || fstat(fd, &file) != 0 || !(out = fopen(argv[2], "wb")))
        fail("usage: capture_frames IN OUT");
    const size_t bytes = (size_t)file.st_size;
    const uint8_t *in =
        bytes < FILE_HEAD ? MAP_FAILED : mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (in == MAP_FAILED || memcmp(in, "\xd4\xc3\xb2\xa1", 4) != 0)
        fail("not a capture of capture_peer");
    fwrite(in, 1, FILE_HEAD, out);
    for (size_t at = FILE_HEAD; at + PACKET_HEAD <= bytes;) {
        uint32_t captured;
        memcpy(&captured, in + at + 8, sizeof captured);
        if (captured > bytes - at - PACKET_HEAD)
            fail("the capture's last packet is not whole");
        if (parse(&p, in + at, captured))
            take_packet(&p);
        at += PACKET_HEAD + captured;
    }
    if (fclose(out) != 0)
        fail("cannot write");
    return judge();
}
