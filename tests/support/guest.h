/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * guest.h - what the tests in the kernel guest share: commands of the system, the device that comes
 * and goes, and which rdma_cm events this process has really seen.
 *
 * A command's end is waited for while the sides are polled or not, as the test wants.
 */
#ifndef TESTS_SUPPORT_GUEST_H
#define TESTS_SUPPORT_GUEST_H

#include "support/side.h"
#include "support/tasks.h"

#include <rdma/rdma_cma.h> /* the numbers of its events */
#include <sys/stat.h>

/* ---- commands ------------------------------------------------------------------------------------ */

/* Starts a command of the system; words end with NULL. */
pid_t command_start(const char *const words[]);
/* Whether it ended. */
bool command_ended(pid_t pid);
/* Waits for it; its exit status. */
int command_status(pid_t pid);

#define command(...) command_status(command_start((const char *const[]){__VA_ARGS__, NULL}))

/* What the environment says, or a failed test. */
const char *guest_setting(const char *name);

/* ---- the device -------------------------------------------------------------------------------- */

/* Whether the system has it. */
bool device_exists(const char *device);
/* Makes it of a network interface, as rdma(8) does. */
void device_add(const char *device, const char *interface);
/* Starts to remove it: the command ends when everybody has let go of it. */
pid_t device_removal(const char *device);

/* ---- events ---------------------------------------------------------------------------------------- */

/* How many events of this kind the nodes of this process have taken, by what they publish. */
unsigned long cm_events(const char *name);

/* ---- what must be as before -------------------------------------------------------------------- */

struct guest_level {
    unsigned fds, threads;
    size_t resident;
};

/* A thread that has been joined is still listed until the kernel is done with it: the lowest count
 * of several looks is the true one. */
struct guest_level guest_level(void);
/* guest_level() that waits for what is being given back, for as long as anything may take. */
struct guest_level guest_level_back_at(const struct guest_level *before);

/* Set-up and tear-down of a test: descriptors and threads are what they were. */
extern struct guest_level guest_before;

/* What is on its way up or down is not before: it is looked at until nothing has changed. */
int guest_remember(void **state);
/* And they are what they were. */
int guest_compare(void **state);

#define LEVEL_CASE(name, mode, handlers)                                                           \
    { #name "/" mode, name, guest_remember, guest_compare, (void *)(uintptr_t)(handlers) }
#define LEVEL_TEST(name, mode, handlers) TEST_EACH(name, LEVEL_CASE(name, mode, handlers))
#define LEVEL_BOTH(name)                                                                           \
    TEST_EACH(name, LEVEL_CASE(name, "polled", 0), LEVEL_CASE(name, "handlers", 1))

/* ---- dialing ------------------------------------------------------------------------------------- */

/* With SLUICE_ONCE a test is about what the event of that try becomes. */
void guest_dial(struct side *side, const char *host, int port, const sluice_link_options *given);
/* cm_event: what the stack said, with its status; -1: it did not speak, a call of it failed. */
struct note guest_expect_end(struct side *side, sluice_reason reason, uint32_t vendor, int cm_event,
                             int cm_status);
/* Nobody listens: an event says so, or on iWARP the call that connects, for it is TCP that is refused. */
struct note guest_expect_nobody(struct side *side);
/* librdmacm opens each device that an id leads to once, and keeps it. */
int guest_warm_up(void **state);

#endif
