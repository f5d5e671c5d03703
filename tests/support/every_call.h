/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * every_call.h - every public call, with what has to be there before it can be made, and what comes of it. They are made in the
 * order of the table. Public interface only.
 */
#ifndef TESTS_SUPPORT_EVERY_CALL_H
#define TESTS_SUPPORT_EVERY_CALL_H

#include "support/side.h"

enum scene_mode {
    SCENE_OWNER,    /* loops; the thread that makes the calls has polled both */
    SCENE_FOREIGN,  /* loops, that another thread polled */
    SCENE_HANDLERS, /* workers */
};

struct scene {
    struct couple c; /* connected; most calls are made at b, which dialed */
    enum scene_mode mode;
    uint64_t seed;
    /* what the calls leave for each other */
    sluice_node *node;
    sluice_loop *loop;
    sluice_listener listener;
    sluice_session session;
    sluice_msg *msg;
    sluice_region *region, *own; /* of a, with all rights; of b, with none */
    sluice_token token;
    uint64_t request;
};

struct every_call {
    const char *names; /* of the public calls that it is about, without "sluice_" */
    void (*make)(struct scene *s);
    void (*before)(
        struct scene *s); /* both may be NULL, and are for the thread that has the scene */
    void (*after)(struct scene *s);
};
extern const struct every_call every_call[];
extern const size_t every_call_count;

void scene_open(struct scene *s, enum scene_mode mode, const sluice_node_options *given);
/* A message each way. What came before it is answered, freed and forgotten. */
void scene_works(struct scene *s);
/* It works, and the nodes had no error to log, then nor before. */
void scene_close(struct scene *s);

#endif
