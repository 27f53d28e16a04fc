/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/account.h"

#include "account/locked.h"
#include "account/lock.h"
#include "base/arithmetic.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "tuning.h"

static uint64_t step_limit(uint32_t device)
{
	return GET(vgpu_pages.limits->device[device].step_mem_bytes);
}

static uint64_t job_limit(uint32_t device)
{
	return GET(vgpu_pages.limits->device[device].job_mem_bytes);
}

struct total {
	uint64_t of_job, of_step;
};

/* The reservations of all processes. A process charges the part that was taken before it lowers its
 * reservation, so read the sums after this. */
static inline struct total reserved(uint32_t device, uint32_t step)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t high = GET(ledger->slots_high);
	struct total total = {0, 0};

	for (uint32_t i = 0; i < high && i < VGPU_MAX_PROCS; i++) {
		uint64_t bytes = __atomic_load_n(&ledger->slot[i].may_take_bytes[device], __ATOMIC_SEQ_CST);

		if (bytes == 0)
			continue;
		total.of_job = vgpu_plus(total.of_job, bytes);
		if (GET(ledger->slot[i].step) == step)
			total.of_step = vgpu_plus(total.of_step, bytes);
	}
	return total;
}

/* Whatever is written into the ledger, its lock included, one process alone never passes a limit. */
static inline bool fits(const struct vgpu_process *p, uint32_t device, uint64_t bytes, struct total besides)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t step = GET(p->step);
	uint64_t own = vgpu_plus(GET(vgpu_account(p)->held_bytes[device]),
					GET(vgpu_account(p)->may_take_bytes[device]));
	uint64_t of_job = vgpu_plus(GET(ledger->used_bytes[device]), besides.of_job);
	uint64_t of_step = vgpu_plus(GET(ledger->step[step].used_bytes[device]), besides.of_step);

	of_job = vgpu_plus(vgpu_larger(of_job, own), bytes);
	of_step = vgpu_plus(vgpu_larger(of_step, own), bytes);
	return of_job <= job_limit(device) && of_step <= step_limit(device);
}

static inline bool fits_besides_all(const struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return fits(p, device, bytes, reserved(device, GET(p->step)));
}

/* ---- under both locks ---- */

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

	SET(ledger->slot[p->slot].used_bytes[device], GET(vgpu_account(p)->held_bytes[device]));
	SET(ledger->used_bytes[device], vgpu_plus(GET(ledger->used_bytes[device]), bytes));
	SET(step->used_bytes[device], vgpu_plus(GET(step->used_bytes[device]), bytes));
	vgpu_account_peaks(p, device);
}

bool vgpu_account_take(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (!fits_besides_all(p, device, bytes))
		return false;
	SET(vgpu_account(p)->held_bytes[device], GET(vgpu_account(p)->held_bytes[device]) + bytes);
	book(p, device, bytes);
	return true;
}

/* Takes up to so many bytes off what the process holds; how many there were. */
static uint64_t let_go(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	uint64_t held = GET(vgpu_account(p)->held_bytes[device]);

	if (bytes > held)
		bytes = held;
	SET(vgpu_account(p)->held_bytes[device], held - bytes);
	return bytes;
}

static void unbook(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	struct vgpu_ledger_step *step = &ledger->step[p->step];

	bytes = let_go(p, device, bytes);
	SET(ledger->slot[p->slot].used_bytes[device], GET(vgpu_account(p)->held_bytes[device]));
	if (GET(ledger->used_bytes[device]) < bytes || GET(step->used_bytes[device]) < bytes) {
		vgpu_account_recount();
		return;
	}
	SET(ledger->used_bytes[device], GET(ledger->used_bytes[device]) - bytes);
	SET(step->used_bytes[device], GET(step->used_bytes[device]) - bytes);
}

/* ---- under the process's own lock, taking the ledger's ---- */

static void lock_ledger(struct vgpu_process *p)
{
	if (vgpu_ledger_lock(p))
		vgpu_account_recount();
}

static VGPU_SELDOM bool lock_lost(struct vgpu_process *p)
{
	for (int i = 0; i < VGPU_LEDGER_LOST_LOCKS; i++) {
		vgpu_ledger_lock(p);
		vgpu_account_recount();
		if (vgpu_ledger_unlock(p))
			break;
	}
	return false;
}

static bool unlock_ledger(struct vgpu_process *p)
{
	return vgpu_ledger_unlock(p) || lock_lost(p);
}

/* Whether a charge that was booked when the lock was lost can stand; what cannot is given back. */
static VGPU_SELDOM bool stands(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool ok;

	lock_ledger(p);
	ok = fits_besides_all(p, device, 0);
	if (!ok)
		unbook(p, device, bytes);
	unlock_ledger(p);
	return ok;
}

static VGPU_SELDOM void count_refusal(struct vgpu_process *p, uint32_t device)
{
	uint64_t *of_step = &vgpu_pages.ledger->step[p->step].refusals[device];
	uint64_t *of_job = &vgpu_pages.ledger->refusals[device];

	SET(*of_job, vgpu_plus(GET(*of_job), 1));
	SET(*of_step, vgpu_plus(GET(*of_step), 1));
}

static bool attempt(struct vgpu_process *p, uint32_t device, uint64_t bytes, bool last)
{
	bool ok;
	bool kept;

	lock_ledger(p);
	ok = vgpu_account_heal(p, device);
	if (ok && last)
		vgpu_account_recount();
	ok = ok && vgpu_account_take(p, device, bytes);
	if (!ok && last)
		count_refusal(p, device);
	kept = unlock_ledger(p);
	return ok && (kept || stands(p, device, bytes));
}

bool vgpu_account_try_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return attempt(p, device, bytes, false);
}

void vgpu_account_give_back_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	lock_ledger(p);
	if (vgpu_account_heal(p, device))
		unbook(p, device, bytes);
	else
		let_go(p, device, bytes);
	unlock_ledger(p);
}

/* Written in one order with the ledger's lock. */
static void write_reservation(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	SET(vgpu_account(p)->may_take_bytes[device], bytes);
	__atomic_exchange_n(&vgpu_pages.ledger->slot[p->slot].may_take_bytes[device], bytes,
			    __ATOMIC_SEQ_CST);
}

/* charged_bytes: what of them is charged already. */
static VGPU_SELDOM bool reserve_slowly(struct vgpu_process *p, uint32_t device, uint64_t bytes,
				       uint64_t charged_bytes)
{
	bool ok;

	lock_ledger(p);
	ok = vgpu_account_heal(p, device);
	if (ok)
		unbook(p, device, charged_bytes);
	else
		let_go(p, device, charged_bytes);
	ok = ok && fits_besides_all(p, device, bytes);
	if (ok)
		write_reservation(p, device, GET(vgpu_account(p)->may_take_bytes[device]) + bytes);
	if (unlock_ledger(p) || !ok)
		return ok;
	vgpu_account_release_locked(p, device, bytes);
	return false;
}

/* Of the ledger's health what the others count by; the sums are compared with the own part anyway. */
static inline bool can_reserve(const struct vgpu_process *p, uint32_t device)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	const struct vgpu_ledger_slot *slot = &ledger->slot[p->slot];

	return vgpu_account_is_ours(p, slot) && GET(slot->step) == p->step &&
	       GET(slot->used_bytes[device]) == GET(vgpu_account(p)->held_bytes[device]) &&
	       GET(ledger->slots_high) > p->slot;
}

bool vgpu_account_reserve_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	uint32_t *locked = &vgpu_pages.ledger->lock;

	/* A reservation that does not fit at all would only be in the way of others. */
	if (!can_reserve(p, device) ||
	    bytes > vgpu_account_left(step_limit(device), GET(vgpu_account(p)->may_take_bytes[device])))
		return reserve_slowly(p, device, bytes, 0);
	write_reservation(p, device, GET(vgpu_account(p)->may_take_bytes[device]) + bytes);
	if (__builtin_expect(__atomic_load_n(locked, __ATOMIC_SEQ_CST) == 0 && fits_besides_all(p, device, 0),
			     1))
		return true;
	vgpu_account_release_locked(p, device, bytes);
	return reserve_slowly(p, device, bytes, 0);
}

bool vgpu_account_reserve_charged_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return reserve_slowly(p, device, bytes, bytes);
}

VGPU_SELDOM void vgpu_account_commit_locked(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool healed;

	lock_ledger(p);
	healed = vgpu_account_heal(p, device);
	SET(vgpu_account(p)->held_bytes[device], GET(vgpu_account(p)->held_bytes[device]) + bytes);
	if (healed)
		book(p, device, bytes);
	vgpu_account_release_locked(p, device, bytes);
	unlock_ledger(p);
}

/* ---- taking both ---- */

void vgpu_account_lock(struct vgpu_process *p)
{
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	lock_ledger(p);
}

bool vgpu_account_unlock(struct vgpu_process *p)
{
	bool kept = unlock_ledger(p);

	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return kept;
}

bool vgpu_account_stands(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool ok;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	ok = stands(p, device, bytes);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return ok;
}

static bool attempt_briefly(struct vgpu_process *p, uint32_t device, uint64_t bytes, bool last)
{
	bool ok;

	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	ok = attempt(p, device, bytes, last);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
	return ok;
}

bool vgpu_account_try(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return attempt_briefly(p, device, bytes, false);
}

bool vgpu_account_try_last(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return attempt_briefly(p, device, bytes, true);
}

bool vgpu_account_would_fit(const struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	return fits(p, device, bytes, (struct total){0, 0});
}

bool vgpu_account_ever_fits(uint32_t device, uint64_t bytes)
{
	return bytes <= step_limit(device);
}

void vgpu_account_force(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	bool healed;

	vgpu_account_lock(p);
	healed = vgpu_account_heal(p, device);
	SET(vgpu_account(p)->held_bytes[device], GET(vgpu_account(p)->held_bytes[device]) + bytes);
	if (healed)
		book(p, device, bytes);
	vgpu_account_unlock(p);
}

void vgpu_account_give_back(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (bytes == 0)
		return;
	vgpu_brief_lock(&vgpu_account(p)->lock, VGPU_RANK_ACCOUNT);
	vgpu_account_give_back_locked(p, device, bytes);
	vgpu_brief_unlock(&vgpu_account(p)->lock);
}
