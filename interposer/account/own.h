/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_ACCOUNT_OWN_H
#define VGPU_ACCOUNT_OWN_H

#include "process/process.h"

struct vgpu_account {
	/* held_bytes and may_take_bytes are the same as in the slot, out of reach of whoever writes into the
	 * ledger, its lock included. Any thread changes them and tallies, under lock, and reads them without;
	 * within that no other lock is taken but the ledger's. */
	uint32_t lock;
	uint64_t held_bytes[VGPU_MAX_DEVICES];
	uint64_t may_take_bytes[VGPU_MAX_DEVICES];

	/* Any thread reads and writes these, the last one under lock. */
	uint64_t swept_ns;
	uint64_t child_faults; /* page faults of children that were waited for, at the last look */
	uint64_t in_vain_ns; /* when others' contexts were last waited for without any good */
	uint64_t robbed_ns; /* when the ledger's lock had to be taken although it seemed to be passed on */
};
_Static_assert(sizeof(struct vgpu_account) <= VGPU_CONTEXT_AT - VGPU_ACCOUNT_AT, "it has room");

static inline struct vgpu_account *vgpu_account(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_ACCOUNT_AT);
}

#endif
