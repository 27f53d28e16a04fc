/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The account of something that the driver is asked about, a pool for one (pools/pools.h): what it is charged
 * is never less than what it holds. Before a call that may make it grow the most that it can take is
 * reserved; what it has really grown by is committed, and the rest released.
 *
 * Why it never holds more than is charged and reserved for it, whatever threads do at once:
 *  - What a call has taken is in the answer that it gets at its end, and is charged before its reservation
 *    goes. That answer may have more, which others have taken that are still in the driver: charging it
 *    uses up what is reserved for all of them together, so nothing is counted twice.
 *  - With the end of a call no more stays reserved than calls in the driver may take. If less is, because
 *    of that, the rest of theirs is charged already.
 *  - The charge is only lowered to what the driver answers and all that calls may take which were in it
 *    since it was asked: one of them may have found its growth covered by the charge that is lowered now. */
#ifndef VGPU_ACCOUNT_RESERVE_H
#define VGPU_ACCOUNT_RESERVE_H

#include "process/process.h"

#include <stdbool.h>

/* What something is charged that the driver is asked about. Changes under the account's lock (account/own.h);
 * charged_bytes is read without it as well. */
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
/* They have been charged, which becomes a reservation. False when somebody else has reserved meanwhile what
 * would then not fit: they are given back. */
bool vgpu_account_reserve_charged(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
				  struct vgpu_flight *flight, uint64_t bytes);
/* The driver is known to have them already: until the call's end, nobody lowers the charge below what it may
 * take again. And it is not after all. */
void vgpu_account_reserve_again(struct vgpu_process *p, struct vgpu_tally *tally, struct vgpu_flight *flight,
				uint64_t bytes);
void vgpu_account_release_again(struct vgpu_process *p, struct vgpu_tally *tally,
				const struct vgpu_flight *flight);

/* The call is over: what of its reservation was taken is charged, the rest released. answered: the driver has
 * said what is held now; otherwise it is taken to be all that it can. */
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

/* What is charged and reserved for it. */
uint64_t vgpu_account_tallied(struct vgpu_process *p, const struct vgpu_tally *tally);
/* So much has been charged for it. */
void vgpu_account_tally(struct vgpu_process *p, struct vgpu_tally *tally, uint64_t bytes);
/* It begins with nothing. charges: what calls may take is charged at once instead of reserved. */
void vgpu_account_tally_begins(struct vgpu_process *p, struct vgpu_tally *tally, bool charges);
/* It is no more. Returns what it was charged, which is to be given back. */
uint64_t vgpu_account_tally_ends(struct vgpu_process *p, struct vgpu_tally *tally);

#endif
