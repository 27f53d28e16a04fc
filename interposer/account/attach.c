/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/attach.h"

#include "account/account.h"
#include "base/futex.h"
#include "base/identity.h"
#include "channels/channels.h"
#include "process/step.h"

#include <unistd.h>

static uint32_t find_stage(struct vgpu_process *p)
{
	struct vgpu_identity self;

	p->pid = (int32_t)getpid();
	p->pidns = vgpu_identity_pidns();
	if (vgpu_identity_read(0, &self)) {
		p->start_ticks = self.start_ticks;
		p->image = self.image;
	}
	/* A forked child has its parent's pages. */
	if (vgpu_pages.ledger == NULL) {
		int folder_fd;

		if (vgpu_pages.limits == NULL) {
			vgpu_pages.limits = vgpu_step_limits(&folder_fd, &p->refused_why);
			if (vgpu_pages.limits == NULL)
				return VGPU_REFUSED;
			vgpu_pages.ledger = vgpu_step_ledger(folder_fd, vgpu_pages.limits, &p->refused_why);
			close(folder_fd);
		} else {
			p->refused_why = "the ledger cannot be used";
		}
		if (vgpu_pages.ledger == NULL)
			return vgpu_pages.limits->flags & VGPU_FAIL_OPEN ? VGPU_UNLIMITED : VGPU_REFUSED;
	}
	if (vgpu_account_open(p)) {
		vgpu_channels_begin(p);
		return VGPU_ATTACHED;
	}
	p->refused_why = "too many processes of this job use a GPU";
	return VGPU_REFUSED;
}

struct vgpu_process *vgpu_attach_slowly(void)
{
	struct vgpu_process *p = vgpu_process_memory();
	uint32_t stage;

	if (p == NULL)
		return NULL;
	stage = __atomic_load_n(&p->stage, __ATOMIC_ACQUIRE);
	while (stage <= VGPU_BUSY) {
		if (stage == VGPU_NEW && __atomic_compare_exchange_n(&p->stage, &stage, VGPU_BUSY, 0,
								     __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
			stage = find_stage(p);
			__atomic_store_n(&p->stage, stage, __ATOMIC_RELEASE);
			vgpu_futex_wake(&p->stage, INT32_MAX, FUTEX_PRIVATE_FLAG);
			return p;
		}
		if (stage == VGPU_BUSY)
			vgpu_futex_wait(&p->stage, VGPU_BUSY, FUTEX_PRIVATE_FLAG, -1);
		stage = __atomic_load_n(&p->stage, __ATOMIC_ACQUIRE);
	}
	return p;
}
