/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * endpoint_talk.c - sending with patience, and control messages over an endpoint's session.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "endpoint.h"

/* Who is at the other end, for messages. */
static const char *other_side(const struct endpoint *ep) {
    if (ep->options.tool == CONTROL_CAT)
        return ep->listening ? "sender" : "receiver";
    return ep->listening ? "client" : "server";
}

int endpoint_send_slow(struct endpoint *ep, sluice_session session, sluice_msg *msg, bool borrowed,
                       int status) {
    if (status == SLUICE_EAGAIN && borrowed)
        sluice_keep(msg); /* it must outlive the polling below */
    while (status == SLUICE_EAGAIN) {
        ep->writable = false;
        while (!ep->writable && !ep->closed) {
            sluice_event event;
            int n = endpoint_poll(ep, &event, 1, ENDPOINT_POLL_NS);
            if (n < 0)
                return sluice_free(msg), TOOL_FAILED;
            if (n > 0 && event.type == SLUICE_MESSAGE) {
                sluice_free(msg);
                return tool_fail("the %s sent an unexpected message", other_side(ep));
            }
            if (n > 0)
                endpoint_event(ep, &event);
        }
        status = sluice_send(session, msg, NULL);
        borrowed = false;
    }
    if (status == 0)
        return 0;
    if (!borrowed)
        sluice_free(msg);
    /* Closed under our hands: the reason is in the CLOSED event, which is on its way. */
    uint64_t until = sluice_now() + ENDPOINT_ANSWER_NS;
    sluice_event event;
    while (status == SLUICE_ECLOSED && !ep->closed)
        if (endpoint_wait(ep, &event, until, -1, 0, NULL) <= 0)
            break;
    if (ep->closed)
        return endpoint_fail_closed(ep, "while data was sent");
    return tool_fail("cannot send: %s", sluice_strerror(status));
}

sluice_msg *endpoint_compose(struct endpoint *ep, const struct control *control) {
    size_t bytes = control_bytes_beside(ep->data_size);
    sluice_msg *msg;
    int status = sluice_alloc(ep->node, bytes, &msg);
    if (status != 0) {
        tool_fail("no memory for a control message: %s", sluice_strerror(status));
        return NULL;
    }
    unsigned char *at = sluice_data(msg);
    struct control copy = *control;
    copy.tool = (uint16_t)ep->options.tool;
    copy.cpu = ep->pin.cpu;
    copy.host = pin_host_key();
    memset(at, 0, bytes);
    control_encode(at, &copy);
    return msg;
}

int endpoint_say(struct endpoint *ep, const struct control *control) {
    sluice_msg *msg = endpoint_compose(ep, control);
    return msg == NULL ? TOOL_FAILED : endpoint_send(ep, msg, false);
}

int endpoint_fail_both(struct endpoint *ep, const char *format, ...) {
    struct control failed = {.kind = CONTROL_FAILED};
    va_list args;
    va_start(args, format);
    vsnprintf(failed.text, sizeof failed.text, format, args);
    va_end(args);
    tool_fail("%s", failed.text);
    /* Where the window is full nobody reads it anyway: one try. */
    sluice_msg *msg = ep->up ? endpoint_compose(ep, &failed) : NULL;
    if (msg != NULL && sluice_send(ep->session, msg, NULL) != 0)
        sluice_free(msg);
    return TOOL_FAILED;
}

int endpoint_decode(struct endpoint *ep, const sluice_event *event, struct control *out,
                    unsigned kind) {
    const char *who = other_side(ep);
    const char *mine = control_tool_name(ep->options.tool);
    switch (control_decode(out, sluice_data(event->msg), event->bytes)) {
    case CONTROL_FOREIGN:
        return endpoint_fail_both(ep, "the %s is not %s: unexpected message of %u bytes", who, mine,
                                  event->bytes);
    case CONTROL_WRONG_VERSION:
        return endpoint_fail_both(ep, "the %s is %s of another release", who, mine);
    case CONTROL_MALFORMED:
        return endpoint_fail_both(ep, "the %s sent a malformed control message", who);
    case CONTROL_OK:
        break;
    }
    if (out->kind == CONTROL_FAILED)
        return tool_fail("the %s gave up: %s", who, out->text);
    if (out->tool != ep->options.tool)
        return endpoint_fail_both(ep, "the %s is %s, this is %s", who, control_tool_name(out->tool),
                                  mine);
    if (out->kind != kind)
        return endpoint_fail_both(ep, "the %s sent %s where %s was due", who,
                                  control_kind_name(out->kind), control_kind_name(kind));
    return 0;
}

int endpoint_await(struct endpoint *ep, sluice_event *event, uint64_t limit_ns, bool *ended) {
    uint64_t until = limit_ns == SLUICE_OFF ? SLUICE_OFF : sluice_now() + limit_ns;
    for (;;) {
        if (ep->closed && ended != NULL && ep->end.reason == SLUICE_REASON_PEER_CLOSE) {
            *ended = true;
            return 0;
        }
        if (ep->closed)
            return endpoint_fail_closed(ep, "while a message was due");
        int n = endpoint_wait(ep, event, ep->down > 0 ? SLUICE_OFF : until, -1, 0, NULL);
        if (n < 0)
            return TOOL_FAILED;
        if (n > 0 && event->type == SLUICE_UP && limit_ns != SLUICE_OFF)
            until = sluice_now() + limit_ns; /* it was down, which has its own end */
        if (n == 0)
            return endpoint_fail_both(ep, "the %s said nothing for %llu s: is it %s?",
                                      other_side(ep), (unsigned long long)(limit_ns / 1000000000),
                                      control_tool_name(ep->options.tool));
        if (event->type == SLUICE_MESSAGE)
            return 0;
    }
}

int endpoint_hear(struct endpoint *ep, struct control *out, unsigned kind, bool *ended) {
    sluice_event event;
    bool end = false;
    /* A client ends its other sessions before the one that this is heard on. */
    uint64_t limit = ENDPOINT_ANSWER_NS + (ep->many.count > 0 ? MANY_END_NS : 0);
    int rc = endpoint_await(ep, &event, limit, ended != NULL ? &end : NULL);
    if (end)
        *ended = true;
    return rc != 0 || end ? rc : endpoint_decode(ep, &event, out, kind);
}
