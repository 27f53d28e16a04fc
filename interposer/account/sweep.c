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

#include "base/sys.h"
#include "tuning.h"

#include <sys/resource.h>

static bool is_gone(const struct vgpu_process *p, uint32_t i)
{
	struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[i];

	if (GET(slot->state) != 1 || i == GET(p->slot) || p->pidns == 0)
		return false;
	if (GET(slot->pidns) != p->pidns)
		return vgpu_alive_ask(i) == VGPU_ALIVE_OVER;
	if (GET(slot->pid) == p->pid
		    ? vgpu_account_is_ours(p, slot)
		    : vgpu_identity_alive(GET(slot->pid), GET(slot->start_ticks), GET(slot->image)))
		return false;
	return vgpu_alive_ask(i) != VGPU_ALIVE_HELD;
}

/* Whether a child was waited for since this was asked last: what it held is free, and the program may know.
 * The kernel adds up what such children did, and none runs without a page fault. */
static bool child_has_ended(struct vgpu_process *p)
{
	struct rusage used;
	uint64_t faults;

	if (syscall(SYS_getrusage, RUSAGE_CHILDREN, &used) != 0)
		return false;
	faults = (uint64_t)used.ru_minflt + (uint64_t)used.ru_majflt;
	return __atomic_exchange_n(&vgpu_account(p)->child_faults, faults, __ATOMIC_RELAXED) != faults;
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

	if (!thorough && !child_has_ended(p) &&
	    (now - swept < VGPU_SWEEP_EVERY_NS ||
	     !__atomic_compare_exchange_n(&vgpu_account(p)->swept_ns, &swept, now, 0, __ATOMIC_RELAXED,
					  __ATOMIC_RELAXED)))
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

/* The program in this pid before an exec has left children behind: the slot is theirs now. */
static void leave_to_children(struct vgpu_process *p)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;

	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		if (vgpu_account_is_ours(p, &ledger->slot[i]) && vgpu_alive_ask(i) == VGPU_ALIVE_HELD)
			SET(ledger->slot[i].pid, 0);
	}
}

bool vgpu_account_open(struct vgpu_process *p)
{
	bool ok;

	leave_to_children(p);
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
