/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory.h - registered memory of the application: one-sided access to it, and messages without copying.
 *
 * A *region* is memory that the device may read and write. A *token* is what one side gives to the
 * other, inside a message for instance, so that the holder may access a part of the region without any
 * call by the side that owns it. The operations are queued with the messages of their session: they begin in the
 * order of the calls, they share its window, and each that has a tag has exactly one SLUICE_DONE.
 *
 * What is in order. An operation that was given after another may overtake it in effect where RDMA
 * lets it: a put, a get and an atomic that touch the same bytes need sluice_fence() between them, and
 * so does a put behind a get. Puts among each other, and a message behind puts, are in order: when the
 * message is delivered, the bytes of every put before it are in place. A 64-bit atomic is atomic
 * against every other of these calls on the same device, and not against the CPU's own.
 *
 * Errors. What can be checked here (range, rights, a value that is no token) fails with the call
 * or in its outcome, and the session lives. What only the other side's device can tell (a token that
 * was revoked, or never valid) is EACCESS in the outcome, and ends the session with reason ACCESS on
 * both sides: RDMA has no other way. (Some drivers report nothing to the target: then that side ends with
 * PEER_LOST.) An operation given after it is ECLOSED if it never left, else EUNKNOWN. No operation is tried
 * twice: it was done once, or not at all. EUNKNOWN says that the library cannot know which; of a large
 * operation a part may have been done. Where the session outlives its connection (resume_ns) so ends what was on its way when that
 * was lost, and all that was given behind it and had not arrived ends EFENCED, operations and messages: that was not done.
 * While the session lives, outcomes come in the order of the calls.
 *
 * Rules of ownership, errors, options and threads are those of sluice.h.
 */
#ifndef SLUICE_MEMORY_H
#define SLUICE_MEMORY_H

#include <sluice/sluice.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sluice_region sluice_region;

/* What the holder of a token may do. The owner's own use of its region, and messages, need no right. */
#define SLUICE_MAY_READ 1u   /* get */
#define SLUICE_MAY_WRITE 2u  /* put, put with notify */
#define SLUICE_MAY_ATOMIC 4u /* fetch-add, compare-swap */

/*
 * Names `length` bytes of a region, with rights. A token is plain data: the application may copy, send and
 * keep it. It is valid until its region is closed or revoked, over any session with that node: the next one after a loss, too.
 * Only the node that made it accepts it. Bytes are in the order of
 * the network, so that peers of any kind read the same.
 */
typedef struct sluice_token {
    uint8_t bytes[32];
} sluice_token;

/* ---- regions ----------------------------------------------------------------------------------- */

/*
 * Registers `bytes` of memory at `addr`, which must stay mapped until the region is closed. addr NULL:
 * the library allocates the memory, page aligned and zeroed, of the kind the device moves fastest (on the
 * software device: memory that peers map, which saves a copy). `rights`: the most that tokens of it may
 * give; 0 = no tokens, the region is for this side's own use. Blocks while the device registers the memory; any
 * thread. Counts against no limit but the device's own. The memory must be writable. Errors: ENOMEM (text says
 * which limit and what helps), EINVAL (with os_errno EFAULT or EACCES: not all of it is mapped, or writable),
 * ECLOSED, EDEVICE (also if `rights` has SLUICE_MAY_ATOMIC and the device has no atomics). For memory of the
 * application's the software device sets a handler of SIGSEGV and SIGBUS, if it is not there: what a peer asks of memory
 * that was unmapped fails then. All that is not such an access goes to the handler that was there, or to the default.
 * ibv_reg_mr(3).
 */
SLUICE_API SLUICE_CHECK int sluice_region_open(sluice_node *n, void *addr, uint64_t bytes,
                                               uint32_t rights, sluice_region **out,
                                               sluice_error *e);
/*
 * Ends the region: its tokens are void from here on, and memory that the library allocated for it is
 * freed. EINVAL while a message or an operation of this node still uses it: wait for their outcomes first. NULL
 * is allowed. EDEVICE: the device did not deregister it; try again. sluice_close() closes the regions of
 * its node. After the device was removed the memory stays, and the region must be closed as before.
 */
SLUICE_API int sluice_region_close(sluice_region *r);
SLUICE_API void *sluice_region_data(const sluice_region *r);
SLUICE_API uint64_t sluice_region_size(const sluice_region *r);
/*
 * A token for `bytes` at `offset`, with `rights` or fewer than the region's. EINVAL: out of range, no
 * rights or more than the region has. The holder's library enforces rights and range of a token; the device
 * enforces only the range and the rights of the whole region. So a peer that does not use this library can
 * reach the whole region with the rights of the region: peers that do not trust each other need a region each.
 * A token is bound to no session and to no key of a listener: taking a key away does not void it,
 * sluice_region_revoke() does.
 */
SLUICE_API SLUICE_CHECK int sluice_region_token(const sluice_region *r, uint64_t offset,
                                                uint64_t bytes, uint32_t rights, sluice_token *out);
/*
 * Makes every token given so far void, at once and for good: after the call no byte of the region is
 * read or written through one of them. New tokens can be made. EINVAL while a message or an operation
 * of this node uses the region. ENOMEM, EDEVICE: the old tokens are void and no new ones can be made; call it
 * again, or close the region. Blocks while the device registers. Calls that use the region meanwhile get EINVAL.
 */
SLUICE_API SLUICE_CHECK int sluice_region_revoke(sluice_region *r, sluice_error *e);

/* ---- one-sided --------------------------------------------------------------------------------- */

/*
 * For all calls of this part: `token` was made by the peer of session `s`; `remote` is an offset into the bytes
 * that the token names; `local` is an offset into region `r` of this node, whose bytes are in use until the
 * outcome. 0: taken. EAGAIN, ECLOSED: as sluice_send(). EINVAL: the local range, a region of another node, a
 * value that is no token, flags. EACCESS: the token's range or rights do not allow it. EMSGSIZE: above 1 GiB.
 * ENOMEM: as sluice_alloc(). EDEVICE: the device was removed, or one of the two devices serves no RDMA READ.
 * Outcome: SLUICE_DONE, if o->tag is not 0. A put is done when its bytes are in the peer's memory. 0 bytes
 * are allowed, and r may then be NULL. On iWARP the peer can write to the bytes of a get until the get is
 * done, and each get registers its bytes anew: its outcome is ENOMEM if that fails.
 */
SLUICE_API int sluice_put(sluice_session s, const sluice_region *r, uint64_t local, uint64_t bytes,
                          const sluice_token *token, uint64_t remote, const sluice_send_options *o);
SLUICE_API SLUICE_CHECK int sluice_get(sluice_session s, const sluice_region *r, uint64_t local,
                                       uint64_t bytes, const sluice_token *token, uint64_t remote,
                                       const sluice_send_options *o);
/* A put after which the peer gets SLUICE_NOTIFIED with `value`, in order with the session's messages.
 * It uses one credit, as a message does; the other one-sided operations use none. */
SLUICE_API int sluice_put_notify(sluice_session s, const sluice_region *r, uint64_t local,
                                 uint64_t bytes, const sluice_token *token, uint64_t remote,
                                 uint32_t value, const sluice_send_options *o);
/* Adds to 8 bytes in the peer's own byte order. The outcome's value is what the 8 bytes held before. EINVAL:
 * the remote address is not aligned to 8 bytes. EDEVICE: the device has no atomics. */
SLUICE_API SLUICE_CHECK int sluice_fetch_add(sluice_session s, const sluice_token *token,
                                             uint64_t remote, uint64_t add,
                                             const sluice_send_options *o);
/* Stores `desired` if the 8 bytes equal `expected`. The outcome's value is what they held before. */
SLUICE_API SLUICE_CHECK int sluice_compare_swap(sluice_session s, const sluice_token *token,
                                                uint64_t remote, uint64_t expected,
                                                uint64_t desired, const sluice_send_options *o);
/* Operations given after the fence begin when every operation given before it is done. It has an outcome too. */
SLUICE_API SLUICE_CHECK int sluice_fence(sluice_session s, const sluice_send_options *o);

/* ---- messages without copying ------------------------------------------------------------------ */

#define SLUICE_PIECES_MAX 16

/* A part of a message. region NULL: plain memory, which the call copies unless SLUICE_IN_PLACE is set. */
typedef struct sluice_piece {
    const void *data; /* within the region */
    uint64_t bytes;
    const sluice_region *region;
} sluice_piece;

/*
 * Sends one message made of up to SLUICE_PIECES_MAX pieces, as sluice_send(). The bytes of a region are
 * not copied: they must not change until the outcome is known, so give a tag. If they do, the peer may get any mixture of what
 * they were and are; no session ends for it. EINVAL: too many pieces,
 * or one that is not within its region; EAGAIN, ENOMEM: as sluice_alloc(), for the bytes that are copied.
 * If a large message is a single piece of a region, the peer may read it with an rkey for these bytes alone,
 * which is void before the outcome; the region's rights are for tokens and do not matter here.
 */
SLUICE_API int sluice_send_pieces(sluice_session s, const sluice_piece *pieces, int count,
                                  const sluice_send_options *o);
/*
 * With SLUICE_IN_PLACE in o->flags plain pieces of SLUICE_IN_PLACE_MIN bytes and more are not copied either,
 * where that is possible: until the outcome they must stay mapped and must not change. They are registered
 * for reading by this side's device only (no peer gets an rkey), and the registration is kept for later
 * messages, up to registration_bytes_max in all; the least recently used one is dropped first.
 *
 * A registration that outlived its memory would send old contents. So it is kept only where the library is told
 * when the memory goes away: by the kernel, of memory that is unmapped, mapped over, moved or discarded
 * (userfaultfd, on Linux for anonymous and for shared memory; a watched range is a mapping of its own to the
 * kernel, so mremap() of more than that fails with EFAULT); or by the application, which promises with
 * SLUICE_REGISTRATIONS_NOTIFIED to call sluice_registration_invalidate(). Where neither is so, and for
 * memory that cannot be watched or registered, the pieces are copied by the call. The kernel does not tell
 * of shared memory that is truncated or punched through its file: then
 * sluice_registration_invalidate() is needed in any case.
 *
 * Registrations are looked up under RCU (liburcu's bp flavour). An application that uses that too may send
 * inside of a read-side section of its own, but must not call sluice_close() there: it would wait for itself.
 */
#define SLUICE_IN_PLACE_MIN 4096u
/*
 * Drops the registrations of [addr, addr + bytes), because that memory is about to be unmapped or replaced: no
 * later message is sent from them. Call it before munmap(), mremap(), mmap() over it, and the like; never while
 * a message from there has no outcome. Any thread, any node, no error; does nothing in a child of fork().
 */
SLUICE_API void sluice_registration_invalidate(const void *addr, size_t bytes);

typedef struct sluice_registration_info {
    size_t size;          /* set by the caller */
    uint32_t on;          /* 1 = registrations are kept; 0 before the first message in place */
    uint32_t entries;     /* kept now */
    uint64_t bytes;       /* registered now */
    uint64_t bytes_max;   /* registered at most */
    uint64_t hits;        /* pieces whose registration was there */
    uint64_t misses;      /* pieces that had to be registered, or could not be */
    uint64_t dropped;     /* registrations that made room for others */
    uint64_t invalidated; /* registrations whose memory went away */
    uint64_t merged;      /* registrations that became part of a larger one */
    uint64_t copied;      /* pieces that were copied after all */
    char why[120];        /* which side notifies, or why none are kept; one line */
} sluice_registration_info;
SLUICE_API int sluice_registration_get_info(sluice_node *n, sluice_registration_info *info);

/*
 * The answer to SLUICE_LARGE, during the event or later: the message goes to `offset` of region r,
 * and its SLUICE_MESSAGE has msg NULL, the token, and its size as value. r NULL: it goes to memory of
 * the node instead. Until the answer later messages of the session wait. The region's bytes belong to
 * the library until MESSAGE or CLOSED, and may be overwritten with zeros. EINVAL: no such token, out of
 * range, answered before, or the region is being closed. For sessions on the calling thread's loop only.
 */
SLUICE_API SLUICE_CHECK int sluice_receive_into(sluice_session s, uint64_t token, sluice_region *r,
                                                uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
