/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* One-sided: `mailbox ADDRESS` lends its memory to whoever dials, `mailbox ADDRESS TEXT` writes there. */
#include <sluice/memory.h>
#include <stdio.h>

#define BYTES 4096
static int fail(const char *why) {
    return fprintf(stderr, "%s\n", why), 1;
}

static int lend(sluice_node *node, sluice_loop *loop, sluice_region *region, const char *address) {
    sluice_listener listener;
    sluice_error error;
    sluice_token token;
    sluice_event event = {0};
    if (sluice_listen(node, address, SLUICE_LINK(.loop = loop), &listener, &error) != 0)
        return fail(error.text);
    fprintf(stderr, "listening on port %d\n", sluice_listener_port(listener));
    while (sluice_poll(loop, &event, 1, SLUICE_OFF) == 1 && event.type != SLUICE_CLOSED) {
        if (event.type == SLUICE_UP &&
            (sluice_region_token(region, 0, BYTES, SLUICE_MAY_WRITE, &token) != 0 ||
             sluice_send_copy(event.session, &token, sizeof token, NULL) != 0))
            return fail("the token cannot be given");
        if (event.type == SLUICE_NOTIFIED) /* the bytes are here, and nobody here did anything */
            printf("%.*s\n", (int)event.value, (char *)sluice_region_data(region));
    }
    return 0;
}

static int put(sluice_node *node, sluice_loop *loop, sluice_region *region, const char *address,
               const char *text) {
    sluice_session session;
    sluice_error error;
    sluice_event event = {0};
    uint32_t bytes = (uint32_t)snprintf(sluice_region_data(region), BYTES, "%s", text) % BYTES;
    if (sluice_dial(node, address, SLUICE_LINK(.loop = loop), &session, &error) != 0)
        return fail(error.text);
    while (sluice_poll(loop, &event, 1, SLUICE_OFF) == 1 && event.type != SLUICE_DONE)
        if (event.type == SLUICE_CLOSED ||
            (event.type == SLUICE_MESSAGE &&
             sluice_put_notify(session, region, 0, bytes, sluice_data(event.msg), 0, bytes,
                               SLUICE_SEND(.tag = 1)) != 0))
            return fail(sluice_reason_text(event.reason));
    return event.status != 0;
}

int main(int argc, char **argv) {
    sluice_node *node;
    sluice_loop *loop;
    sluice_region *region;
    sluice_error error;
    const char *address = argc > 1 ? argv[1] : "127.0.0.1:7472";
    if (sluice_open(&node, NULL, &error) || sluice_loop_open(node, &loop, &error) ||
        sluice_region_open(node, NULL, BYTES, SLUICE_MAY_WRITE, &region, &error))
        return fail(error.text);
    int status =
        argc > 2 ? put(node, loop, region, address, argv[2]) : lend(node, loop, region, address);
    return sluice_close(node, 1000000000), status;
}
