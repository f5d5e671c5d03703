/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* deed.c - what the application of the honest side does: by the rules, at any time, as the input wants. */
#include "honest.h"

#include "core/wire/token.h"

static sluice_msg *message(struct honest *h, uint64_t bytes) {
    sluice_msg *msg;
    if (sluice_alloc(h->node, bytes, &msg) != 0)
        return NULL;
    memset(sluice_data(msg), HONEST_SECRET, bytes);
    return msg;
}

/* The next tag; 0: there are no more. */
static uint64_t deed(struct honest *h, enum honest_deed deed) {
    if (h->deeds == HONEST_TAGS)
        return 0;
    h->deed[h->deeds].accepted = (uint8_t)deed;
    return ++h->deeds;
}

/* Accepted: its outcome is owed. */
static void done(struct honest *h, uint64_t tag, int status) {
    if (status == 0 || tag == 0)
        return;
    PROVE(tag == h->deeds);
    h->deeds--;
    PROVE(status == SLUICE_EAGAIN || status == SLUICE_ECLOSED || status == SLUICE_EMSGSIZE ||
          status == SLUICE_ENOMEM || status == SLUICE_EINVAL || status == SLUICE_EDEVICE);
}

void honest_send(struct honest *h, uint64_t bytes, bool tagged, uint64_t deadline_ns, bool more) {
    sluice_msg *msg = h->session.id ? message(h, bytes) : NULL;
    if (!msg)
        return;
    uint64_t tag = tagged ? deed(h, DEED_SEND) : 0;
    int status = sluice_send(
        h->session, msg,
        SLUICE_SEND(.tag = tag, .deadline_ns = deadline_ns, .flags = more ? SLUICE_MORE : 0));
    done(h, tag, status);
    if (status != 0)
        sluice_free(msg);
}

void honest_request(struct honest *h, uint64_t bytes, uint64_t deadline_ns) {
    sluice_msg *msg = h->session.id && h->deeds < HONEST_TAGS ? message(h, bytes) : NULL;
    if (!msg)
        return;
    uint64_t tag = deed(h, DEED_REQUEST);
    int status =
        sluice_request(h->session, msg, SLUICE_SEND(.tag = tag, .deadline_ns = deadline_ns));
    done(h, tag, status);
    if (status != 0)
        sluice_free(msg);
}

void honest_reply(struct honest *h, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    if (h->token_count == 0)
        return;
    uint32_t at = (uint32_t)(how >> 3) % h->token_count;
    uint64_t token = h->token[at];
    h->token[at] = h->token[--h->token_count];
    int status;
    if ((how & 7) == 0) {
        status = sluice_reply_error(h->session, token, (uint32_t)how);
    } else if ((how & 7) == 1) {
        status = sluice_request_wanted(h->session, token);
        PROVE(status == 0 || status == 1 || status == SLUICE_ECLOSED);
        h->token[h->token_count++] = token; /* it is to be answered all the same */
        return;
    } else {
        sluice_msg *msg = message(h, (how & 7) == 2 ? HONEST_RENDEZVOUS + 1 + how * 64 : how * 4);
        if (!msg)
            return;
        status = sluice_reply(h->session, token, msg);
        if (status != 0)
            sluice_free(msg);
    }
    PROVE(status == 0 || status == SLUICE_ECLOSED || status == SLUICE_EMSGSIZE);
}

/* Frees what it kept, or sends it on. */
void honest_free(struct honest *h, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    if (h->kept_count == 0)
        return;
    uint32_t at = (uint32_t)(how >> 1) % h->kept_count;
    sluice_msg *msg = h->kept[at];
    h->kept[at] = h->kept[--h->kept_count];
    if (how & 1) /* what is put into it now is its own */
        memset(sluice_data(msg), HONEST_SECRET, sluice_size(msg));
    if (!(how & 1) || h->session.id == 0 || sluice_send(h->session, msg, NULL) != 0)
        sluice_free(msg);
}

void honest_cancel(struct honest *h, struct fuzz_input *in) {
    uint64_t tag = fuzz_take(in, 1);
    if (h->session.id != 0)
        sluice_cancel(h->session, tag);
}

void honest_place(struct honest *h, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    if (h->place_count == 0)
        return;
    uint64_t token = h->place[--h->place_count];
    bool there = how & 1;
    int status =
        sluice_receive_into(h->session, token, there ? h->region : NULL, there ? how * 16 : 0);
    if (status == SLUICE_EINVAL) /* it does not fit there */
        (void)!sluice_receive_into(h->session, token, NULL, 0);
}

void honest_decide(struct honest *h, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1);
    if (h->session.id == 0)
        return;
    int status = how < 200 ? sluice_accept(h->session, h)
                           : sluice_refuse(h->session, (uint16_t)how, "not today");
    PROVE(status == 0 || status == SLUICE_ECLOSED || !h->asked);
}

void honest_reach(struct honest *h, uint64_t address, uint32_t rkey, struct fuzz_input *in) {
    uint64_t how = fuzz_take(in, 1), bytes = 8 + (how >> 3) * 512;
    if (h->session.id == 0 || h->deeds == HONEST_TAGS)
        return;
    const struct token values = {TOKEN_RIGHTS, rkey, address, 1 << 14};
    sluice_token token;
    token_put(&token, &values);
    uint64_t tag = deed(h, DEED_ONE_SIDED);
    const sluice_send_options *o = SLUICE_SEND(.tag = tag);
    int status;
    switch (how & 7) {
    case 0:
        status = sluice_get(h->session, h->region, 0, bytes, &token, 0, o);
        break;
    case 1:
        status = sluice_fetch_add(h->session, &token, 8, 1, o);
        break;
    case 2:
        status = sluice_compare_swap(h->session, &token, 8, 0, 1, o);
        break;
    case 3:
        status = sluice_put_notify(h->session, h->region, 0, bytes, &token, 0, 5, o);
        break;
    case 4:
        status = sluice_fence(h->session, o);
        break;
    default:
        status = sluice_put(h->session, h->region, 0, bytes, &token, 0, o);
        break;
    }
    done(h, tag, status);
}
