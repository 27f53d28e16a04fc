/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include "account_inside.h"
#include "atomics.h"
#include "context_cost.h"
#include "exports.h"
#include "futex.h"
#include "ledger_lock.h"
#include "pools.h"

/* A lock lost this often in one go means that somebody plays with the ledger. */
#define LOST_LOCKS 3

static uint64_t step_limit(uint32_t device)
{
	return GET(vgpu_pages.limits->device[device].step_mem_bytes);
}

static uint64_t job_limit(uint32_t device)
{
	return GET(vgpu_pages.limits->device[device].job_mem_bytes);
}

/* ---- under both locks ---- */

static bool fits(const struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;

	return bytes <= vgpu_account_left(job_limit(device), GET(ledger->used_bytes[device])) &&
	       bytes <= vgpu_account_left(step_limit(device), GET(ledger->step[p->step].used_bytes[device]));
}

/* Whatever is written into the ledger, its lock included, one process alone never passes a limit. */
static bool hold(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	uint64_t held = GET(p->held_bytes[device]);

	if (bytes > vgpu_account_left(job_limit(device), held) || bytes > vgpu_account_left(step_limit(device), held))
		return false;
	SET(p->held_bytes[device], held + bytes);
	return true;
}

static void raise_to(uint64_t *peak, uint64_t value)
{
	if (GET(*peak) < value)
		SET(*peak, value);
}

void vgpu_account_peaks(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	struct vgpu_ledger_step *step = &ledger->step[p->step];

	if ((GET(ledger->measuring) >> device & 1) != 0)
		return;
	raise_to(&ledger->peak_bytes[device], GET(ledger->used_bytes[device]));
	raise_to(&step->peak_bytes[device], GET(step->used_bytes[device]));
}

/* Writes down what the process now holds. The slot first: it is the truth, and what is killed behind
 * this line is summed up from it. */
static void book(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	struct vgpu_ledger_step *step = &ledger->step[p->step];

	SET(ledger->slot[p->slot].used_bytes[device], GET(p->held_bytes[device]));
	SET(ledger->used_bytes[device], vgpu_account_add(GET(ledger->used_bytes[device]), bytes));
	SET(step->used_bytes[device], vgpu_account_add(GET(step->used_bytes[device]), bytes));
	vgpu_account_peaks(p, device);
}

bool vgpu_account_take(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool taken = fits(p, device, bytes) && hold(p, device, bytes);

	if (taken)
		book(p, device, bytes);
	return taken;
}

/* Takes up to so many bytes off what the process holds; how many there were. */
static uint64_t let_go(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	uint64_t held = GET(p->held_bytes[device]);

	if (bytes > held)
		bytes = held;
	SET(p->held_bytes[device], held - bytes);
	return bytes;
}

static void unbook(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	struct vgpu_ledger_step *step = &ledger->step[p->step];

	bytes = let_go(p, device, bytes);
	SET(ledger->slot[p->slot].used_bytes[device], GET(p->held_bytes[device]));
	if (GET(ledger->used_bytes[device]) < bytes || GET(step->used_bytes[device]) < bytes) {
		vgpu_account_recount();
		return;
	}
	SET(ledger->used_bytes[device], GET(ledger->used_bytes[device]) - bytes);
	SET(step->used_bytes[device], GET(step->used_bytes[device]) - bytes);
}

/* ---- under the process's own lock, taking the ledger's ---- */

static void lock(struct vgpu_process *p)
{
	if (vgpu_ledger_lock(p))
		vgpu_account_recount();
}

static VGPU_SELDOM bool lock_lost(struct vgpu_process *p)
{
	for (int i = 0; i < LOST_LOCKS; i++) {
		vgpu_ledger_lock(p);
		vgpu_account_recount();
		if (vgpu_ledger_unlock(p))
			break;
	}
	return false;
}

static bool unlock(struct vgpu_process *p)
{
	return vgpu_ledger_unlock(p) || lock_lost(p);
}

/* Whether a charge that was booked when the lock was lost can stand; what cannot is given back. */
static VGPU_SELDOM bool stands(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool ok;

	lock(p);
	ok = GET(vgpu_pages.ledger->used_bytes[device]) <= job_limit(device) &&
	     GET(vgpu_pages.ledger->step[p->step].used_bytes[device]) <= step_limit(device);
	if (!ok)
		unbook(p, device, bytes);
	unlock(p);
	return ok;
}

static VGPU_SELDOM void refuse(struct vgpu_process *p, uint32_t device)
{
	uint64_t *of_step = &vgpu_pages.ledger->step[p->step].refusals[device];
	uint64_t *of_job = &vgpu_pages.ledger->refusals[device];

	SET(*of_job, vgpu_account_add(GET(*of_job), 1));
	SET(*of_step, vgpu_account_add(GET(*of_step), 1));
}

static bool attempt(struct vgpu_process *p, uint32_t device, uint64_t bytes, bool last)
{
	bool ok;
	bool kept;

	lock(p);
	ok = vgpu_account_heal(p, device);
	if (ok && last)
		vgpu_account_recount();
	ok = ok && vgpu_account_take(p, device, bytes);
	if (!ok && last)
		refuse(p, device);
	kept = unlock(p);
	return ok && (kept || stands(p, device, bytes));
}

bool vgpu_account_try_inside(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return attempt(p, device, bytes, false);
}

void vgpu_account_give_back_inside(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	lock(p);
	if (vgpu_account_heal(p, device))
		unbook(p, device, bytes);
	else
		let_go(p, device, bytes);
	unlock(p);
}

/* ---- taking both ---- */

void vgpu_account_lock(struct vgpu_process *p)
{
	vgpu_brief_lock(&p->account_lock);
	lock(p);
}

bool vgpu_account_unlock(struct vgpu_process *p)
{
	bool kept = unlock(p);

	vgpu_brief_unlock(&p->account_lock);
	return kept;
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
	return ok;
}

bool vgpu_account_stands(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool ok;

	vgpu_brief_lock(&p->account_lock);
	ok = stands(p, device, bytes);
	vgpu_brief_unlock(&p->account_lock);
	return ok;
}

static bool attempt_briefly(struct vgpu_process *p, uint32_t device, uint64_t bytes, bool last)
{
	bool ok;

	vgpu_brief_lock(&p->account_lock);
	ok = attempt(p, device, bytes, last);
	vgpu_brief_unlock(&p->account_lock);
	return ok;
}

bool vgpu_account_try(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return attempt_briefly(p, device, bytes, false);
}

bool vgpu_account_charge(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (vgpu_account_try(p, device, bytes))
		return true;
	vgpu_account_sweep(p, true);
	vgpu_exports_look(p, 0);
	vgpu_pools_reclaim(p, (int)device);
	/* What others have charged for a context of unknown cost comes back in part in a moment. */
	if (vgpu_context_cost_others(p, device) && bytes <= step_limit(device) && vgpu_context_cost_wait(p, device, bytes))
		return true;
	return attempt_briefly(p, device, bytes, true);
}

void vgpu_account_force(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool healed;

	vgpu_account_lock(p);
	healed = vgpu_account_heal(p, device);
	SET(p->held_bytes[device], GET(p->held_bytes[device]) + bytes);
	if (healed)
		book(p, device, bytes);
	vgpu_account_unlock(p);
}

void vgpu_account_give_back(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	vgpu_brief_lock(&p->account_lock);
	vgpu_account_give_back_inside(p, device, bytes);
	vgpu_brief_unlock(&p->account_lock);
}
