/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * techniques.h - the techniques that make a node fast, which a measurement can switch off one by one.
 *
 * SLUICE_WITHOUT of the environment lists names, with commas between them; sluice_open() reads it. A technique
 * that is left out changes no meaning, and the other side need not leave it out too.
 */
#ifndef CORE_TECHNIQUES_H
#define CORE_TECHNIQUES_H

/* X(NAME, "name", what it does) - in the order of their bits */
#define TECHNIQUES(X)                                                                              \
    X(INLINE, "inline", "small frames are inline in their work request")                           \
    X(WR_BATCH, "wr-batch", "several work requests are posted with one call")                      \
    X(SIGNALLING, "signalling", "one send in several is signalled; without: every one")            \
    X(WC_BATCH, "wc-batch", "completions are polled, and receives posted, several at a time")      \
    X(SRQ, "srq", "sessions share receives")                                                       \
    X(COALESCE, "coalesce", "small messages that wait share a frame")                              \
    X(RENDEZVOUS, "rendezvous",                                                                    \
      "large messages are not cut into frames; large requests never are")                          \
    X(EXTENDED, "extended", "small frames are posted by extended verbs, where a device has them")

enum technique {
#define TECHNIQUES_X(name, text, what) TECHNIQUE_##name,
    TECHNIQUES(TECHNIQUES_X)
#undef TECHNIQUES_X
        TECHNIQUE_COUNT
};

/* Bits of what is left out. */
enum {
#define TECHNIQUES_X(name, text, what) WITHOUT_##name = 1u << TECHNIQUE_##name,
    TECHNIQUES(TECHNIQUES_X)
#undef TECHNIQUES_X
        WITHOUT_ALL = (1u << TECHNIQUE_COUNT) - 1
};

#endif
