/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * keyring.h - the keys of a link: a copy of those the application gave, and the hook it gave.
 *
 * A ring is constant once made, and counted: the listener holds one reference, each of its sessions
 * one, a dialed session one. The holder that drops the last reference wipes the secrets. Any thread; but
 * keyring_find() calls the hook, so it belongs to the loop's thread because handlers do.
 *
 * NULL is a ring too, the one of a link without authentication: nothing is held, found or dropped.
 */
#ifndef CORE_AUTH_KEYRING_H
#define CORE_AUTH_KEYRING_H

#include <stdbool.h>
#include <stdint.h>

#include <sluice/sluice.h>

#define KEYRING_KEYS_MAX 1024u

struct keyring;

/*
 * OK with one reference in *out, or with NULL there when the options (complete, sized already) name
 * neither keys nor a hook. EINVAL and ENOMEM with *e, EDEVICE when the cryptographic library does
 * not work. dialing: there is exactly one key and no hook.
 */
int keyring_make(struct keyring **out, const sluice_link_options *o, bool dialing, sluice_error *e);
void keyring_hold(struct keyring *ring);
void keyring_drop(struct keyring *ring);

/*
 * The bytes of the secret with this id, or 0: there is none, and secret is all zero. The ring's own
 * keys first, then the hook; an answer of the hook that is not between SLUICE_SECRET_MIN and
 * SLUICE_SECRET_MAX counts as no key. The caller wipes what it got.
 */
uint32_t keyring_find(const struct keyring *ring, uint32_t id, uint8_t secret[SLUICE_SECRET_MAX]);

/* The id a dialer names; 0: no authentication. */
uint32_t keyring_dial_id(const struct keyring *ring);

#endif
