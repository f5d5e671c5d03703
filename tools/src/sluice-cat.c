/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sluice-cat - standard input of one side becomes standard output of the other. Both sides end
 * with status 0 only when every byte has arrived and was written: the sender closes the stream
 * with its length and a checksum, the receiver compares both and confirms.
 *
 * A data message is a prefix (magic u32, zero u32, offset u64, little-endian) and up to a chunk of
 * the stream. Nothing waits for anything but the two descriptors and the loop: a slow reader at the
 * far end stops the sender's reading, for as long as it takes.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/checksum.h"
#include "common/endpoint.h"
#include "common/options.h"
#include "common/tool.h"

#define MESSAGE_BYTES (UINT64_C(256) << 10)
#define PREFIX_BYTES 16
#define DATA_MAGIC UINT32_C(0x44544153) /* "SATD" */
#define GOODBYE_NS UINT64_C(5000000000)
#define PROGRESS_NS UINT64_C(200000000)

struct cat {
    struct endpoint ep;
    uint64_t total, checksum;
    bool progress;
    uint64_t start_ns, shown_ns;
};

static void show_progress(struct cat *cat, bool last) {
    if (!cat->progress)
        return;
    uint64_t now = sluice_now();
    if (!last && now - cat->shown_ns < PROGRESS_NS)
        return;
    cat->shown_ns = now;
    double seconds = (double)(now - cat->start_ns) / 1e9;
    fprintf(stderr, "\r%.1f MiB  %.1f s  %.1f MiB/s   %s", (double)cat->total / 1048576, seconds,
            seconds > 0 ? (double)cat->total / 1048576 / seconds : 0, last ? "\n" : "");
    fflush(stderr);
}

static void put_prefix(unsigned char *at, uint64_t offset) {
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(DATA_MAGIC >> (8 * i));
    memset(at + 4, 0, 4);
    for (int i = 0; i < 8; i++)
        at[8 + i] = (unsigned char)(offset >> (8 * i));
}

static bool is_data(const void *message, uint64_t bytes, uint64_t *offset) {
    unsigned char prefix[PREFIX_BYTES], expect[PREFIX_BYTES];
    if (bytes <= PREFIX_BYTES || bytes > MESSAGE_BYTES)
        return false;
    memcpy(prefix, message, sizeof prefix);
    put_prefix(expect, 0);
    if (memcmp(prefix, expect, 8) != 0)
        return false;
    *offset = 0;
    for (int i = 0; i < 8; i++)
        *offset |= (uint64_t)prefix[8 + i] << (8 * i);
    return true;
}

/* ---- sender ------------------------------------------------------------------------------------ */

static const char *position(const struct cat *cat) {
    static char text[80];
    snprintf(text, sizeof text, "after %llu bytes, before the end of the data",
             (unsigned long long)cat->total);
    return text;
}

/* Anything the receiver says while data flows is that it failed. */
static int look_at(struct cat *cat, const sluice_event *event) {
    struct control unexpected;
    if (event->type == SLUICE_MESSAGE)
        return endpoint_decode(&cat->ep, event, &unexpected, 0) != 0 ? TOOL_FAILED : 0;
    return cat->ep.closed ? endpoint_fail_closed(&cat->ep, position(cat)) : 0;
}

/* Sends, and waits for room as long as it takes. The message is gone in every case. */
static int send_patiently(struct cat *cat, sluice_msg *msg) {
    struct endpoint *ep = &cat->ep;
    for (;;) {
        int status = sluice_send(ep->session, msg, NULL);
        if (status == 0)
            return 0;
        ep->writable = false;
        sluice_event event;
        int rc = 0;
        /* ECLOSED: the reason comes with an event, perhaps behind a last word of the receiver. */
        bool wait = status == SLUICE_EAGAIN || status == SLUICE_ECLOSED;
        while (wait && rc == 0 && !ep->writable) {
            int n = endpoint_wait(ep, &event, SLUICE_OFF, -1, 0, NULL);
            rc = n < 0 ? TOOL_FAILED : look_at(cat, &event);
        }
        if (wait && rc == 0)
            continue;
        sluice_free(msg);
        return rc != 0 ? rc : tool_fail("cannot send: %s", sluice_strerror(status));
    }
}

/* Reads once and sends what came. *eof at the end. */
static int send_chunk(struct cat *cat, bool *eof) {
    struct endpoint *ep = &cat->ep;
    uint64_t bytes = ep->message_bytes_max < MESSAGE_BYTES ? ep->message_bytes_max : MESSAGE_BYTES;
    sluice_msg *msg;
    int status = sluice_alloc(ep->node, bytes, &msg);
    if (status != 0)
        return tool_fail("no memory for %llu bytes: %s", (unsigned long long)bytes,
                         sluice_strerror(status));
    unsigned char *at = sluice_data(msg);
    ssize_t got = read(STDIN_FILENO, at + PREFIX_BYTES, bytes - PREFIX_BYTES);
    if (got <= 0) {
        int error = errno;
        sluice_free(msg);
        if (got == 0)
            *eof = true;
        else if (error != EINTR && error != EAGAIN)
            return endpoint_fail_both(ep, "cannot read standard input: %s", strerror(error));
        return 0;
    }
    put_prefix(at, cat->total);
    cat->checksum = checksum_add(cat->checksum, at + PREFIX_BYTES, (size_t)got);
    sluice_trim(msg, PREFIX_BYTES + (size_t)got);
    int rc = send_patiently(cat, msg);
    if (rc == 0)
        cat->total += (uint64_t)got;
    return rc;
}

static int send_stream(struct cat *cat) {
    bool eof = false;
    while (!eof) {
        sluice_event event;
        bool readable = false;
        int n = endpoint_wait(&cat->ep, &event, SLUICE_OFF, STDIN_FILENO, POLLIN, &readable);
        int rc = n < 0 ? TOOL_FAILED : n > 0 ? look_at(cat, &event) : 0;
        if (rc == 0 && readable)
            rc = send_chunk(cat, &eof);
        if (rc != 0)
            return rc;
        show_progress(cat, false);
    }
    return 0;
}

static int finish_sending(struct cat *cat) {
    struct endpoint *ep = &cat->ep;
    struct control end = {.kind = CONTROL_END, .bytes = cat->total, .checksum = cat->checksum};
    struct control done;
    sluice_event event;
    sluice_msg *msg = endpoint_compose(ep, &end);
    int rc = msg == NULL ? TOOL_FAILED : send_patiently(cat, msg);
    if (rc == 0) /* the far end may be a slow pipe: no limit */
        rc = endpoint_await(ep, &event, SLUICE_OFF, NULL);
    if (rc == 0)
        rc = endpoint_decode(ep, &event, &done, CONTROL_DONE);
    if (rc == 0 && (done.bytes != cat->total || done.checksum != cat->checksum))
        rc = tool_fail("the receiver has something else than was sent: %llu of %llu bytes",
                       (unsigned long long)done.bytes, (unsigned long long)cat->total);
    return rc;
}

static int sender(struct cat *cat, const char *address) {
    struct endpoint *ep = &cat->ep;
    int rc = endpoint_dial(ep, address);
    if (rc != 0)
        return rc;
    cat->start_ns = sluice_now();
    struct control plan = {.kind = CONTROL_PLAN, .size = MESSAGE_BYTES, .flags = CONTROL_UNTIL_END};
    struct control ready;
    if (ep->message_bytes_max <= CONTROL_BYTES_OTHER)
        rc = tool_fail("the receiver takes messages of %llu bytes at most: too little",
                       (unsigned long long)ep->message_bytes_max);
    if (rc == 0)
        rc = endpoint_say(ep, &plan);
    if (rc == 0)
        rc = endpoint_hear(ep, &ready, CONTROL_READY, NULL);
    if (rc == 0)
        rc = send_stream(cat);
    if (rc == 0)
        rc = finish_sending(cat);
    if (rc == 0)
        show_progress(cat, true);
    if (!tool_stopped())
        endpoint_hangup(ep);
    return rc;
}

/* ---- receiver ---------------------------------------------------------------------------------- */

static int write_all(struct cat *cat, const unsigned char *at, uint64_t bytes) {
    while (bytes > 0) {
        ssize_t wrote = write(STDOUT_FILENO, at, bytes);
        if (tool_stopped())
            return TOOL_FAILED;
        if (wrote < 0 && errno == EAGAIN) {
            struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
            poll(&out, 1, -1);
            continue;
        }
        if (wrote < 0 && errno != EINTR)
            return endpoint_fail_both(&cat->ep, "cannot write standard output after %llu bytes: %s",
                                      (unsigned long long)cat->total, tool_write_error(errno));
        if (wrote > 0) {
            at += wrote;
            bytes -= (uint64_t)wrote;
            cat->total += (uint64_t)wrote;
        }
    }
    return 0;
}

static int confirm(struct cat *cat, const struct control *end) {
    struct endpoint *ep = &cat->ep;
    if (end->bytes != cat->total || end->checksum != cat->checksum)
        return endpoint_fail_both(ep, "%llu bytes came, %llu were sent, checksums %s",
                                  (unsigned long long)cat->total, (unsigned long long)end->bytes,
                                  end->checksum == cat->checksum ? "agree" : "differ");
    /* Some file systems report a failed write only now. */
    if (close(STDOUT_FILENO) != 0)
        return endpoint_fail_both(ep, "cannot write standard output: %s", tool_write_error(errno));
    struct control done = {.kind = CONTROL_DONE, .bytes = cat->total, .checksum = cat->checksum};
    return endpoint_say(ep, &done);
}

static int receive_stream(struct cat *cat) {
    struct endpoint *ep = &cat->ep;
    struct control end;
    for (;;) {
        sluice_event event;
        uint64_t offset;
        int n = endpoint_wait(ep, &event, SLUICE_OFF, -1, 0, NULL);
        if (n < 0)
            return TOOL_FAILED;
        if (ep->closed)
            return endpoint_fail_closed(ep, position(cat));
        if (event.type != SLUICE_MESSAGE)
            continue;
        const unsigned char *at = sluice_data(event.msg);
        if (!is_data(at, event.bytes, &offset)) {
            int rc = endpoint_decode(ep, &event, &end, CONTROL_END);
            return rc != 0 ? rc : confirm(cat, &end);
        }
        if (offset != cat->total)
            return endpoint_fail_both(ep, "data for offset %llu came where %llu was due",
                                      (unsigned long long)offset, (unsigned long long)cat->total);
        uint64_t bytes = event.bytes - PREFIX_BYTES;
        cat->checksum = checksum_add(cat->checksum, at + PREFIX_BYTES, bytes);
        int rc = write_all(cat, at + PREFIX_BYTES, bytes);
        if (rc != 0)
            return rc;
        show_progress(cat, false);
    }
}

static int receiver(struct cat *cat, const char *address) {
    struct endpoint *ep = &cat->ep;
    int rc = endpoint_listen(ep, address);
    if (rc == 0)
        rc = endpoint_accept(ep);
    if (rc != 0)
        return rc;
    if (ep->options.resume_ns == 0)    /* else the sender may come again */
        sluice_unlisten(ep->listener); /* one sender, then the port is free again */
    cat->start_ns = sluice_now();
    struct control plan, ready = {.kind = CONTROL_READY};
    rc = endpoint_hear(ep, &plan, CONTROL_PLAN, NULL);
    if (rc == 0)
        rc = endpoint_say(ep, &ready);
    if (rc == 0)
        rc = receive_stream(cat);
    if (rc == 0) {
        /* The sender hangs up when it has read the confirmation. */
        uint64_t until = sluice_now() + GOODBYE_NS;
        sluice_event event;
        while (!ep->closed && endpoint_wait(ep, &event, until, -1, 0, NULL) > 0)
            continue;
        show_progress(cat, true);
    }
    if (!tool_stopped())
        endpoint_hangup(ep);
    return rc;
}

/* ---- command line ------------------------------------------------------------------------------ */

static int address_of(const char *listen, const char *operand, char out[ADDRESSES_BYTES]) {
    uint64_t port;
    bool receives = listen != NULL;
    if (receives == (operand != NULL))
        return receives ? tool_usage("-l makes this the receiver, '%.80s' is one argument too many",
                                     operand)
                        : tool_usage("say where to: HOST:PORT sends, -l PORT receives");
    const char *text = receives ? listen : operand;
    if (receives && units_number(text, &port)) {
        if (port > 65535)
            return tool_usage("-l: the port must be a number from 0 to 65535");
        snprintf(out, ADDRESSES_BYTES, "*:%u", (unsigned)port);
        return 0;
    }
    bool had_port;
    const char *wrong =
        receives ? units_address(text, -1, out, NULL) : units_addresses(text, -1, out, &had_port);
    if (wrong == NULL)
        return 0;
    return receives ? tool_usage("-l: '%.80s' is not [ADDRESS:]PORT: %s", text, wrong)
                    : tool_usage("'%.80s' is not HOST:PORT: %s", text, wrong);
}

int main(int argc, char **argv) {
    static struct cat cat;
    const char *listen = NULL, *operand = NULL, *device = NULL;
    bool progress = false, wait = false;
    uint64_t mode = MODE_ADAPTIVE, resume_ns = 0;
    const struct option list[] = {
        {'l', "listen", "[ADDRESS:]PORT", OPTION_TEXT, &listen, NULL, 0, 0, NULL,
         "receive from the first sender that connects, write to standard\noutput; port 0 picks "
         "one"},
        {0, "wait", NULL, OPTION_FLAG, &wait, NULL, 0, 0, NULL,
         "sender: wait for a receiver that is not there yet"},
        {0, "resume", "SECONDS", OPTION_SECONDS, &resume_ns, NULL, ENDPOINT_RESUME_MIN_NS,
         ENDPOINT_RESUME_MAX_NS, NULL,
         "on both sides: when the connection is lost, the stream goes on\nwhere it was over another"
         " one, if there is one within so long"},
        {0, "progress", NULL, OPTION_FLAG, &progress, NULL, 0, 0, NULL,
         "show progress on standard error although it is no terminal"},
        {0, "device", "NAME", OPTION_TEXT, &device, NULL, 0, 0, NULL,
         "auto, soft, or the name of an RDMA device"},
        {0, "mode", "MODE", OPTION_CHOICE, &mode, NULL, 0, 0, endpoint_mode_names,
         "spin, adaptive or block: how to wait (default adaptive)"},
    };
    struct options options = {
        .about = "standard input here becomes standard output there",
        .usage = "[options] -l [ADDRESS:]PORT   receives\n[options] HOST:PORT           sends",
        .list = list,
        .count = sizeof list / sizeof list[0],
        .notes = "Both sides exit with status 0 only when everything arrived and was written.\n\n"
                 "  sluice-cat -l 9000 > copy        sluice-cat 127.0.0.1:9000 < original\n"
                 "  sluice-cat -l 9000 | tar x       tar c folder | sluice-cat 127.0.0.1:9000\n",
        .operands = &operand,
        .operands_max = 1};
    tool_start("sluice-cat");
    int rc = options_main(&options, argc, argv);
    if (rc >= 0)
        return rc;
    char address[ADDRESSES_BYTES];
    rc = address_of(listen, operand, address);
    if (rc == 0 && wait && listen != NULL)
        rc = tool_usage("--wait is for the sender: the receiver waits in any case");
    if (rc != 0)
        return tool_end(rc);
    struct endpoint_options endpoint = {.device = device,
                                        .mode = mode,
                                        .cpu = -1,
                                        .wait = wait,
                                        .resume_ns = resume_ns,
                                        .tool = CONTROL_CAT};
    cat.progress = progress || isatty(STDERR_FILENO);
    cat.checksum = CHECKSUM_START;
    rc = endpoint_open(&cat.ep, &endpoint);
    if (rc == 0) {
        rc = listen != NULL ? receiver(&cat, address) : sender(&cat, address);
        endpoint_close(&cat.ep);
    }
    return tool_end(rc);
}
