/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * message_form.h - every control message of the software device, those of its connection manager included, said wrong
 * to a process by hand: before a greeting and behind one, in every length, with descriptors that do not belong there,
 * of things that are not there or are somebody else's.
 *
 * A message that cannot be one ends the connection; another one is ignored, and what is said behind it is answered.
 * Whoever says it sees which of the two happened.
 */
#ifndef HOSTILE_MESSAGE_FORM_H
#define HOSTILE_MESSAGE_FORM_H

#include <stdbool.h>
#include <stdint.h>

struct message_form {
    const char *name; /* NULL: this type has no entry */
    uint32_t type;
    uint32_t bytes; /* behind its head, of one that is right */
    uint32_t fds;   /* that belong to it */
};

unsigned message_form_count(void);
struct message_form message_form_get(unsigned i);
/* The entry of that type, of which the name is NULL where there is none. */
struct message_form message_form_of(uint32_t type);

enum message_way {
    MESSAGE_UNGREETED,
    MESSAGE_LENGTHS,
    MESSAGE_TOO_LONG,
    MESSAGE_LIES,   /* of its length */
    MESSAGE_CUT,    /* shorter than its head */
    MESSAGE_VALUES, /* of nothing, of everything, of what is somebody else's */
    MESSAGE_REPEATED,
    MESSAGE_SURPLUS, /* more descriptors, or none */
    MESSAGE_OTHERS,  /* descriptors of other kinds */
    MESSAGE_RIGHT,   /* memory as it should be, for a queue pair that is not its to link with */
    MESSAGE_WAYS,
};

extern const char *const message_way_names[MESSAGE_WAYS];

/* To the process that has this queue pair number. Fails the process where the answer is another. */
void message_say(enum message_way way, const struct message_form *form, uint32_t qpn);

#endif
