/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The process's slot and the sums over all slots. All of it under both locks. */
#include "account/locked.h"

#include "base/arithmetic.h"
#include "base/atomics.h"
#include "base/futex.h"

typedef uint64_t __attribute__((may_alias)) any_word;

/* Others read without the lock, so not memset. */
static void zero(void *from, size_t bytes)
{
	any_word *words = from;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		SET(words[i], 0);
}

/* A sum is written once, since others read it without the lock. */
static void recount_device(uint32_t device, const uint16_t *live, uint32_t count)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint64_t of_step[VGPU_MAX_STEPS] = {0};
	uint64_t of_job = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t step = GET(ledger->slot[live[i]].step);
		uint64_t used = GET(ledger->slot[live[i]].used_bytes[device]);

		if (step >= VGPU_MAX_STEPS)
			continue;
		of_job = vgpu_plus(of_job, used);
		of_step[step] = vgpu_plus(of_step[step], used);
	}
	SET(ledger->used_bytes[device], of_job);
	for (uint32_t s = 0; s < VGPU_MAX_STEPS; s++) {
		if (GET(ledger->step[s].in_use))
			SET(ledger->step[s].used_bytes[device], of_step[s]);
	}
}

VGPU_SELDOM void vgpu_account_recount(void)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t devices = GET(vgpu_pages.limits->device_count);
	uint32_t high = GET(ledger->slots_high), measuring = 0, count = 0;
	uint16_t live[VGPU_MAX_PROCS];

	/* All of them, whatever slots_high says: it may be garbage too. */
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		if (GET(ledger->slot[i].state) == 1) {
			measuring |= GET(ledger->slot[i].measuring);
			live[count++] = (uint16_t)i;
		} else if (i < high) {
			zero(ledger->slot[i].may_take_bytes, sizeof(ledger->slot[i].may_take_bytes));
		}
	}
	if (count != 0 && high <= live[count - 1])
		SET(ledger->slots_high, live[count - 1] + 1u);
	for (uint32_t d = 0; d < devices && d < VGPU_MAX_DEVICES; d++)
		recount_device(d, live, count);
	SET(ledger->measuring, measuring);
}

void vgpu_account_clear_slot(struct vgpu_ledger_slot *slot)
{
	zero(slot->used_bytes, sizeof(slot->used_bytes));
	zero(slot->may_take_bytes, sizeof(slot->may_take_bytes));
	SET(slot->measuring, 0);
	SET(slot->state, 0);
}

static bool step_has_processes(uint32_t step)
{
	for (uint32_t i = 0; i < VGPU_MAX_PROCS; i++) {
		if (GET(vgpu_pages.ledger->slot[i].state) == 1 &&
		    GET(vgpu_pages.ledger->slot[i].step) == step)
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
		zero(&ledger->step[unused], sizeof(ledger->step[unused]));
		SET(ledger->step[unused].step_id, step_id);
		SET(ledger->step[unused].in_use, 1);
	}
	return unused;
}

VGPU_SELDOM bool vgpu_account_claim_slot(struct vgpu_process *p)
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
	SET(ledger->slot[mine].has_lock, 0);
	SET(ledger->slot[mine].step, step);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
		SET(ledger->slot[mine].used_bytes[d], GET(vgpu_account(p)->held_bytes[d]));
		SET(ledger->slot[mine].may_take_bytes[d], GET(vgpu_account(p)->may_take_bytes[d]));
	}
	__atomic_store_n(&ledger->slot[mine].state, 1, __ATOMIC_RELEASE);
	if (GET(ledger->slots_high) < mine + 1 || GET(ledger->slots_high) > VGPU_MAX_PROCS)
		SET(ledger->slots_high, mine + 1);
	vgpu_account_recount();
	return true;
}

VGPU_SELDOM bool vgpu_account_cure(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[p->slot];

	if (!vgpu_account_has_place(p))
		return vgpu_account_claim_slot(p);
	SET(slot->used_bytes[device], GET(vgpu_account(p)->held_bytes[device]));
	SET(slot->may_take_bytes[device], GET(vgpu_account(p)->may_take_bytes[device]));
	vgpu_account_recount();
	return true;
}
