/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the account do with the ledger's slots and sums. */
#ifndef VGPU_ACCOUNT_INSIDE_H
#define VGPU_ACCOUNT_INSIDE_H

#include "process.h"

/* With account_lock held, for who notes something else under it: as in account.h. */
bool vgpu_account_try_inside(struct vgpu_process *p, uint32_t device, uint64_t bytes);
void vgpu_account_give_back_inside(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* Takes account_lock and the ledger's lock. Below stands all needs both, and what it finds is right only
 * until the ledger's is given back. */
void vgpu_account_lock(struct vgpu_process *p);
/* After a lost lock others have counted while this process wrote. True when the lock was kept. */
bool vgpu_account_unlock(struct vgpu_process *p);
/* Whether a charge that was booked when the lock was lost can stand; what cannot is given back. */
bool vgpu_account_stands(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* Takes a slot, which the process may have already. False when there is none. */
bool vgpu_account_claim_slot(struct vgpu_process *p);
bool vgpu_account_is_ours(const struct vgpu_process *p, struct vgpu_ledger_slot *slot);
void vgpu_account_clear_slot(struct vgpu_ledger_slot *slot);

/* Writes into the ledger again what this process holds, as the job's user may have changed it. False
 * when the process has no place there any more. */
bool vgpu_account_heal(struct vgpu_process *p, uint32_t device);
/* Charges what fits, by the ledger and by what this process itself knows to hold. After heal. */
bool vgpu_account_take(struct vgpu_process *p, uint32_t device, uint64_t bytes);
/* Raises the peaks to what is used now, unless a part of that is charged for a context whose cost is
 * not known yet. */
void vgpu_account_peaks(struct vgpu_process *p, uint32_t device);
/* Makes all sums again from the slots. */
void vgpu_account_recount(void);

static inline uint64_t vgpu_account_add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
