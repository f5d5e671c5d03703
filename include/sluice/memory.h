/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * memory.h - registered memory of the application: one-sided access to it, and messages without copying.
 *
 * A *region* is memory that the device may read and write. A *token* is what one side gives to the
 * other, inside a message for instance, so that it may access a part of the region without the help
 * of anybody there. The operations are queued with the messages of their session: they begin in the
 * order of the calls, they share its window, and each that has a tag has exactly one SLUICE_DONE.
 *
 * What is in order. An operation that was given after another may overtake it in effect where RDMA
 * lets it: a put, a get and an atomic that touch the same bytes need sluice_fence() between them, and
 * so does a put behind a get. Puts among each other, and a message behind puts, are in order: when the
 * message is delivered, the bytes of every put before it are in place. A 64-bit atomic is atomic
 * against every other of these calls on the same device, and not against the CPU's own.
 *
 * What goes wrong. What can be checked here (range, rights, a token that is none) fails with the call
 * or in its outcome, and the session lives. What only the other side's device can tell (a token that
 * was revoked, or never valid) is EACCESS in the outcome, and ends the session with reason ACCESS on
 * both sides: RDMA has no other way. (Some drivers tell the target nothing: then that side ends with
 * PEER_LOST.) What was given behind it is ECLOSED if it never left, else EUNKNOWN. Nothing is tried twice:
 * an operation was done once, or not, or (EUNKNOWN) nobody knows, or in part where it is large. The
 * outcomes of a session that lives come in the order of the calls.
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

/* What the holder of a token may do. The region itself, and messages from and to it, need none. */
#define SLUICE_MAY_READ 1u   /* get */
#define SLUICE_MAY_WRITE 2u  /* put, put with notify */
#define SLUICE_MAY_ATOMIC 4u /* fetch-add, compare-swap */

/*
 * Names `length` bytes of a region, with rights. It is data: copy it, send it, keep it. It says
 * nothing to, and works through no other node than, the one that made it. Bytes are in the order of
 * the network, so that peers of any kind read the same.
 */
typedef struct sluice_token {
    uint8_t bytes[32];
} sluice_token;

/* ---- regions ----------------------------------------------------------------------------------- */

/*
 * Registers `bytes` of memory at `addr`, which must stay mapped until the region is closed. addr NULL:
 * the library finds memory, page aligned and zeroed, of the kind the device moves fastest (on the
 * software device: memory that peers map, which saves a copy). `rights`: the most that tokens of it may
 * give; 0 = none, it is for this side's own use. Blocks for a moment; any thread. Counts against no limit
 * but the device's own. The memory must be writable. Errors: ENOMEM (text says which limit and what
 * helps), EINVAL (with os_errno EFAULT or EACCES: not all of it is mapped, or writable), ECLOSED, EDEVICE (also where
 * the device has no atomics and they are asked for).
 * ibv_reg_mr(3).
 */
SLUICE_API SLUICE_CHECK int sluice_region_open(sluice_node *n, void *addr, uint64_t bytes,
                                               uint32_t rights, sluice_region **out,
                                               sluice_error *e);
/*
 * Ends the region: its tokens are void from here on, and the memory, if the library found it, is
 * gone. EINVAL while a message or an operation of mine still uses it: their outcomes come first. NULL
 * is allowed. EDEVICE: the device does not let go of it; try again. sluice_close() closes the regions of
 * its node. From a removed device the memory stays, and the region must be closed as ever.
 */
SLUICE_API int sluice_region_close(sluice_region *r);
SLUICE_API void *sluice_region_data(const sluice_region *r);
SLUICE_API uint64_t sluice_region_size(const sluice_region *r);
/*
 * A token for `bytes` at `offset`, with `rights` or fewer than the region's. EINVAL: out of range, no
 * rights or more than the region has. Rights and range of a token are kept by the holder's library;
 * what the device enforces is the region's whole range, and its rights: give a region to peers that
 * do not trust each other, and each can reach what the other can. A region for each is the way then.
 * A token is bound to no session and to no key of a listener: taking a key away does not void it,
 * sluice_region_revoke() does.
 */
SLUICE_API SLUICE_CHECK int sluice_region_token(const sluice_region *r, uint64_t offset,
                                                uint64_t bytes, uint32_t rights, sluice_token *out);
/*
 * Makes every token given so far void, at once and for good: after the call no byte of the region is
 * read or written through one of them. New tokens can be made. EINVAL while a message or an operation
 * of mine uses the region. ENOMEM, EDEVICE: the old tokens are void and no new ones can be made; call it
 * again, or close the region. Blocks for a moment. A call that uses the region meanwhile is told EINVAL.
 */
SLUICE_API SLUICE_CHECK int sluice_region_revoke(sluice_region *r, sluice_error *e);

/* ---- one-sided --------------------------------------------------------------------------------- */

/*
 * All of these: `token` was made by the peer of session `s`; `remote` is an offset into what it
 * names; `local` an offset into region `r` of mine, whose bytes are used until the outcome is known.
 * 0: taken. EAGAIN, ECLOSED: as sluice_send(). EINVAL: the local range, a region of another node, a
 * token that is none, flags. EACCESS: the token's range or rights do not allow it. EMSGSIZE: above 1 GiB.
 * ENOMEM: as sluice_alloc(). EDEVICE: the device is gone, or one of the two serves no reads.
 * Outcome: SLUICE_DONE, if o->tag is not 0. A put is done when its bytes are in the peer's memory. 0 bytes
 * are allowed, and r may then be NULL. On iWARP the peer can write what a get has not brought yet, as long
 * as that is under way, and each get registers its bytes anew: its outcome is ENOMEM where that fails.
 */
SLUICE_API int sluice_put(sluice_session s, const sluice_region *r, uint64_t local, uint64_t bytes,
                          const sluice_token *token, uint64_t remote, const sluice_send_options *o);
SLUICE_API SLUICE_CHECK int sluice_get(sluice_session s, const sluice_region *r, uint64_t local,
                                       uint64_t bytes, const sluice_token *token, uint64_t remote,
                                       const sluice_send_options *o);
/* A put after which the peer gets SLUICE_NOTIFIED with `value`, in order with the session's messages.
 * It takes a credit, as a message does; the others do not. */
SLUICE_API int sluice_put_notify(sluice_session s, const sluice_region *r, uint64_t local,
                                 uint64_t bytes, const sluice_token *token, uint64_t remote,
                                 uint32_t value, const sluice_send_options *o);
/* Adds to 8 bytes in the peer's own byte order. What was there before is in the outcome's value. EINVAL:
 * not aligned to 8 bytes there. EDEVICE: the device has no atomics. */
SLUICE_API SLUICE_CHECK int sluice_fetch_add(sluice_session s, const sluice_token *token,
                                             uint64_t remote, uint64_t add,
                                             const sluice_send_options *o);
/* Stores `desired` if the 8 bytes are `expected`: they were if the outcome's value says so. */
SLUICE_API SLUICE_CHECK int sluice_compare_swap(sluice_session s, const sluice_token *token,
                                                uint64_t remote, uint64_t expected,
                                                uint64_t desired, const sluice_send_options *o);
/* What is given after it begins when every operation given before it is done. It has an outcome too. */
SLUICE_API SLUICE_CHECK int sluice_fence(sluice_session s, const sluice_send_options *o);

/* ---- messages without copying ------------------------------------------------------------------ */

#define SLUICE_PIECES_MAX 16

/* A part of a message. region NULL: plain memory, copied by the call unless SLUICE_IN_PLACE says else. */
typedef struct sluice_piece {
    const void *data; /* within the region */
    uint64_t bytes;
    const sluice_region *region;
} sluice_piece;

/*
 * Sends one message made of up to SLUICE_PIECES_MAX pieces, as sluice_send(). What lies in a region is
 * not copied: it must not change until the outcome is known, so give a tag. EINVAL: too many pieces,
 * or one that is not within its region; EAGAIN, ENOMEM: as sluice_alloc(), of what is copied.
 * A large message that is a single piece of a region may be read by the peer, by a key for these bytes alone
 * that is void before the outcome; the region's rights are for tokens and do not matter here.
 */
SLUICE_API int sluice_send_pieces(sluice_session s, const sluice_piece *pieces, int count,
                                  const sluice_send_options *o);
/*
 * With SLUICE_IN_PLACE in o->flags plain pieces of SLUICE_IN_PLACE_MIN bytes and more are not copied either,
 * if it can be helped: until the outcome they must stay mapped and must not change. They are registered
 * for this side's own reading only (no peer gets a key to them), and the registration is kept for the next
 * time, up to registration_bytes_max, the least recently used going first.
 *
 * A registration that outlived its memory would send what was there before. So it is kept only where
 * somebody tells: the kernel, of memory that is unmapped, mapped over, moved or discarded (userfaultfd, on
 * Linux for memory that is no file's and for shared memory; a watched range is a mapping of its own to the
 * kernel, so mremap() of more than that fails with EFAULT); or the application, which promises with
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
 * What lies at [addr, addr + bytes) is about to go away or to be replaced: no later message is sent from a
 * registration of it. Call it before munmap(), mremap(), mmap() over it, and the like; never while a
 * message from there has no outcome. Any thread, any node, no error; does nothing in a child of fork().
 */
SLUICE_API void sluice_registration_invalidate(const void *addr, size_t bytes);

typedef struct sluice_registration_info {
    size_t size;          /* set by the caller */
    uint32_t on;          /* 1 = registrations are kept; 0 before the first message in place */
    uint32_t entries;     /* kept now */
    uint64_t bytes;       /* registered now */
    uint64_t bytes_max;   /* and at most */
    uint64_t hits;        /* pieces whose registration was there */
    uint64_t misses;      /* pieces that had to be registered, or could not be */
    uint64_t dropped;     /* registrations that made room for others */
    uint64_t invalidated; /* registrations whose memory went away */
    uint64_t merged;      /* registrations that became part of a larger one */
    uint64_t copied;      /* pieces that were copied after all */
    char why[120];        /* who tells, or why it is off; one line */
} sluice_registration_info;
SLUICE_API int sluice_registration_get_info(sluice_node *n, sluice_registration_info *info);

/*
 * The answer to SLUICE_LARGE, during the event or later: the message goes to `offset` of my region,
 * and its SLUICE_MESSAGE has msg NULL, the token, and its size as value. r NULL: it goes to memory of
 * the node after all. Until the answer later messages of the session wait. The region's bytes belong to
 * the library until MESSAGE or CLOSED, and may be overwritten with zeros. EINVAL: no such token, out of
 * range, answered before, or the region is being closed. For sessions on the calling thread's loop only.
 */
SLUICE_API SLUICE_CHECK int sluice_receive_into(sluice_session s, uint64_t token, sluice_region *r,
                                                uint64_t offset);

#ifdef __cplusplus
}
#endif
#endif
