/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include "atomics.h"

/* So long the others let the first one take the credit. What nobody takes meanwhile is kept
 * (VGPU_SHARE_BURST_NS), so that the share loses nothing by it. */
#define FIRST_NS 2000000u
/* Whoever is not back by then is not waited for: it may have been stopped or killed. */
#define BACK_NS (2 * FIRST_NS)

/* Whether somebody who has waited longer wants this credit. Who looks much later is held back by something
 * else, such as the share of its step. */
static bool is_another_first(uint32_t device, uint64_t since_ns, uint64_t from_ns, uint64_t now_ns)
{
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint32_t high = GET(ledger->slots_high);

	for (uint32_t i = 0; i < high && i < VGPU_MAX_PROCS; i++) {
		const struct vgpu_ledger_slot *other = &ledger->slot[i];
		uint64_t until = GET(other->waits_until_ns);

		if (GET(other->state) == 1 && GET(other->waits_device) == device && GET(other->waits_since_ns) < since_ns &&
		    until > now_ns && until <= from_ns + 2 * BACK_NS)
			return true;
	}
	return false;
}

uint64_t vgpu_queue_wait(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t from_ns, uint64_t now_ns)
{
	struct vgpu_ledger_slot *own = &vgpu_pages.ledger->slot[GET(p->slot)];
	bool later = is_another_first(device, since_ns, from_ns, now_ns);

	SET(own->waits_device, device);
	SET(own->waits_since_ns, since_ns);
	SET(own->waits_until_ns, from_ns + BACK_NS);
	return later ? from_ns + FIRST_NS : from_ns;
}

void vgpu_queue_leave(struct vgpu_process *p, uint64_t since_ns)
{
	if (since_ns != 0)
		SET(vgpu_pages.ledger->slot[GET(p->slot)].waits_until_ns, 0);
}
