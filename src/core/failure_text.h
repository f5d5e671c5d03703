/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * failure_text.h - the texts of failures: each states only known facts, and each fact once.
 *
 * Any thread.
 */
#ifndef CORE_FAILURE_TEXT_H
#define CORE_FAILURE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include <infiniband/verbs.h>
#include <sluice/sluice.h>

struct private_data_rej;

/* Why an address could not be bound or listened at; error is the errno of the call. */
void failure_text_of_bind(char *out, size_t size, const struct sockaddr *address, int error);
/* And whether that is the address's fault: ADDRESS, else this side's. */
sluice_reason failure_text_reason_of_bind(int error);
/* Of a call that fails for a reason of this side: NO_MEMORY or DEVICE_ERROR. */
sluice_reason failure_text_reason_of_call(int error);
/* Of those the ones that may pass. */
bool failure_text_short_of_files(int error);
extern const char failure_text_no_port[]; /* to dial from; others give theirs back */

/*
 * The text of a refusal that came from the other side. The text of the application's own refusal is not changed;
 * all other texts are from the other side's point of view, so the sentence says which side wrote it.
 */
void failure_text_of_refusal(char *out, size_t size, const struct private_data_rej *rej,
                             bool by_listener);

/* A rejection without a record of ours: by a consumer there, with nothing else either, or by its stack. */
const char *failure_text_of_rejection(sluice_reason reason, bool consumer, bool empty);

/* That a side closed itself is not for the other one to say: such a refusal is REFUSED. */
sluice_reason failure_text_reason_of_refusal(const struct private_data_rej *rej);

/* The text of a failed completion: its status, in words and as a number. */
void failure_text_of_completion(char *out, size_t size, enum ibv_wc_status status);

/* One line for both: the reason's text, and behind it what says more. */
void failure_text_of_end(char *out, size_t size, sluice_reason reason, const char *text);

#endif
