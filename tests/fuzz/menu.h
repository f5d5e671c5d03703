/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * menu.h - which acts a target that drives a session chooses from, each as often as it stands there. The first
 * inputs (scenario.c) are made by the same lists.
 */
#ifndef TESTS_FUZZ_MENU_H
#define TESTS_FUZZ_MENU_H

#include "session.h"

#define MENU static const uint8_t __attribute__((unused))

MENU menu_rendezvous[] = {ACT_TURN,  ACT_TURN,       ACT_TURN,       SAY_ANNOUNCE, SAY_ANNOUNCE,
                          SAY_READY, SAY_TAKEN,      DEV_WRITE,      DEV_WRITE,    DEV_READ,
                          DEV_WILD,  SAY_DATA,       SAY_FRAGMENT,   SAY_CREDIT,   SAY_REQUEST,
                          SAY_REPLY, SAY_NOISE,      SAY_BYE,        DEV_LEAVE,    DEV_ERROR,
                          APP_SEND,  APP_SEND_LARGE, APP_SEND_LARGE, APP_REQUEST,  APP_REPLY,
                          APP_KEEP,  APP_FREE,       APP_PLACE,      APP_PLACE,    APP_HANGUP,
                          APP_CLOCK, APP_REACH};

MENU menu_credit[] = {ACT_TURN,     ACT_TURN,       ACT_TURN,     SAY_DATA,  SAY_DATA,   SAY_PACK,
                      SAY_FRAGMENT, SAY_CREDIT,     SAY_CREDIT,   SAY_ALIVE, SAY_RECALL, SAY_RETURN,
                      SAY_NOTIFY,   SAY_REQUEST,    SAY_ANNOUNCE, DEV_WRITE, SAY_NOISE,  SAY_BYE,
                      DEV_ERROR,    APP_SEND,       APP_SEND,     APP_SEND,  APP_KEEP,   APP_KEEP,
                      APP_FREE,     APP_SEND_LARGE, APP_REQUEST,  APP_REPLY, APP_CLOCK,  APP_CLOCK,
                      APP_REACH,    APP_HANGUP};

MENU menu_request[] = {ACT_TURN,     ACT_TURN,   ACT_TURN,    SAY_REQUEST, SAY_REQUEST, SAY_REPLY,
                       SAY_REPLY,    SAY_CANCEL, SAY_PACK,    SAY_PACK,    SAY_DATA,    SAY_CREDIT,
                       SAY_ANNOUNCE, SAY_READY,  SAY_TAKEN,   DEV_WRITE,   SAY_NOISE,   SAY_BYE,
                       DEV_ERROR,    DEV_LEAVE,  APP_REQUEST, APP_REQUEST, APP_REQUEST, APP_REPLY,
                       APP_REPLY,    APP_CANCEL, APP_CANCEL,  APP_SEND,    APP_CLOCK,   APP_CLOCK,
                       APP_KEEP,     APP_FREE,   APP_HANGUP};

MENU menu_greeting[] = {ACT_TURN,    ACT_TURN,     ACT_TURN,  SAY_HELLO,   SAY_HELLO,  SAY_WELCOME,
                        SAY_WELCOME, SAY_REFUSE,   SAY_DATA,  SAY_CREDIT,  SAY_ALIVE,  SAY_BYE,
                        SAY_REQUEST, SAY_ANNOUNCE, SAY_NOISE, DEV_WILD,    DEV_LEAVE,  DEV_ERROR,
                        APP_DECIDE,  APP_DECIDE,   APP_SEND,  APP_REQUEST, APP_HANGUP, APP_CLOCK};

#endif
