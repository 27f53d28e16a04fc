/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The account of something that the driver is asked about, a pool for one (pools/pools.h): what it is charged
 * is never less than what it holds. Before a call that may make it grow the most that it can take is
 * reserved; what it has really grown by is committed, and the rest released.
 *
 * Why the pool never holds more than is charged and reserved for it, whatever calls A and B do at once:
 *  - When A ends, the driver's answer includes the bytes that A took. A charges them before its
 *    reservation goes. The answer may also include bytes that B took while B is still in the driver. A
 *    charges them out of the common reservation, so B does not charge them again.
 *  - After A's end no more is reserved than the calls in the driver may take. If less is reserved, because
 *    A has charged for B, the rest of B's is charged already.
 *  - A question lowers the charge only to the driver's answer and the most that calls may take which were
 *    in the driver since the question: such a call may have found its growth covered by the charge before. */
#ifndef VGPU_ACCOUNT_RESERVE_H
#define VGPU_ACCOUNT_RESERVE_H

#include "process/process.h"

#include <stdbool.h>

/* The charge of such a pool. It changes under the account's lock (account/own.h); charged_bytes is read
 * without it as well. */
struct vgpu_tally {
	uint64_t charged_bytes;
	uint64_t flying_bytes;	 /* that calls which are in the driver now may take */
	uint64_t reserved_bytes; /* of these: in may_take_bytes, not charged */
	uint64_t begun_bytes;	 /* that all calls ever begun might take */
	bool charges;		 /* what calls may take is charged at once instead of reserved */
	bool ended;
};

/* A call that is in the driver, or a moment at which the driver is asked. */
struct vgpu_flight {
	uint64_t bytes;	       /* that the call may take */
	uint64_t others_bytes; /* the same of those that were in the driver then */
	uint64_t begun_bytes;
};

/* Reserves the bytes for a call. False when they do not fit. */
bool vgpu_account_reserve(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
			  struct vgpu_flight *flight, uint64_t bytes);
/* Makes a reservation of bytes that are charged already. False when another call has reserved meanwhile, so
 * that they would not fit: they are given back. */
bool vgpu_account_reserve_charged(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
				  struct vgpu_flight *flight, uint64_t bytes);
/* For a call that may take again bytes that the driver has kept, and that are charged: until the call ends,
 * the charge is not lowered below them. The second function takes that back, as the call is not made after
 * all. */
void vgpu_account_reserve_again(struct vgpu_process *p, struct vgpu_tally *tally, struct vgpu_flight *flight,
				uint64_t bytes);
void vgpu_account_release_again(struct vgpu_process *p, struct vgpu_tally *tally,
				const struct vgpu_flight *flight);

/* Ends a call: charges the part of its reservation that was taken, and releases the rest. answered:
 * held_bytes is the driver's answer; without one the call is taken to hold all that it reserved. */
struct vgpu_committed {
	bool grown;  /* something was charged */
	bool more;   /* it holds more than was foreseen */
	bool unsure; /* it may hold less by now */
};
struct vgpu_committed vgpu_account_commit(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
					  const struct vgpu_flight *flight, bool answered,
					  uint64_t held_bytes);

/* Lowers the charge to what the driver answers to a question; called before it and after. */
void vgpu_account_before_asking(struct vgpu_process *p, const struct vgpu_tally *tally,
				struct vgpu_flight *now);
void vgpu_account_lower(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
			const struct vgpu_flight *before, uint64_t held_bytes);

/* The bytes that are charged and reserved for the pool. */
uint64_t vgpu_account_tallied(struct vgpu_process *p, const struct vgpu_tally *tally);
/* So much has been charged for it. */
void vgpu_account_tally(struct vgpu_process *p, struct vgpu_tally *tally, uint64_t bytes);
/* It begins with nothing. charges: what calls may take is charged at once instead of reserved. */
void vgpu_account_tally_begins(struct vgpu_process *p, struct vgpu_tally *tally, bool charges);
/* It is no more. Returns what it was charged, which is to be given back. */
uint64_t vgpu_account_tally_ends(struct vgpu_process *p, struct vgpu_tally *tally);

#endif
