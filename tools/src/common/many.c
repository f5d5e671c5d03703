/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* many.c - see many.h. */
#include "many.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/endpoint.h"
#include "common/tool.h"

#define FAILED_END_NS UINT64_C(1000000000)
#define REFUSED_CODE 2
#define BESIDE 8u /* sessions of other clients, that wait for their turn */

static const char magic[8] = "sluice-q"; /* in front of the token */
#define SHOWN_BYTES (sizeof magic + sizeof(uint64_t))

static void *arg_of(uint32_t number) {
    return (void *)(uintptr_t)number;
}

static int make_room(struct endpoint *ep, uint32_t count) {
    ep->many = (struct many){.session = calloc(count, sizeof(sluice_session)), .known = 1};
    if (!ep->many.session)
        return tool_fail("no memory for %u sessions", count);
    ep->many.session[0] = ep->session;
    ep->many.count = count;
    return 0;
}

int many_expect(struct endpoint *ep, uint64_t count) {
    sluice_node_info info = {.size = sizeof info};
    if (ep->many.count != 0)
        return ep->many.count == count
                   ? 0
                   : endpoint_fail_both(ep, "the client asks for another number of sessions");
    if (sluice_node_get_info(ep->node, &info) == 0 && count + BESIDE > info.sessions_max)
        return endpoint_fail_both(ep, "the server holds %u sessions: start it with -q %llu",
                                  info.sessions_max - BESIDE, (unsigned long long)count);
    int rc = make_room(ep, (uint32_t)count);
    if (rc == 0 && getrandom(&ep->many.token, sizeof ep->many.token, 0) != sizeof ep->many.token)
        rc = endpoint_fail_both(ep, "the server has no random bytes");
    return rc;
}

bool many_takes(struct endpoint *ep, const sluice_event *event) {
    struct many *m = &ep->many;
    const sluice_peer *peer = event->peer;
    const uint8_t *shown = peer->private_data;
    if (peer->private_bytes != SHOWN_BYTES || memcmp(shown, magic, sizeof magic) != 0)
        return false;
    if (m->known == m->count || memcmp(shown + sizeof magic, &m->token, sizeof m->token) != 0) {
        sluice_refuse(event->session, REFUSED_CODE, "not of the client that is served now");
        return true;
    }
    m->session[m->known] = event->session;
    /* It may have gone by itself: then the client says so, or ends. */
    if (sluice_accept(event->session, arg_of(m->known)) == 0)
        m->known++;
    return true;
}

void many_event(struct endpoint *ep, const sluice_event *event) {
    struct many *m = &ep->many;
    uint32_t number = many_number(event);
    bool mine = number < m->known && m->session[number].id == event->session.id;
    if (mine && (event->type == SLUICE_DOWN || event->type == SLUICE_UP))
        endpoint_down(ep, event, "one of the sessions");
    if (mine && event->type == SLUICE_UP && event->tag == 0) /* not after SLUICE_DOWN */
        m->up++;
    if (!mine || event->type != SLUICE_CLOSED)
        return;
    m->up -= m->up > 0;
    if (m->running && !ep->closed)
        endpoint_ended(ep, event);
}

/* True when it is so; false: not in time, or it cannot be any more. */
static bool wait_until_up(struct endpoint *ep) {
    uint64_t until = sluice_now() + MANY_DIAL_NS;
    while (!many_are_up(&ep->many) && !ep->closed) {
        sluice_event event;
        if (endpoint_wait(ep, &event, until, -1, 0, NULL) <= 0)
            break;
    }
    return many_are_up(&ep->many) && !ep->closed;
}

int many_dial(struct endpoint *ep, uint64_t count, uint64_t token) {
    struct many *m = &ep->many;
    uint8_t shown[SHOWN_BYTES];
    const char *to = ep->peer[0] != '\0' ? ep->peer : ep->address; /* a name is looked up once */
    if (m->count != 0)
        return 0;
    int rc = make_room(ep, (uint32_t)count);
    memcpy(shown, magic, sizeof magic);
    memcpy(shown + sizeof magic, &token, sizeof token);
    m->running = rc == 0;
    for (uint32_t i = 1; rc == 0 && i < count; i++) {
        sluice_error error;
        sluice_link_options link = endpoint_link_options(ep);
        link.arg = arg_of(i);
        link.timeout_ns = MANY_DIAL_NS;
        link.private_data = shown;
        link.private_bytes = sizeof shown;
        if (sluice_dial(ep->node, to, &link, &m->session[i], &error) != 0)
            return tool_fail("session %u of %llu cannot be opened: %s", i + 1,
                             (unsigned long long)count, error.text);
        m->known = i + 1;
    }
    if (rc != 0 || wait_until_up(ep))
        return rc;
    if (ep->closed)
        return endpoint_fail_closed(ep, "while the other sessions were opened");
    if (tool_stopped())
        return TOOL_FAILED;
    return tool_fail("%u of %llu sessions were opened within %llu s", m->up + 1,
                     (unsigned long long)count, (unsigned long long)(MANY_DIAL_NS / 1000000000));
}

void many_end(struct endpoint *ep) {
    struct many *m = &ep->many;
    uint64_t limit = tool_stopped() ? 0 : ep->closed ? FAILED_END_NS : MANY_END_NS;
    m->running = false;
    for (uint32_t i = 1; i < m->known; i++)
        sluice_hangup(m->session[i], limit);
    uint64_t until = sluice_now() + limit;
    sluice_event event;
    while (m->up > 0 && limit > 0 && endpoint_wait(ep, &event, until, -1, 0, NULL) > 0)
        continue;
    free(m->session);
    *m = (struct many){0};
}
