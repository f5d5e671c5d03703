/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/* message_form.c - the table of message_form.h. Pure functions, any thread. */
#include "hostile/message_form.h"

#include "soft/cm/wire.h"

#define SAYS(t, count, with) [t] = {#t, t, count, with}

static const struct message_form device[SOFT_MSG_TYPES] = {
    SAYS(SOFT_MSG_HELLO, 32, 2),      SAYS(SOFT_MSG_LINK, 24, 1),
    SAYS(SOFT_MSG_UNLINK, 8, 0),      SAYS(SOFT_MSG_REGION, 24, 1),
    SAYS(SOFT_MSG_REGION_OK, 24, 0),  SAYS(SOFT_MSG_REGION_DROP, 24, 0),
    SAYS(SOFT_MSG_KEYS, 8, 1),        SAYS(SOFT_MSG_UD_RING, 16, 1),
    SAYS(SOFT_MSG_UD_OK, 16, 0),      SAYS(SOFT_MSG_UD_REFUSE, 16, 0),
    SAYS(SOFT_MSG_UD_CLOSE, 16, 0),   SAYS(SOFT_MSG_GROUP_ASK, 24, 0),
    SAYS(SOFT_MSG_GROUP_JOIN, 24, 0), SAYS(SOFT_MSG_GROUP_LEAVE, 24, 0),
    SAYS(SOFT_MSG_GROUP_OK, 24, 0),   SAYS(SOFT_MSG_FENCE, 4, 0),
    SAYS(SOFT_MSG_FENCE_OK, 4, 0),    SAYS(SOFT_MSG_QP_BELL, 8, 1),
    SAYS(SOFT_MSG_CQ_BELL, 8, 1),
};

#define CM(t, body) [t - SOFT_CM_WIRE_REQ] = {#t, t, sizeof(struct body), 0}
#define CM_TYPES (SOFT_CM_WIRE_END - SOFT_CM_WIRE_REQ)

static const struct message_form cm[CM_TYPES] = {
    CM(SOFT_CM_WIRE_REQ, soft_cm_wire_req),
    CM(SOFT_CM_WIRE_MRA, soft_cm_wire_head),
    CM(SOFT_CM_WIRE_REP, soft_cm_wire_rep),
    CM(SOFT_CM_WIRE_RTU, soft_cm_wire_head),
    CM(SOFT_CM_WIRE_REJ, soft_cm_wire_rej),
    CM(SOFT_CM_WIRE_DREQ, soft_cm_wire_head),
    CM(SOFT_CM_WIRE_DREP, soft_cm_wire_head),
    CM(SOFT_CM_WIRE_SIDR_REQ, soft_cm_wire_sidr_req),
    CM(SOFT_CM_WIRE_SIDR_REP, soft_cm_wire_sidr_rep),
    CM(SOFT_CM_WIRE_MPA_REQ, soft_cm_wire_mpa),
    CM(SOFT_CM_WIRE_MPA_SEEN, soft_cm_wire_head),
    CM(SOFT_CM_WIRE_MPA_REP, soft_cm_wire_mpa),
    CM(SOFT_CM_WIRE_MPA_REJ, soft_cm_wire_mpa),
    CM(SOFT_CM_WIRE_FIN, soft_cm_wire_head),
};

/* Types that there are not. */
static const struct message_form none[] = {
    {"type 0", 0, 16, 0},
    {"the first that there is not", SOFT_MSG_TYPES, 16, 0},
    {"the last before the cm's", SOFT_MSG_CM_FIRST - 1, 16, 0},
    {"the first that the cm has not", SOFT_CM_WIRE_END, 16, 0},
    {"the last of the cm's", SOFT_MSG_CM_LAST, 16, 0},
    {"the first behind the cm's", SOFT_MSG_CM_LAST + 1, 16, 0},
    {"the last of all", UINT32_MAX, 16, 0},
};

#define NONE (sizeof none / sizeof none[0])

unsigned message_form_count(void) {
    return SOFT_MSG_TYPES - 1 + CM_TYPES + NONE;
}

struct message_form message_form_get(unsigned i) {
    if (i < SOFT_MSG_TYPES - 1)
        return device[i + 1];
    i -= SOFT_MSG_TYPES - 1;
    return i < CM_TYPES ? cm[i] : none[i - CM_TYPES];
}

struct message_form message_form_of(uint32_t type) {
    if (type < SOFT_MSG_TYPES)
        return device[type];
    if (type >= SOFT_CM_WIRE_REQ && type < SOFT_CM_WIRE_END)
        return cm[type - SOFT_CM_WIRE_REQ];
    return (struct message_form){.name = NULL};
}
