/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The functions that run under the account's locks, for the files of the account alone. */
#ifndef VGPU_ACCOUNT_LOCKED_H
#define VGPU_ACCOUNT_LOCKED_H

#include "base/atomics.h"
#include "account/own.h"

/* With the account's lock (account/own.h) held: as in account.h. */
bool vgpu_account_try_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes);
void vgpu_account_give_back_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* The same for a call that takes an unknown part of the bytes, most often nothing: they are reserved in the
 * slot's may_take_bytes instead of charged, so that the ledger's lock is needed only where it comes out
 * that something was taken. A process that reserves looks at the sums and the lock afterwards; one that
 * charges takes the lock and then looks at the reservations. So one of the two sees the other, and counts it.
 * A process that reserves and finds the lock taken cannot see the charge that is being made, and does the
 * same with the lock. */
bool vgpu_account_reserve_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes);
/* Gives back what was charged and reserves it. False when another process has reserved meanwhile, so that it
 * would not fit. */
bool vgpu_account_reserve_charged_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes);
/* Charges what was reserved and has been taken; it cannot be refused. */
void vgpu_account_commit_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* As vgpu_account_try, for the last time: counts everything anew before, and a refusal. Whether the bytes
 * would fit without any reservation; and whether they do in an empty step. */
bool vgpu_account_try_last(struct vgpu_process *p, uint32_t device, uint64_t bytes);
bool vgpu_account_would_fit(const struct vgpu_process *p, uint32_t device, uint64_t bytes);
bool vgpu_account_ever_fits(uint32_t device, uint64_t bytes);

/* Takes the account's lock and the ledger's. */
void vgpu_account_lock(struct vgpu_process *p);
/* After a lost lock others have counted while this process wrote. True when the lock was kept. */
bool vgpu_account_unlock(struct vgpu_process *p);
/* Takes both: whether a charge that was booked when the ledger's was lost can stand; what cannot is given
 * back. */
bool vgpu_account_stands(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* With both locks held, down to the recount: what these find is right only until the ledger's is given back.
 * Takes a slot, which the process may have already. False when there is none. */
bool vgpu_account_claim_slot(struct vgpu_process *p);
void vgpu_account_clear_slot(struct vgpu_ledger_slot *slot);
/* Writes into the ledger again what this process holds. False when it has no place there any more. */
bool vgpu_account_cure(struct vgpu_process *p, uint32_t device);
/* Charges what fits, by the ledger and by this process's own count. After heal. */
bool vgpu_account_take(struct vgpu_process *p, uint32_t device, uint64_t bytes);
/* Raises the peaks to what is used now, unless a part of that is charged for a context whose cost is
 * not known yet. */
void vgpu_account_peaks(struct vgpu_process *p, uint32_t device);
/* Makes all sums again from the slots. */
void vgpu_account_recount(void);

static inline bool vgpu_account_is_ours(const struct vgpu_process *p, const struct vgpu_ledger_slot *slot)
{
	return GET(slot->state) == 1 && GET(slot->pid) == p->pid &&
	       GET(slot->start_ticks) == p->start_ticks && GET(slot->pidns) == p->pidns;
}

/* With the account's lock held: nothing more will be taken of so much that was reserved. */
static inline void vgpu_account_release_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[p->slot];
	uint64_t left = GET(vgpu_account(p)->may_take_bytes[device]) - bytes;

	__atomic_store_n(&vgpu_account(p)->may_take_bytes[device], left, __ATOMIC_RELEASE);
	if (vgpu_account_is_ours(p, slot))
		__atomic_store_n(&slot->may_take_bytes[device], left, __ATOMIC_RELEASE);
}

static inline bool vgpu_account_has_place(const struct vgpu_process *p)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	const struct vgpu_ledger_slot *slot = &ledger->slot[p->slot];

	return vgpu_account_is_ours(p, slot) && GET(slot->step) == p->step &&
	       GET(ledger->step[p->step].in_use) == 1 &&
	       GET(ledger->step[p->step].step_id) == vgpu_pages.limits->step_id;
}

/* The ledger belongs to the job's user, so what this process wrote there may have changed. */
static inline bool vgpu_account_is_well(const struct vgpu_process *p, uint32_t device)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	const struct vgpu_ledger_slot *slot = &ledger->slot[p->slot];
	uint64_t held = GET(vgpu_account(p)->held_bytes[device]);

	return vgpu_account_has_place(p) && GET(slot->used_bytes[device]) == held &&
	       GET(slot->may_take_bytes[device]) == GET(vgpu_account(p)->may_take_bytes[device]) &&
	       GET(ledger->slots_high) > p->slot && GET(ledger->used_bytes[device]) >= held &&
	       GET(ledger->step[p->step].used_bytes[device]) >= held;
}

/* With both locks held. False when the process has no place there any more. */
static inline bool vgpu_account_heal(struct vgpu_process *p, uint32_t device)
{
	return vgpu_account_is_well(p, device) || vgpu_account_cure(p, device);
}

#endif
