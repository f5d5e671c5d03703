/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * guarded_copy.c - see guarded_copy.h.
 *
 * guarded_call() keeps the registers that a function must preserve in its frame, and calls. The handler of a fault within
 * the memory that this thread guards sets the frame pointer and the next instruction to the end of guarded_call(), which
 * restores them: so nothing is needed of the function that was left. A shadow stack, if there is one, has the returns of
 * that function on top, and they are dropped (rdsspq changes nothing where there is none).
 *
 * The dispositions found are kept in nodes that are never freed or changed: a handler reads them at any time. There are as
 * many as there are different handlers.
 */
#define _GNU_SOURCE
#include "common/guarded_copy.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

struct landing {
    uintptr_t frame; /* guarded_call() writes it at this place */
    uintptr_t start;
    size_t bytes;
};

/* No function call to find it: a handler reads it, in a library that may have been loaded late. */
static _Thread_local struct landing *landing __attribute__((tls_model("initial-exec")));

/* The signal that is being passed on, and from which frame. It may never return: handlers may jump out. */
static _Thread_local struct {
    const void *context, *frame;
} passing __attribute__((tls_model("initial-exec")));

#if defined(__x86_64__)
#define GUARDS 1
__asm__(".pushsection .text\n"
        ".type guarded_call, @function\n"
        "guarded_call:\n"
        ".cfi_startproc\n"
        "  push %rbp\n"
        "  .cfi_def_cfa_offset 16\n"
        "  .cfi_offset rbp, -16\n"
        "  mov %rsp, %rbp\n"
        "  .cfi_def_cfa_register rbp\n"
        "  push %rbx\n"
        "  push %r12\n"
        "  push %r13\n"
        "  push %r14\n"
        "  push %r15\n"
        "  xor %eax, %eax\n"
        "  rdsspq %rax\n"
        "  push %rax\n"
        "  mov %rbp, (%rdx)\n"
        "  mov %rdi, %rax\n"
        "  mov %rsi, %rdi\n"
        "  call *%rax\n"
        "  xor %eax, %eax\n"
        "  jmp 1f\n"
        "guarded_landing:\n"
        "  xor %ecx, %ecx\n"
        "  rdsspq %rcx\n"
        "  mov -48(%rbp), %rax\n"
        "  sub %rcx, %rax\n"
        "  shr $3, %rax\n"
        "  test %rcx, %rcx\n"
        "  jz 2f\n"
        "  incsspq %rax\n"
        "2:\n"
        "  mov $1, %eax\n"
        "1:\n"
        "  lea -40(%rbp), %rsp\n"
        "  pop %r15\n"
        "  pop %r14\n"
        "  pop %r13\n"
        "  pop %r12\n"
        "  pop %rbx\n"
        "  pop %rbp\n"
        "  .cfi_def_cfa rsp, 8\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size guarded_call, .-guarded_call\n"
        ".popsection\n");

/* Of string instructions: functions begin and end with it clear. */
#define DIRECTION ((greg_t)0x400)

static uintptr_t stack_of(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
}

static void go_to(ucontext_t *context, uintptr_t frame, uintptr_t where) {
    greg_t *r = context->uc_mcontext.gregs;
    r[REG_RBP] = (greg_t)frame;
    r[REG_RIP] = (greg_t)where;
    r[REG_EFL] &= ~DIRECTION;
}
#elif defined(__aarch64__)
#define GUARDS 1
__asm__(".pushsection .text\n"
        ".type guarded_call, %function\n"
        "guarded_call:\n"
        ".cfi_startproc\n"
        "  hint #34\n" /* bti c, which older assemblers do not know */
        "  stp x29, x30, [sp, #-160]!\n"
        "  .cfi_def_cfa_offset 160\n"
        "  .cfi_offset 29, -160\n"
        "  .cfi_offset 30, -152\n"
        "  mov x29, sp\n"
        "  .cfi_def_cfa_register 29\n"
        "  stp x19, x20, [sp, #16]\n"
        "  stp x21, x22, [sp, #32]\n"
        "  stp x23, x24, [sp, #48]\n"
        "  stp x25, x26, [sp, #64]\n"
        "  stp x27, x28, [sp, #80]\n"
        "  stp d8, d9, [sp, #96]\n"
        "  stp d10, d11, [sp, #112]\n"
        "  stp d12, d13, [sp, #128]\n"
        "  stp d14, d15, [sp, #144]\n"
        "  str x29, [x2]\n"
        "  mov x9, x0\n"
        "  mov x0, x1\n"
        "  blr x9\n"
        "  mov w0, #0\n"
        "  b 1f\n"
        "guarded_landing:\n"
        "  mov w0, #1\n"
        "1:\n"
        "  mov sp, x29\n"
        "  ldp x19, x20, [sp, #16]\n"
        "  ldp x21, x22, [sp, #32]\n"
        "  ldp x23, x24, [sp, #48]\n"
        "  ldp x25, x26, [sp, #64]\n"
        "  ldp x27, x28, [sp, #80]\n"
        "  ldp d8, d9, [sp, #96]\n"
        "  ldp d10, d11, [sp, #112]\n"
        "  ldp d12, d13, [sp, #128]\n"
        "  ldp d14, d15, [sp, #144]\n"
        "  ldp x29, x30, [sp], #160\n"
        "  .cfi_def_cfa 31, 0\n"
        "  ret\n"
        ".cfi_endproc\n"
        ".size guarded_call, .-guarded_call\n"
        ".popsection\n");

static uintptr_t stack_of(const ucontext_t *context) {
    return (uintptr_t)context->uc_mcontext.sp;
}

static void go_to(ucontext_t *context, uintptr_t frame, uintptr_t where) {
    context->uc_mcontext.regs[29] = frame;
    context->uc_mcontext.pc = where;
}
#else
#define GUARDS 0
#endif

#if GUARDS
/* Of this file: hidden, as assemblers for aarch64 take a local symbol's place in the global offset table wrongly. */
#define OF_THIS_FILE __attribute__((visibility("hidden")))
/* 0, or 1: the function was left. */
extern int guarded_call(void (*run)(void *arg), void *arg, struct landing *here) OF_THIS_FILE;
extern const char guarded_landing[] OF_THIS_FILE;

/* ---- the handlers -------------------------------------------------------------------------------- */

static const int signals[] = {SIGSEGV, SIGBUS};
enum { SIGNALS = sizeof signals / sizeof *signals };

struct found {
    struct sigaction action;
    struct found *next;
};

static struct found *nodes[SIGNALS];
static struct found *_Atomic before[SIGNALS]; /* what a signal is passed to */

static int index_of(int number) {
    return number == signals[0] ? 0 : 1;
}

/* What was sent comes again when the handler returns, and a fault happens again: by then the default is in force. */
static void by_default(int number, const siginfo_t *info) {
    const struct sigaction usual = {.sa_handler = SIG_DFL};
    sigaction(number, &usual, NULL);
    if (info->si_code <= 0)
        raise(number);
}

/* A handler that was set over this one passes the same signal to it, from further down the stack. */
static bool goes_round(const void *context, const void *frame) {
    return passing.context == context && (uintptr_t)frame < (uintptr_t)passing.frame;
}

static void pass_on(int number, siginfo_t *info, void *context) {
    const struct found *to = atomic_load_explicit(&before[index_of(number)], memory_order_acquire);
    const void *frame = __builtin_frame_address(0);
    bool has_handler = to && to->action.sa_handler != SIG_DFL && to->action.sa_handler != SIG_IGN;
    if (!has_handler || goes_round(context, frame)) {
        bool ignored = to && to->action.sa_handler == SIG_IGN && info->si_code <= 0;
        if (!ignored)
            by_default(number, info);
        return;
    }
    passing.context = context;
    passing.frame = frame;
    if (to->action.sa_flags & SA_SIGINFO)
        to->action.sa_sigaction(number, info, context);
    else
        to->action.sa_handler(number);
    passing.context = NULL;
}

/* What a handler jumped out of is no longer guarded: the stack ends above it. */
static bool guards(const struct landing *here, const siginfo_t *info, const ucontext_t *context) {
    return here && info->si_code > 0 && here->frame >= stack_of(context) &&
           (uintptr_t)info->si_addr - here->start < here->bytes;
}

static void on_fault(int number, siginfo_t *info, void *context) {
    const struct landing *here = landing;
    if (guards(here, info, context))
        go_to(context, here->frame, (uintptr_t)guarded_landing);
    else
        pass_on(number, info, context);
}

static bool same(const struct sigaction *a, const struct sigaction *b) {
    return a->sa_flags == b->sa_flags && a->sa_sigaction == b->sa_sigaction &&
           memcmp(&a->sa_mask, &b->sa_mask, sizeof a->sa_mask) == 0;
}

static struct found *node_of(int i, const struct sigaction *action) {
    struct found *node = nodes[i];
    while (node && !same(&node->action, action))
        node = node->next;
    if (!node && (node = malloc(sizeof *node))) {
        *node = (struct found){.action = *action, .next = nodes[i]};
        nodes[i] = node;
    }
    return node;
}

static void arm(int i) {
    struct sigaction now;
    if (sigaction(signals[i], NULL, &now) != 0 || now.sa_sigaction == on_fault)
        return;
    struct found *node = node_of(i, &now);
    if (!node)
        return;
    struct sigaction ours = {.sa_sigaction = on_fault,
                             .sa_mask = now.sa_mask,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK |
                                         (now.sa_flags & (SA_NODEFER | SA_RESTART))};
    atomic_store_explicit(&before[i], node, memory_order_release);
    sigaction(signals[i], &ours, NULL);
}

void guarded_copy_arm(void) {
    for (int i = 0; i < SIGNALS; i++)
        arm(i);
}

/* ---- the access ---------------------------------------------------------------------------------- */

bool guarded_run(void (*run)(void *arg), void *arg, const void *at, size_t bytes) {
    struct landing here = {.start = (uintptr_t)at, .bytes = bytes}, *outer = landing;
    landing = &here;
    atomic_signal_fence(memory_order_seq_cst);
    int left = guarded_call(run, arg, &here);
    atomic_signal_fence(memory_order_seq_cst);
    landing =
        outer; /* there is one where a handler of signals interrupted an access and makes another */
    return left == 0;
}
#else
void guarded_copy_arm(void) {
}

bool guarded_run(void (*run)(void *arg), void *arg, const void *at, size_t bytes) {
    (void)at;
    (void)bytes;
    run(arg);
    return true;
}
#endif

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void copy(void *arg) {
    const struct copy *c = arg;
    memcpy(c->to, c->from, c->bytes);
}

bool copy_guarded_to(void *to, const void *from, size_t bytes) {
    return guarded_run(copy, &(struct copy){to, from, bytes}, to, bytes);
}

bool copy_guarded_from(void *to, const void *from, size_t bytes) {
    return guarded_run(copy, &(struct copy){to, from, bytes}, from, bytes);
}
