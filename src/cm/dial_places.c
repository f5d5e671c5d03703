/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* dial_places.c - see dial_places.h. */
#include "cm/dial_places.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

#define REFUSE(...) return error_set(e, SLUICE_EADDRESS, SLUICE_REASON_ADDRESS, 0, __VA_ARGS__)

/* Both addresses of this host, for which nothing is looked up. */
static void is_localhost(struct cm_place *place) {
    place->host[0] = 0;
    place->addresses[0].v4.sin_family = AF_INET;
    place->addresses[0].v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    place->addresses[1].v6.sin6_family = AF_INET6;
    place->addresses[1].v6.sin6_port = htons(place->port);
    place->addresses[1].v6.sin6_addr = in6addr_loopback;
    place->count = 2;
}

static int read_place(struct cm_place *place, const char *text, sluice_error *e) {
    union address *first = &place->addresses[0];
    *place = (struct cm_place){0};
    int status = address_parse(text, false, first, place->host, e);
    if (status != SLUICE_OK)
        return status;
    place->port = ntohs(first->v4.sin_port); /* the same place in both families */
    if (strcasecmp(place->host, "localhost") == 0)
        is_localhost(place);
    else
        place->count = place->host[0] ? 0 : 1;
    return SLUICE_OK;
}

int dial_places_read(struct cm_places *out, const char *text, sluice_error *e) {
    char one[sizeof out->at[0].host + 32]; /* the longest that is right is shorter */
    out->count = 0;
    for (const char *at = text, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        size_t length = (size_t)(end - at);
        if (out->count == CM_CANDIDATES)
            REFUSE("\"%.60s...\" has more than %d addresses", text, CM_CANDIDATES);
        if (length == 0 && (*end || out->count > 0))
            REFUSE("\"%.100s\" has a comma without an address beside it", text);
        if (*end && length >= sizeof one)
            REFUSE("\"%.60s...\" has an address of %zu characters, above %zu", text, length,
                   sizeof one - 1);
        if (*end) {
            memcpy(one, at, length);
            one[length] = 0;
        }
        int status = read_place(&out->at[out->count], *end ? one : at, e);
        if (status != SLUICE_OK)
            return status;
        out->count++;
    }
    if (out->count == 0)
        REFUSE("no address given");
    return SLUICE_OK;
}

static bool has(const union address *list, unsigned count, const union address *address) {
    for (unsigned i = 0; i < count; i++)
        if (address_equal(&list[i], address))
            return true;
    return false;
}

unsigned dial_places_candidates(const struct cm_places *places, union address out[CM_CANDIDATES]) {
    unsigned taken[CM_CANDIDATES] = {0}, total = 0, before, count = 0;
    do {
        before = total;
        for (unsigned i = 0; i < places->count && total < CM_CANDIDATES; i++)
            if (taken[i] < places->at[i].count) {
                taken[i]++;
                total++;
            }
    } while (total > before && total < CM_CANDIDATES);
    for (unsigned i = 0; i < places->count; i++)
        for (unsigned k = 0; k < taken[i]; k++)
            if (!has(out, count, &places->at[i].addresses[k]))
                out[count++] = places->at[i].addresses[k];
    return count;
}

bool dial_places_copy(const struct cm_places *places, struct cm_places **out) {
    size_t bytes = offsetof(struct cm_places, at) + places->count * sizeof places->at[0];
    bool known = places->count == 1 && !places->at[0].host[0];
    *out = known ? NULL : malloc(bytes);
    if (*out)
        memcpy(*out, places, bytes);
    return known || *out;
}

void dial_places_give(struct cm_conn *conn, const struct cm_places *places,
                      struct cm_places *copy) {
    conn->places = copy;
    if (!copy)
        conn->candidate_count = (uint8_t)dial_places_candidates(places, conn->candidates);
    for (unsigned i = 0; copy && i < copy->count; i++)
        copy->at[i].conn = conn;
}
