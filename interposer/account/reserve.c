/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/reserve.h"

#include "account/locked.h"
#include "base/atomics.h"
#include "base/futex.h"

/* ---- with the account's lock held ---- */

static void begin(struct vgpu_tally *tally, struct vgpu_flight *flight, uint64_t bytes)
{
	flight->bytes = bytes;
	flight->others_bytes = tally->flying_bytes;
	tally->flying_bytes += bytes;
	tally->begun_bytes += bytes;
	flight->begun_bytes = tally->begun_bytes;
}

static void raise(struct vgpu_tally *tally, uint64_t bytes)
{
	SET(tally->charged_bytes, tally->charged_bytes + bytes);
}

static bool reserve_tallied(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally, uint64_t bytes)
{
	if (tally->charges) {
		if (!vgpu_account_try_locked(p, device, bytes))
			return false;
		raise(tally, bytes);
		return true;
	}
	if (!vgpu_account_reserve_locked(p, device, bytes))
		return false;
	tally->reserved_bytes += bytes;
	return true;
}

/* Charges what has been taken of what was reserved. This may be what the calls of other threads have made it
 * grow by, so it is all of it and not only this call's. */
static VGPU_SELDOM void commit(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
			       uint64_t bytes)
{
	if (bytes > tally->reserved_bytes)
		bytes = tally->reserved_bytes;
	vgpu_account_commit_locked(p, device, bytes);
	tally->reserved_bytes -= bytes;
	raise(tally, bytes);
}

/* After a call was taken out of flying_bytes: what is reserved beyond that is not taken any more. */
static void release(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally)
{
	if (tally->reserved_bytes <= tally->flying_bytes)
		return;
	vgpu_account_release_locked(p, device, tally->reserved_bytes - tally->flying_bytes);
	tally->reserved_bytes = tally->flying_bytes;
}

/* No call can have made it larger than bound. */
static void lower(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally, uint64_t bound)
{
	if (bound >= tally->charged_bytes)
		return;
	vgpu_account_give_back_locked(p, device, tally->charged_bytes - bound);
	SET(tally->charged_bytes, bound);
}

/* ---- taking it ---- */

bool vgpu_account_reserve(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
			  struct vgpu_flight *flight, uint64_t bytes)
{
	bool reserved;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	reserved = reserve_tallied(p, device, tally, bytes);
	if (reserved)
		begin(tally, flight, bytes);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return reserved;
}

bool vgpu_account_reserve_charged(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
				  struct vgpu_flight *flight, uint64_t bytes)
{
	bool reserved;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	reserved = tally->charges || vgpu_account_reserve_charged_locked(p, device, bytes);
	if (reserved && !tally->charges)
		tally->reserved_bytes += bytes;
	else if (reserved)
		raise(tally, bytes);
	if (reserved)
		begin(tally, flight, bytes);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return reserved;
}

void vgpu_account_reserve_again(struct vgpu_process *p, struct vgpu_tally *tally, struct vgpu_flight *flight,
				uint64_t bytes)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	begin(tally, flight, bytes);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}

void vgpu_account_release_again(struct vgpu_process *p, struct vgpu_tally *tally,
				const struct vgpu_flight *flight)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	tally->flying_bytes -= flight->bytes;
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}

struct vgpu_committed vgpu_account_commit(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
					  const struct vgpu_flight *flight, bool answered,
					  uint64_t held_bytes)
{
	struct vgpu_committed done;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	if (!answered)
		held_bytes = tally->charged_bytes + (tally->ended ? 0 : flight->bytes);
	done.grown = held_bytes > tally->charged_bytes && tally->reserved_bytes != 0;
	if (done.grown)
		commit(p, device, tally, held_bytes - tally->charged_bytes);
	tally->flying_bytes -= flight->bytes;
	release(p, device, tally);
	done.more = answered && held_bytes > tally->charged_bytes + tally->reserved_bytes;
	done.unsure = held_bytes < tally->charged_bytes &&
		      (flight->others_bytes != 0 || tally->begun_bytes != flight->begun_bytes);
	if (held_bytes < tally->charged_bytes)
		lower(p, device, tally,
		      held_bytes + flight->others_bytes + (tally->begun_bytes - flight->begun_bytes));
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return done;
}

void vgpu_account_before_asking(struct vgpu_process *p, const struct vgpu_tally *tally,
				struct vgpu_flight *now)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	now->others_bytes = tally->flying_bytes;
	now->begun_bytes = tally->begun_bytes;
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}

void vgpu_account_lower(struct vgpu_process *p, uint32_t device, struct vgpu_tally *tally,
			const struct vgpu_flight *before, uint64_t held_bytes)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	lower(p, device, tally,
	      held_bytes + before->others_bytes + (tally->begun_bytes - before->begun_bytes));
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}

uint64_t vgpu_account_tallied(struct vgpu_process *p, const struct vgpu_tally *tally)
{
	uint64_t bytes;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	bytes = tally->charged_bytes + tally->reserved_bytes;
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return bytes;
}

void vgpu_account_tally(struct vgpu_process *p, struct vgpu_tally *tally, uint64_t bytes)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	raise(tally, bytes);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}

void vgpu_account_tally_begins(struct vgpu_process *p, struct vgpu_tally *tally, bool charges)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	tally->charges = charges;
	tally->ended = false;
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}

uint64_t vgpu_account_tally_ends(struct vgpu_process *p, struct vgpu_tally *tally)
{
	uint64_t bytes;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	bytes = tally->charged_bytes;
	SET(tally->charged_bytes, 0);
	tally->ended = true;
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return bytes;
}
