/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is shown of the account. */
#include "account/account.h"

#include "base/atomics.h"

struct vgpu_view vgpu_account_view(struct vgpu_process *p, uint32_t device)
{
	if (vgpu_account_sum(p, device, vgpu_pages.ledger->used_bytes) != vgpu_account_held(p, device))
		vgpu_account_sweep(p, false);
	return vgpu_account_view_of_sums(p, device);
}

struct vgpu_view vgpu_account_view_of_sums(struct vgpu_process *p, uint32_t device)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	const struct vgpu_limits_device *limits = &vgpu_pages.limits->device[device];
	uint32_t step = GET(p->step); /* below VGPU_MAX_STEPS in an attached process */
	struct vgpu_view view;
	uint64_t job_left;

	view.total_bytes = GET(limits->step_mem_bytes);
	view.free_bytes = vgpu_account_left(view.total_bytes,
					    vgpu_account_sum(p, device, ledger->step[step].used_bytes));
	job_left = vgpu_account_left(GET(limits->job_mem_bytes),
				     vgpu_account_sum(p, device, ledger->used_bytes));
	if (view.free_bytes > job_left)
		view.free_bytes = job_left;
	return view;
}

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
