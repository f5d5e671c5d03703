/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * replay.c - the memory of tags, see replay.h: a ring in order of age, whose entries are also
 * chained in a hash table.
 *
 * The hash is keyed with random bytes, because peers choose the tags: without the key a peer cannot
 * choose many tags that fall into one chain.
 *
 * Owner: none; everything but the hash key is under the lock.
 */
#include "core/auth/replay.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#define BUCKETS REPLAY_TAGS /* a power of two */
#define NONE UINT16_MAX

_Static_assert((BUCKETS & (BUCKETS - 1)) == 0, "a bucket is the lower bits of the hash");
_Static_assert(REPLAY_TAGS < NONE, "places are 16 bits");

struct replay {
    pthread_mutex_t lock;
    uint8_t key[crypto_shorthash_KEYBYTES];
    uint32_t next, count; /* the place for the next tag; places in use */
    uint8_t tag[REPLAY_TAGS][REPLAY_TAG_BYTES];
    uint16_t chain[REPLAY_TAGS]; /* the next place of the same bucket */
    uint16_t bucket[BUCKETS];
};

struct replay *replay_open(const struct sluice_env *env) {
    struct replay *replay = calloc(1, sizeof *replay);
    if (!replay)
        return NULL;
    if (!env->random_bytes(env->arg, replay->key, sizeof replay->key)) {
        free(replay);
        return NULL;
    }
    pthread_mutex_init(&replay->lock, NULL);
    memset(replay->bucket, 0xff, sizeof replay->bucket);
    return replay;
}

void replay_close(struct replay *replay) {
    if (!replay)
        return;
    pthread_mutex_destroy(&replay->lock);
    free(replay);
}

static uint16_t *bucket_of(struct replay *replay, const uint8_t *tag) {
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, tag, REPLAY_TAG_BYTES, replay->key);
    return &replay->bucket[((uint32_t)hash[0] | (uint32_t)hash[1] << 8) & (BUCKETS - 1)];
}

/* Lock held. */
static bool has(const struct replay *replay, const uint16_t *bucket, const uint8_t *tag) {
    for (uint16_t at = *bucket; at != NONE; at = replay->chain[at])
        if (memcmp(replay->tag[at], tag, REPLAY_TAG_BYTES) == 0)
            return true;
    return false;
}

/* Lock held: takes the oldest tag, which is at this place, out of its chain. */
static void forget(struct replay *replay, uint16_t place) {
    uint16_t *link = bucket_of(replay, replay->tag[place]);
    while (*link != place)
        link = &replay->chain[*link];
    *link = replay->chain[place];
}

bool replay_seen(struct replay *replay, const uint8_t tag[REPLAY_TAG_BYTES]) {
    uint16_t *bucket = bucket_of(replay, tag);
    pthread_mutex_lock(&replay->lock);
    bool seen = has(replay, bucket, tag);
    pthread_mutex_unlock(&replay->lock);
    return seen;
}

bool replay_add(struct replay *replay, const uint8_t tag[REPLAY_TAG_BYTES]) {
    uint16_t *bucket = bucket_of(replay, tag);
    pthread_mutex_lock(&replay->lock);
    bool seen = has(replay, bucket, tag);
    if (!seen) {
        uint16_t place = (uint16_t)replay->next;
        if (replay->count == REPLAY_TAGS)
            forget(replay, place);
        else
            replay->count++;
        memcpy(replay->tag[place], tag, REPLAY_TAG_BYTES);
        replay->chain[place] = *bucket;
        *bucket = place;
        replay->next = (replay->next + 1) % REPLAY_TAGS;
    }
    pthread_mutex_unlock(&replay->lock);
    return seen;
}
