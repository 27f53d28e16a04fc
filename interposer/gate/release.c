/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/release.h"

#include "admission/turns.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "gate/batch.h"
#include "gate/own.h"
#include "streams/sample.h"

/* A stamp in the ledger is believed for so long. */
#define STAMP_NS 3000000u

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns == 0 || (b_ns != 0 && b_ns < a_ns) ? b_ns : a_ns;
}

uint64_t vgpu_release_device(struct vgpu_process *p, uint32_t device, bool changed,
			     struct vgpu_elsewhere *elsewhere, uint64_t *batch_ns)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[GET(p->slot)];
	uint64_t now, next;

	vgpu_mutex_lock(&vgpu_gate(p)->poller_mutex, VGPU_RANK_POLLER);
	now = vgpu_now_ns();
	next = vgpu_samples_let_go(engine, now);
	SET(slot->inflight_until_ns[device], GET(engine->load.in_flight) != 0 ? now + STAMP_NS : 0);
	next = sooner(next, vgpu_turns_look(p, device, now, &elsewhere->bell, &elsewhere->rung));
	if (changed)
		vgpu_load_ring(&engine->load);
	*batch_ns = vgpu_batch_release(p, device);
	vgpu_mutex_unlock(&vgpu_gate(p)->poller_mutex);
	return sooner(next, *batch_ns);
}
