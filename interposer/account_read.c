/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What others are told of one process. */
#include "account.h"

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

bool vgpu_account_of_pid(struct vgpu_process *p, int32_t pid, uint32_t device, uint64_t *bytes)
{
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[i];

		if (GET(slot->state) == 1 && GET(slot->pid) == pid && GET(slot->pidns) == p->pidns) {
			*bytes = GET(slot->used_bytes[device]);
			return true;
		}
	}
	return false;
}
