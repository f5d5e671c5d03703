/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * sanitize.h - tells the sanitizers what they cannot see; nothing at all in a normal build.
 *
 *   SANITIZE_RELEASE(addr), SANITIZE_ACQUIRE(addr)   an order that code not built with the thread
 *                                                    sanitizer (liburcu) establishes
 *   SANITIZE_POISON(addr, n), SANITIZE_UNPOISON(...) memory that no code may touch, for the
 *                                                    address sanitizer
 */
#ifndef COMMON_SANITIZE_H
#define COMMON_SANITIZE_H

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SANITIZE_THREAD 1
#endif
#if __has_feature(address_sanitizer)
#define SANITIZE_ADDRESS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SANITIZE_THREAD 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZE_ADDRESS 1
#endif

#ifdef SANITIZE_THREAD
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define SANITIZE_ACQUIRE(addr) __tsan_acquire(addr)
#define SANITIZE_RELEASE(addr) __tsan_release(addr)
#else
#define SANITIZE_ACQUIRE(addr) ((void)(addr))
#define SANITIZE_RELEASE(addr) ((void)(addr))
#endif

#ifdef SANITIZE_ADDRESS
#define SANITIZES_ADDRESS 1
void __asan_poison_memory_region(void const volatile *addr, size_t bytes);
void __asan_unpoison_memory_region(void const volatile *addr, size_t bytes);
#define SANITIZE_POISON(addr, bytes) __asan_poison_memory_region(addr, bytes)
#define SANITIZE_UNPOISON(addr, bytes) __asan_unpoison_memory_region(addr, bytes)
#else
#define SANITIZES_ADDRESS 0
#define SANITIZE_POISON(addr, bytes) ((void)(addr), (void)(bytes))
#define SANITIZE_UNPOISON(addr, bytes) ((void)(addr), (void)(bytes))
#endif

#endif
