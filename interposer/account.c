/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include "account_inside.h"
#include "atomics.h"
#include "context_cost.h"
#include "ledger_lock.h"
#include "pools.h"

/* A lock lost this often in one go means that somebody plays with the ledger. */
#define LOST_LOCKS 3

static uint64_t add(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t step_limit(uint32_t device)
{
	return GET(vgpu_pages.limits->device[device].step_mem_bytes);
}

static uint64_t job_limit(uint32_t device)
{
	return GET(vgpu_pages.limits->device[device].job_mem_bytes);
}

/* ---- under the lock ---- */

bool vgpu_account_is_ours(const struct vgpu_process *p, struct vgpu_ledger_slot *slot)
{
	return GET(slot->state) == 1 && GET(slot->pid) == p->pid && GET(slot->start_ticks) == p->start_ticks &&
	       GET(slot->pidns) == p->pidns;
}

/* Others read without the lock, so not memset. */
static void zero(uint64_t field[VGPU_MAX_DEVICES])
{
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++)
		SET(field[d], 0);
}

void vgpu_account_recount(void)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t measuring = 0;

	zero(ledger->used_bytes);
	for (uint32_t s = 0; s < VGPU_MAX_STEPS; s++) {
		if (GET(ledger->step[s].in_use))
			zero(ledger->step[s].used_bytes);
	}
	/* All of them, whatever slots_high says: it may be garbage too. */
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		struct vgpu_ledger_slot *slot = &ledger->slot[i];
		uint32_t step = GET(slot->step);

		if (GET(slot->state) != 1 || step >= VGPU_MAX_STEPS)
			continue;
		measuring |= GET(slot->measuring);
		for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
			uint64_t used = GET(slot->used_bytes[d]);

			if (used == 0)
				continue;
			SET(ledger->used_bytes[d], add(GET(ledger->used_bytes[d]), used));
			SET(ledger->step[step].used_bytes[d], add(GET(ledger->step[step].used_bytes[d]), used));
		}
	}
	SET(ledger->measuring, measuring);
}

void vgpu_account_clear_slot(struct vgpu_ledger_slot *slot)
{
	zero(slot->used_bytes);
	SET(slot->measuring, 0);
	SET(slot->state, 0);
}

static bool step_has_processes(uint32_t step)
{
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		if (GET(vgpu_pages.ledger->slot[i].state) == 1 && GET(vgpu_pages.ledger->slot[i].step) == step)
			return true;
	}
	return false;
}

/* VGPU_MAX_STEPS when there is none. */
static uint32_t find_step(uint32_t step_id)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t unused = VGPU_MAX_STEPS;

	for (uint32_t s = 0; s < VGPU_MAX_STEPS; s++) {
		if (GET(ledger->step[s].in_use) != 1)
			unused = unused == VGPU_MAX_STEPS ? s : unused;
		else if (GET(ledger->step[s].step_id) == step_id)
			return s;
	}
	/* A job of very many steps: the peaks of a finished one have been folded in at its end. */
	for (uint32_t s = 0; s < VGPU_MAX_STEPS && unused == VGPU_MAX_STEPS; s++) {
		if (!step_has_processes(s))
			unused = s;
	}
	if (unused < VGPU_MAX_STEPS) {
		zero(ledger->step[unused].used_bytes);
		zero(ledger->step[unused].peak_bytes);
		zero(ledger->step[unused].refusals);
		SET(ledger->step[unused].step_id, step_id);
		SET(ledger->step[unused].in_use, 1);
	}
	return unused;
}

static bool claim_slot(struct vgpu_process *p)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t mine = VGPU_MAX_PROCS;
	uint32_t step = find_step(vgpu_pages.limits->step_id);

	if (step == VGPU_MAX_STEPS)
		return false;
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		struct vgpu_ledger_slot *slot = &ledger->slot[i];

		/* Left by what ran in this pid before an exec: its GPU memory went with it. */
		if (vgpu_account_is_ours(p, slot)) {
			vgpu_account_clear_slot(slot);
			mine = i;
		} else if (GET(slot->state) != 1 && mine == VGPU_MAX_PROCS) {
			mine = i;
		}
	}
	if (mine == VGPU_MAX_PROCS)
		return false;
	SET(p->slot, mine);
	SET(p->step, step);
	SET(ledger->slot[mine].pid, p->pid);
	SET(ledger->slot[mine].start_ticks, p->start_ticks);
	SET(ledger->slot[mine].pidns, p->pidns);
	SET(ledger->slot[mine].image, p->image);
	SET(ledger->slot[mine].measuring, 0);
	SET(ledger->slot[mine].step, step);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++)
		SET(ledger->slot[mine].used_bytes[d], GET(p->held_bytes[d]));
	__atomic_store_n(&ledger->slot[mine].state, 1, __ATOMIC_RELEASE);
	if (GET(ledger->slots_high) < mine + 1 || GET(ledger->slots_high) > VGPU_MAX_PROCS)
		SET(ledger->slots_high, mine + 1);
	vgpu_account_recount();
	return true;
}

/* The ledger belongs to the job's user, so what this process wrote there may have changed. */
bool vgpu_account_heal(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	struct vgpu_ledger_slot *slot = &ledger->slot[p->slot];
	uint64_t held = GET(p->held_bytes[device]);

	if (!vgpu_account_is_ours(p, slot) || GET(slot->step) != p->step || GET(ledger->step[p->step].in_use) != 1 ||
	    GET(ledger->step[p->step].step_id) != vgpu_pages.limits->step_id)
		return claim_slot(p);
	if (GET(slot->used_bytes[device]) != held || GET(ledger->used_bytes[device]) < held ||
	    GET(ledger->step[p->step].used_bytes[device]) < held) {
		SET(slot->used_bytes[device], held);
		vgpu_account_recount();
	}
	return true;
}

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

	do {
		if (bytes > vgpu_account_left(job_limit(device), held) || bytes > vgpu_account_left(step_limit(device), held))
			return false;
	} while (!__atomic_compare_exchange_n(&p->held_bytes[device], &held, held + bytes, 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
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
	SET(ledger->used_bytes[device], add(GET(ledger->used_bytes[device]), bytes));
	SET(step->used_bytes[device], add(GET(step->used_bytes[device]), bytes));
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

	do {
		if (bytes > held)
			bytes = held;
	} while (!__atomic_compare_exchange_n(&p->held_bytes[device], &held, held - bytes, 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
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

/* ---- taking the lock ---- */

void vgpu_account_lock(struct vgpu_process *p)
{
	if (vgpu_ledger_lock(p))
		vgpu_account_recount();
}

bool vgpu_account_unlock(struct vgpu_process *p)
{
	if (vgpu_ledger_unlock(p))
		return true;
	for (int i = 0; i < LOST_LOCKS; i++) {
		vgpu_ledger_lock(p);
		vgpu_account_recount();
		if (vgpu_ledger_unlock(p))
			break;
	}
	return false;
}

bool vgpu_account_open(struct vgpu_process *p)
{
	bool ok;

	vgpu_account_lock(p);
	ok = claim_slot(p);
	vgpu_account_unlock(p);
	if (!ok) {
		vgpu_account_sweep(p, true);
		vgpu_account_lock(p);
		ok = claim_slot(p);
		vgpu_account_unlock(p);
	}
	return ok;
}

bool vgpu_account_stands(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool ok;

	vgpu_account_lock(p);
	ok = GET(vgpu_pages.ledger->used_bytes[device]) <= job_limit(device) &&
	     GET(vgpu_pages.ledger->step[p->step].used_bytes[device]) <= step_limit(device);
	if (!ok)
		unbook(p, device, bytes);
	vgpu_account_unlock(p);
	return ok;
}

static bool attempt(struct vgpu_process *p, uint32_t device, uint64_t bytes, bool last)
{
	bool ok;
	bool kept;

	vgpu_account_lock(p);
	ok = vgpu_account_heal(p, device);
	if (ok && last)
		vgpu_account_recount();
	ok = ok && vgpu_account_take(p, device, bytes);
	if (!ok && last) {
		SET(vgpu_pages.ledger->refusals[device], add(GET(vgpu_pages.ledger->refusals[device]), 1));
		SET(vgpu_pages.ledger->step[p->step].refusals[device],
		    add(GET(vgpu_pages.ledger->step[p->step].refusals[device]), 1));
	}
	kept = vgpu_account_unlock(p);
	return ok && (kept || vgpu_account_stands(p, device, bytes));
}

bool vgpu_account_try(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return attempt(p, device, bytes, false);
}

bool vgpu_account_charge(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (attempt(p, device, bytes, false))
		return true;
	vgpu_account_sweep(p, true);
	vgpu_pools_reclaim(p, (int)device);
	/* What others have charged for a context of unknown cost comes back in part in a moment. */
	if (vgpu_context_cost_others(p, device) && bytes <= step_limit(device) && vgpu_context_cost_wait(p, device, bytes))
		return true;
	return attempt(p, device, bytes, true);
}

void vgpu_account_force(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool healed;

	vgpu_account_lock(p);
	healed = vgpu_account_heal(p, device);
	__atomic_add_fetch(&p->held_bytes[device], bytes, __ATOMIC_RELAXED);
	if (healed)
		book(p, device, bytes);
	vgpu_account_unlock(p);
}

void vgpu_account_give_back(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	vgpu_account_lock(p);
	if (vgpu_account_heal(p, device))
		unbook(p, device, bytes);
	else
		let_go(p, device, bytes);
	vgpu_account_unlock(p);
}
