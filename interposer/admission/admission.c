/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "admission/admission.h"

#include "admission/credit.h"
#include "admission/pace.h"
#include "admission/queue.h"
#include "admission/turns.h"
#include "base/atomics.h"
#include "base/futex.h"

/* Taken from the share at once: launches come cheaper, and what a killed process takes along is little. */
#define TAKE_NS 1000000u
/* What is waited for where there is nobody else to take it: each time costs the keeper a look. */
#define WORTH_NS 2000000u
/* Whoever is first takes the credit soon. */
#define GIVES_WAY_NS 100000u

/* Takes credit; false when there is none, and *wait_ns is how long there will be none. */
static bool take(struct vgpu_process *p, uint32_t device, uint64_t need_ns, uint64_t *wait_ns)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint64_t now, from = 0, got;

	if (!vgpu_time_is_capped(device) || vgpu_turns_spare(p, device))
		return true;
	if (vgpu_pace_holds(p, device)) {
		*wait_ns = VGPU_PACE_LOOK_NS;
		return false;
	}
	if (ADD(engine->credit_ns, -(int64_t)need_ns) >= (int64_t)need_ns)
		return true;
	ADD(engine->credit_ns, (int64_t)need_ns);
	now = vgpu_now_ns();
	if (vgpu_queue_gives_way(p, device, now)) {
		*wait_ns = GIVES_WAY_NS;
		return false;
	}
	got = vgpu_time_take(p, device, now, need_ns, TAKE_NS, &from);
	if (got == 0) {
		*wait_ns = from > now ? from - now : 1;
		if (need_ns < WORTH_NS && !GET(engine->seat.shared) && GET(vgpu_pages.ledger->slots_high) <= 1)
			*wait_ns += vgpu_time_to_earn(p, device, WORTH_NS - need_ns);
		return false;
	}
	/* Somebody else may take it away; then the next round takes more. */
	ADD(engine->credit_ns, (int64_t)got - (int64_t)need_ns);
	return true;
}

enum vgpu_admission vgpu_admission_take(struct vgpu_process *p, uint32_t device, uint64_t need_ns, uint64_t *wait_ns)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint64_t ahead;

	*wait_ns = VGPU_WAIT_AT_MOST_NS;
	/* Alone on the GPU there is no need to look at the clock. */
	if (GET(engine->seat.shared) || GET(engine->seat.may_until_ns) != UINT64_MAX) {
		uint64_t now = vgpu_now_ns();

		if (!vgpu_turns_may_launch(engine, now, need_ns))
			return VGPU_NOT_ITS_TURN;
		ahead = vgpu_turns_ahead(engine, now);
		if (ahead != 0) {
			*wait_ns = ahead;
			return VGPU_NOT_ITS_TURN;
		}
	}
	return take(p, device, need_ns, wait_ns) ? VGPU_ADMITTED : VGPU_NO_CREDIT;
}

bool vgpu_admission_stalled(struct vgpu_engine *engine, uint64_t *since_ns, uint64_t at_most_ns, uint64_t *wait_ns)
{
	uint64_t now;

	if (GET(engine->stalled_ns) == 0 && GET(engine->unknown) == 0) {
		*since_ns = 0;
		return false;
	}
	now = vgpu_now_ns();
	if (*since_ns == 0)
		*since_ns = now;
	*wait_ns = at_most_ns - (now - *since_ns);
	return now - *since_ns < at_most_ns;
}

bool vgpu_admission_overdue(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t at_most_ns, uint64_t need_ns)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint64_t now;

	if (since_ns == 0 || (GET(engine->stalled_ns) == 0 && GET(engine->unknown) == 0))
		return false;
	now = vgpu_now_ns();
	if (now - since_ns < at_most_ns)
		return false;
	vgpu_time_settle(p, device, now, (int64_t)need_ns);
	return true;
}
