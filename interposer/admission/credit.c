/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "admission/credit.h"

#include "admission/load.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "time/history.h"
#include "time/buckets.h"
#include "time/share.h"

/* The shares to keep, the step's first. Where the step's is the job's, the job's is enough. */
static uint32_t shares(struct vgpu_process *p, uint32_t device, struct vgpu_share share[2])
{
	const struct vgpu_limits_device *limit = &vgpu_pages.limits->device[device];
	uint32_t of_step = GET(limit->sm_percent), of_job = GET(limit->job_sm_percent), count = 0;
	uint64_t burst_ns = GET(vgpu_load(p, device)->burst_ns);

	if (burst_ns < VGPU_SHARE_BURST_NS)
		burst_ns = VGPU_SHARE_BURST_NS;
	if (vgpu_share_is_capped(of_step) && of_step != of_job)
		share[count++] = (struct vgpu_share){
			&vgpu_pages.ledger->step[GET(p->step)].share_free_at_ns[device], of_step, burst_ns};
	if (vgpu_share_is_capped(of_job))
		share[count++] =
			(struct vgpu_share){&vgpu_pages.ledger->share_free_at_ns[device], of_job, burst_ns};
	return count;
}

bool vgpu_time_is_capped(uint32_t device)
{
	const struct vgpu_limits_device *limit = &vgpu_pages.limits->device[device];

	return vgpu_share_is_capped(GET(limit->sm_percent)) ||
	       vgpu_share_is_capped(GET(limit->job_sm_percent));
}

uint64_t vgpu_time_take(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint64_t need_ns,
			uint64_t want_ns, uint64_t *from_ns)
{
	struct vgpu_share share[2];
	uint32_t count = shares(p, device, share);
	uint64_t got = want_ns > need_ns ? want_ns : need_ns;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t here = vgpu_share_take(&share[i], now_ns, need_ns, got, from_ns);

		/* What the step has more of than the job goes back to it. */
		if (i == 1 && here < got)
			vgpu_share_settle(&share[0], now_ns, (int64_t)here - (int64_t)got);
		if (here == 0)
			return 0;
		got = here;
	}
	return got;
}

void vgpu_time_settle(struct vgpu_process *p, uint32_t device, uint64_t now_ns, int64_t more_ns)
{
	struct vgpu_share share[2];
	uint32_t count = shares(p, device, share);

	for (uint32_t i = 0; i < count; i++)
		vgpu_share_settle(&share[i], now_ns, more_ns);
}

void vgpu_time_settle_step(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint64_t more_ns)
{
	struct vgpu_share share[2];

	if (shares(p, device, share) != 0 &&
	    share[0].free_at_ns != &vgpu_pages.ledger->share_free_at_ns[device])
		vgpu_share_settle(&share[0], now_ns, (int64_t)more_ns);
}

int64_t vgpu_time_credit(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	struct vgpu_share share[2];
	uint32_t count = shares(p, device, share);
	int64_t least = INT64_MAX;

	for (uint32_t i = 0; i < count; i++) {
		int64_t credit = vgpu_share_credit(&share[i], now_ns);

		least = credit < least ? credit : least;
	}
	return least;
}

uint64_t vgpu_time_to_earn(struct vgpu_process *p, uint32_t device, uint64_t busy_ns)
{
	struct vgpu_share share[2];
	uint32_t count = shares(p, device, share);
	uint64_t most = 0;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t ns = busy_ns * 100 / share[i].percent;

		most = ns > most ? ns : most;
	}
	return most;
}

uint64_t vgpu_time_credit_age(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	struct vgpu_share share[2];
	uint32_t count = shares(p, device, share);
	uint64_t least = UINT64_MAX;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t age = vgpu_share_age(&share[i], now_ns);

		least = age < least ? age : least;
	}
	return least;
}

/* before_ns: of all that was counted until then. */
static uint64_t used_between(struct vgpu_ledger *ledger, uint32_t device, uint64_t from_ns, uint64_t to_ns,
			     uint64_t ns, uint64_t before_ns)
{
	uint64_t now = vgpu_now_ns(), until = GET(ledger->busy_until_ns[device]);
	uint64_t used = vgpu_buckets_count(&ledger->buckets[device], from_ns, to_ns, ns, now);

	if (used == 0)
		return 0;
	vgpu_history_note(&ledger->history[device], from_ns, until < from_ns ? until : from_ns, before_ns);
	/* Of several processes the latest; not what is said of a time to come. */
	if (until < to_ns || until > now)
		SET(ledger->busy_until_ns[device], to_ns);
	return used;
}

uint64_t vgpu_time_used(struct vgpu_process *p, uint32_t device, const struct vgpu_busy *busy)
{
	struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint64_t before = GET(ledger->busy_ns[device]), used = 0;

	for (uint32_t i = 0; i < busy->fresh.count; i++)
		used += used_between(ledger, device, busy->fresh.interval[i].from_ns,
				     busy->fresh.interval[i].to_ns, UINT64_MAX, before + used);
	/* Processes are not at work at the same time: when another one was there, this one was before or
	 * after. */
	if (used < busy->fresh.ns && busy->until_ns != 0)
		used += used_between(ledger, device, busy->start_ns, busy->until_ns, busy->fresh.ns - used,
				     before + used);
	ADD(ledger->busy_ns[device], used);
	ADD(ledger->step[GET(p->step)].busy_ns[device], used);
	return used;
}

void vgpu_time_waited(struct vgpu_process *p, uint32_t device, uint64_t ns)
{
	ADD(vgpu_pages.ledger->waited_ns[device], ns);
	ADD(vgpu_pages.ledger->step[GET(p->step)].waited_ns[device], ns);
}
