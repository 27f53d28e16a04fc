/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Clears the slots of processes that have ended, and takes one for this process. */
#include "account/account.h"

#include "account/alive.h"
#include "account/locked.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "base/identity.h"

#define SWEEP_EVERY_NS 100000000u

static bool is_gone(const struct vgpu_process *p, uint32_t i)
{
	struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[i];

	if (GET(slot->state) != 1 || i == GET(p->slot) || p->pidns == 0)
		return false;
	if (GET(slot->pidns) != p->pidns)
		return vgpu_alive_is_over(i);
	return GET(slot->pid) == p->pid
		       ? !vgpu_account_is_ours(p, slot)
		       : !vgpu_identity_alive(GET(slot->pid), GET(slot->start_ticks), GET(slot->image));
}

void vgpu_account_sweep(struct vgpu_process *p, bool thorough)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	struct {
		int32_t pid;
		uint64_t start_ticks;
		bool gone;
	} was[VGPU_MAX_PROCS];
	uint64_t now = vgpu_now_ns();
	uint64_t swept = GET(vgpu_account(p)->swept_ns);
	uint32_t high = thorough ? VGPU_MAX_PROCS : GET(ledger->slots_high);
	bool any = false;

	if (!thorough && (now - swept < SWEEP_EVERY_NS ||
			  !__atomic_compare_exchange_n(&vgpu_account(p)->swept_ns, &swept, now, 0,
						       __ATOMIC_RELAXED, __ATOMIC_RELAXED)))
		return;
	if (high > VGPU_MAX_PROCS)
		high = VGPU_MAX_PROCS;
	/* Asking the kernel takes far longer than the lock may be held. */
	for (uint32_t i = 0; i < high; i++) {
		was[i].pid = GET(ledger->slot[i].pid);
		was[i].start_ticks = GET(ledger->slot[i].start_ticks);
		was[i].gone = is_gone(p, i);
		any = any || was[i].gone;
	}
	if (!any)
		return;
	vgpu_account_lock(p);
	for (uint32_t i = 0; i < high; i++) {
		if (was[i].gone && GET(ledger->slot[i].state) == 1 &&
		    GET(ledger->slot[i].pid) == was[i].pid &&
		    GET(ledger->slot[i].start_ticks) == was[i].start_ticks)
			vgpu_account_clear_slot(&ledger->slot[i]);
	}
	vgpu_account_recount();
	vgpu_account_unlock(p);
}

bool vgpu_account_open(struct vgpu_process *p)
{
	bool ok;

	vgpu_account_lock(p);
	ok = vgpu_account_claim_slot(p);
	vgpu_account_unlock(p);
	if (!ok) {
		vgpu_account_sweep(p, true);
		vgpu_account_lock(p);
		ok = vgpu_account_claim_slot(p);
		vgpu_account_unlock(p);
	}
	if (ok)
		vgpu_alive_begin(p);
	return ok;
}
