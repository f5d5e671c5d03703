/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * capture_peer - writes what passes an interface into a file of libpcap's format, until SIGTERM or SIGINT.
 *
 *   capture_peer INTERFACE FILE
 *
 * It says "capturing" when nothing more escapes it. The root of an emulated guest has no program for this, and those of
 * a host need not be there. Exit status 1 where the kernel had to drop something: the file is no evidence then.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* ppoll */
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

enum { BLOCKS = 64, BLOCK_BYTES = 1 << 20, RETIRE_MS = 10, PACKET_BYTES = 1 << 18 };

static volatile sig_atomic_t ended;

static void on_end(int number) {
    (void)number;
    ended = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "capture_peer: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* A socket that sees the interface's packets, in a ring of blocks. */
static int open_ring(const char *interface, uint8_t **ring) {
    const int version = TPACKET_V3;
    struct tpacket_req3 request = {.tp_block_size = BLOCK_BYTES,
                                   .tp_block_nr = BLOCKS,
                                   .tp_frame_size = PACKET_BYTES,
                                   .tp_frame_nr = BLOCK_BYTES / PACKET_BYTES * BLOCKS,
                                   .tp_retire_blk_tov = RETIRE_MS};
    struct sockaddr_ll where = {.sll_family = AF_PACKET,
                                .sll_protocol = htons(ETH_P_ALL),
                                .sll_ifindex = (int)if_nametoindex(interface)};
    int fd = where.sll_ifindex ? socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &request, sizeof request) != 0)
        fail(interface);
    *ring = mmap(NULL, (size_t)BLOCKS * BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*ring == MAP_FAILED || bind(fd, (struct sockaddr *)&where, sizeof where) != 0)
        fail(interface);
    return fd;
}

static void write_head(FILE *file) {
    const struct {
        uint32_t magic;
        uint16_t major, minor;
        uint32_t zone, accuracy, packet_max, link;
    } head = {0xa1b2c3d4, 2, 4, 0, 0, PACKET_BYTES, 1 /* Ethernet */};
    fwrite(&head, sizeof head, 1, file);
}

/* The loopback interface shows each packet as sent and as received. */
static void write_packet(FILE *file, const struct tpacket3_hdr *packet, bool loopback) {
    const size_t behind = (sizeof *packet + TPACKET_ALIGNMENT - 1) / TPACKET_ALIGNMENT;
    const struct sockaddr_ll *from =
        (const void *)((const uint8_t *)packet + behind * TPACKET_ALIGNMENT);
    const uint32_t head[4] = {packet->tp_sec, packet->tp_nsec / 1000, packet->tp_snaplen,
                              packet->tp_len};
    if (loopback && from->sll_pkttype == PACKET_OUTGOING)
        return;
    fwrite(head, sizeof head, 1, file);
    fwrite((const uint8_t *)packet + packet->tp_mac, packet->tp_snaplen, 1, file);
}

/* False: the block is the kernel's. */
static bool write_block(FILE *file, struct tpacket_block_desc *block, bool loopback) {
    if (!(__atomic_load_n(&block->hdr.bh1.block_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER))
        return false;
    const uint8_t *packet = (const uint8_t *)block + block->hdr.bh1.offset_to_first_pkt;
    for (uint32_t i = 0; i < block->hdr.bh1.num_pkts; i++) {
        const struct tpacket3_hdr *head = (const void *)packet;
        write_packet(file, head, loopback);
        packet += head->tp_next_offset;
    }
    __atomic_store_n(&block->hdr.bh1.block_status, (uint32_t)TP_STATUS_KERNEL, __ATOMIC_RELEASE);
    return true;
}

int main(int argc, char **argv) {
    uint8_t *ring;
    FILE *file;
    sigset_t blocked, open;
    struct sigaction action = {.sa_handler = on_end};
    struct tpacket_stats_v3 seen;
    socklen_t size = sizeof seen;
    if (argc != 3 || !(file = fopen(argv[2], "wbe"))) {
        fprintf(stderr, "usage: capture_peer INTERFACE FILE\n");
        return 2;
    }
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &open);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    struct pollfd poll = {.fd = open_ring(argv[1], &ring), .events = POLLIN};
    write_head(file);
    puts("capturing");
    fflush(stdout);
    /* What passed before the signal is in a block that the kernel gives back within RETIRE_MS, and few are behind it. */
    const struct timespec wait = {.tv_nsec = 10l * RETIRE_MS * 1000000};
    unsigned next = 0, left = BLOCKS;
    while (left > 0) {
        void *block = ring + (size_t)next * BLOCK_BYTES;
        if (write_block(file, block, strcmp(argv[1], "lo") == 0)) {
            next = (next + 1) % BLOCKS;
            left -= ended != 0;
        } else if (ppoll(&poll, 1, &wait, &open) == 0 && ended) {
            left = 0;
        }
    }
    if (getsockopt(poll.fd, SOL_PACKET, PACKET_STATISTICS, &seen, &size) != 0 || fclose(file) != 0)
        fail(argv[2]);
    fprintf(stderr, "%u packets, %u dropped\n", seen.tp_packets, seen.tp_drops);
    return seen.tp_drops != 0;
}
