/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keyring.c - the keys of a link, see keyring.h.
 *
 * The keys lie sorted by id in one piece of memory, which core files leave out. They are put in order where
 * they are, without a sort that might copy secrets to memory that is never wiped.
 *
 * Owner: the holders of references; only the count changes after keyring_make().
 */
#include "core/auth/keyring.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include <sodium.h>

#include "core/auth/auth.h"
#include "base/error.h"
#include "common/uncancelled.h"

struct key {
    uint32_t id, bytes;
    uint8_t secret[SLUICE_SECRET_MAX];
};

struct keyring {
    _Atomic uint32_t holders;
    uint32_t count;
    size_t bytes; /* of all of it */
    sluice_key_lookup lookup;
    void *lookup_arg;
    struct key keys[];
};

#define REFUSE(...) return error_set(e, SLUICE_EINVAL, SLUICE_REASON_NONE, 0, __VA_ARGS__)

/* ---- making ---------------------------------------------------------------------------------- */

static int check_count(const sluice_link_options *o, bool dialing, sluice_error *e) {
    if (o->key_count > KEYRING_KEYS_MAX)
        REFUSE("key_count %u is above %u", o->key_count, KEYRING_KEYS_MAX);
    if (o->key_count > 0 && !o->keys)
        REFUSE("key_count is %u, but there are no keys", o->key_count);
    /* The caller wanted authentication and forgot to give the count: not the same as none. */
    if (o->key_count == 0 && o->keys)
        REFUSE("there are keys, but key_count is 0");
    if (dialing && o->key_lookup)
        REFUSE("dialing takes a key, not a key_lookup");
    if (dialing && o->key_count > 1)
        REFUSE("dialing takes one key, not %u", o->key_count);
    return SLUICE_OK;
}

static int check_key(const sluice_key *key, uint32_t at, sluice_error *e) {
    if (key->id == 0)
        REFUSE("key %u of the array: the id is 0", at);
    if (!key->secret)
        REFUSE("key %u of the array, id %u: there is no secret", at, key->id);
    if (key->bytes < SLUICE_SECRET_MIN || key->bytes > SLUICE_SECRET_MAX)
        REFUSE("key %u of the array, id %u: %u bytes are not between %u and %u", at, key->id,
               key->bytes, SLUICE_SECRET_MIN, SLUICE_SECRET_MAX);
    return SLUICE_OK;
}

/* Where a key of this id is, or belongs. */
static uint32_t place_of(const struct keyring *ring, uint32_t id) {
    uint32_t low = 0, high = ring->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ring->keys[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct keyring *ring, uint32_t place, uint32_t id) {
    return place < ring->count && ring->keys[place].id == id;
}

static int put(struct keyring *ring, const sluice_key *given, uint32_t at, sluice_error *e) {
    int status = check_key(given, at, e);
    if (status != SLUICE_OK)
        return status;
    uint32_t place = place_of(ring, given->id);
    struct key *key = &ring->keys[place];
    if (is_at(ring, place, given->id))
        REFUSE("key %u of the array: there are two keys with the id %u", at, given->id);
    memmove(key + 1, key, (ring->count - place) * sizeof *key);
    memset(key, 0, sizeof *key);
    key->id = given->id;
    key->bytes = given->bytes;
    memcpy(key->secret, given->secret, given->bytes);
    ring->count++;
    return SLUICE_OK;
}

int keyring_make(struct keyring **out, const sluice_link_options *o, bool dialing,
                 sluice_error *e) {
    *out = NULL;
    int status = check_count(o, dialing, e);
    if (status != SLUICE_OK || (o->key_count == 0 && !o->key_lookup))
        return status;
    if (!auth_init())
        return error_set(e, SLUICE_EDEVICE, SLUICE_REASON_NONE, 0, "libsodium does not start");
    /* Pages of its own: what lies beside it is not left out. */
    size_t bytes = sizeof(struct keyring) + o->key_count * sizeof(struct key);
    struct keyring *ring =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED)
        return error_set(e, SLUICE_ENOMEM, SLUICE_REASON_NONE, 0, "no memory for %u keys",
                         o->key_count);
    (void)madvise(ring, bytes, MADV_DONTDUMP);
    ring->bytes = bytes;
    atomic_init(&ring->holders, 1);
    ring->lookup = o->key_lookup;
    ring->lookup_arg = o->key_lookup_arg;
    for (uint32_t i = 0; i < o->key_count && status == SLUICE_OK; i++)
        status = put(ring, &o->keys[i], i, e);
    if (status == SLUICE_OK)
        *out = ring;
    else
        keyring_drop(ring);
    return status;
}

/* ---- holding --------------------------------------------------------------------------------- */

void keyring_hold(struct keyring *ring) {
    if (ring)
        atomic_fetch_add_explicit(&ring->holders, 1, memory_order_relaxed);
}

void keyring_drop(struct keyring *ring) {
    if (!ring || atomic_fetch_sub_explicit(&ring->holders, 1, memory_order_acq_rel) != 1)
        return;
    size_t bytes = ring->bytes;
    sodium_memzero(ring->keys, ring->count * sizeof *ring->keys);
    munmap(ring, bytes);
}

/* ---- finding --------------------------------------------------------------------------------- */

static uint32_t ask_hook(const struct keyring *ring, uint32_t id, uint8_t *secret) {
    if (!ring->lookup)
        return 0;
    uint32_t bytes = uncancelled(ring->lookup(id, secret, ring->lookup_arg));
    if (bytes >= SLUICE_SECRET_MIN && bytes <= SLUICE_SECRET_MAX)
        return bytes;
    sodium_memzero(secret, SLUICE_SECRET_MAX); /* it may have written all the same */
    return 0;
}

uint32_t keyring_find(const struct keyring *ring, uint32_t id, uint8_t secret[SLUICE_SECRET_MAX]) {
    memset(secret, 0, SLUICE_SECRET_MAX);
    if (!ring || id == 0)
        return 0;
    uint32_t place = place_of(ring, id);
    if (!is_at(ring, place, id))
        return ask_hook(ring, id, secret);
    memcpy(secret, ring->keys[place].secret, ring->keys[place].bytes);
    return ring->keys[place].bytes;
}

uint32_t keyring_dial_id(const struct keyring *ring) {
    return ring && ring->count > 0 ? ring->keys[0].id : 0;
}
