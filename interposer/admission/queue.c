/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "admission/queue.h"

#include "admission/credit.h"
#include "admission/load.h"
#include "base/atomics.h"
#include "time/share.h"

/* So long the others let the first one take the credit. What nobody takes meanwhile is kept
 * (VGPU_SHARE_BURST_NS), so that the share loses nothing by it. */
#define FIRST_NS 2000000u
/* Whoever is not back by then is not waited for: it may have been stopped or killed. */
#define BACK_NS (2 * FIRST_NS)
/* Going from one process to another keeps the GPU busy for some 0.2 ms (H200, driver 580) that no process
 * is charged for. So whoever is first goes on until it has had so much, or less where many wait: all of them
 * shall have had some within ROUNDS_NS. */
#define ROUND_NS 8000000u
#define ROUND_LEAST_NS 2000000u
#define ROUNDS_NS 500000000u
/* Who has not waited for so long begins anew. */
#define AWAY_NS 100000000u

/* Others that wait for this device's credit; and whether one of them was there before. */
static uint32_t others(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t now_ns,
		       bool *before)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t high = GET(ledger->slots_high), count = 0;

	*before = false;
	for (uint32_t i = 0; high > 1 && i < high && i < VGPU_MAX_PROCS; i++) {
		const struct vgpu_ledger_slot *other = &ledger->slot[i];
		uint64_t until = GET(other->waits_until_ns);

		if (i == GET(p->slot) || GET(other->state) != 1 || GET(other->waits_device) != device ||
		    until <= now_ns)
			continue;
		count++;
		/* Who looks much later is held back by something else, such as the share of its step. */
		*before = *before || (GET(other->waits_since_ns) < since_ns && until <= now_ns + 2 * BACK_NS);
	}
	return count;
}

/* How long a round is where so many others wait. */
static int64_t round_ns(uint32_t device, uint32_t count)
{
	const struct vgpu_limits_device *limit = &vgpu_pages.limits->device[device];
	uint32_t of_step = GET(limit->sm_percent), of_job = GET(limit->job_sm_percent);
	uint32_t percent = vgpu_share_is_capped(of_step)  ? of_step
			   : vgpu_share_is_capped(of_job) ? of_job
							  : 100;
	uint64_t ns = ROUNDS_NS / 100 * percent / (count + 1);

	return ns < ROUND_LEAST_NS ? ROUND_LEAST_NS : ns > ROUND_NS ? ROUND_NS : (int64_t)ns;
}

uint64_t vgpu_queue_wait(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t from_ns,
			 uint64_t now_ns)
{
	struct vgpu_ledger_slot *own = &vgpu_pages.ledger->slot[GET(p->slot)];
	struct vgpu_load *load = vgpu_load(p, device);
	bool anew = GET(load->round_left_ns) <= 0 || now_ns - GET(load->round_seen_ns) > AWAY_NS, before;
	uint64_t since = anew ? since_ns : GET(load->round_since_ns);
	uint32_t count = others(p, device, since, now_ns, &before);

	if (anew) {
		SET(load->round_since_ns, since);
		SET(load->round_left_ns, count != 0 ? round_ns(device, count) : 0);
	}
	SET(load->round_seen_ns, now_ns);
	SET(own->waits_device, device);
	SET(own->waits_since_ns, since);
	SET(own->waits_until_ns, from_ns + BACK_NS);
	return before ? from_ns + FIRST_NS : from_ns;
}

bool vgpu_queue_gives_way(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	const struct vgpu_ledger_slot *own = &vgpu_pages.ledger->slot[GET(p->slot)];
	struct vgpu_load *load = vgpu_load(p, device);
	uint64_t since = now_ns, age;
	bool before;

	if (GET(vgpu_pages.ledger->slots_high) <= 1)
		return false;
	age = vgpu_time_credit_age(p, device, now_ns);
	if (age == 0 || age >= FIRST_NS)
		return false;
	if (GET(own->waits_until_ns) != 0)
		since = GET(own->waits_since_ns);
	else if (GET(load->round_left_ns) > 0)
		since = GET(load->round_since_ns);
	others(p, device, since, now_ns, &before);
	return before;
}

void vgpu_queue_leave(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t taken_ns)
{
	if (taken_ns != 0 && GET(vgpu_load(p, device)->round_left_ns) > 0)
		ADD(vgpu_load(p, device)->round_left_ns, -(int64_t)taken_ns);
	if (since_ns != 0)
		SET(vgpu_pages.ledger->slot[GET(p->slot)].waits_until_ns, 0);
}
