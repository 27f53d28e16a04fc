/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "admission/admission.h"

#include "admission/credit.h"
#include "admission/cosched.h"
#include "admission/load.h"
#include "admission/queue.h"
#include "admission/turns.h"
#include "base/atomics.h"
#include "base/futex.h"

/* Taken from the share at once: launches come cheaper, and what a killed process takes along is little. */
#define TAKE_NS 1000000u
/* What is waited for where there is nobody else to take it: each time costs the poller a look. */
#define WORTH_NS 2000000u
/* Whoever is first takes the credit soon. */
#define GIVES_WAY_NS 100000u

/* Takes credit; false when there is none, and *wait_ns is how long there will be none. */
static bool take(struct vgpu_process *p, uint32_t device, uint64_t need_ns, uint64_t *wait_ns)
{
	struct vgpu_load *load = vgpu_load(p, device);
	uint64_t now, from = 0, got;

	if (!vgpu_time_is_capped(device) || vgpu_turns_spare(p, device))
		return true;
	if (vgpu_cosched_holds(p, device)) {
		*wait_ns = VGPU_COSCHED_LOOK_NS;
		return false;
	}
	if (ADD(load->credit_ns, -(int64_t)need_ns) >= (int64_t)need_ns)
		return true;
	ADD(load->credit_ns, (int64_t)need_ns);
	now = vgpu_now_ns();
	if (vgpu_queue_gives_way(p, device, now)) {
		*wait_ns = GIVES_WAY_NS;
		return false;
	}
	got = vgpu_time_take(p, device, now, need_ns, TAKE_NS, &from);
	if (got == 0) {
		*wait_ns = from > now ? from - now : 1;
		if (need_ns < WORTH_NS && !GET(load->turns.shared) && GET(vgpu_pages.ledger->slots_high) <= 1)
			*wait_ns += vgpu_time_to_earn(p, device, WORTH_NS - need_ns);
		return false;
	}
	/* Somebody else may take it away; then the next round takes more. */
	ADD(load->credit_ns, (int64_t)got - (int64_t)need_ns);
	return true;
}

/* The turn, then the credit. */
static enum vgpu_admission turn_and_credit(struct vgpu_process *p, uint32_t device, uint64_t need_ns,
					   uint64_t *wait_ns)
{
	struct vgpu_load *load = vgpu_load(p, device);
	uint64_t ahead;

	*wait_ns = VGPU_WAIT_AT_MOST_NS;
	/* Alone on the GPU there is no need to look at the clock. */
	if (GET(load->turns.shared) || GET(load->turns.may_until_ns) != UINT64_MAX) {
		uint64_t now = vgpu_now_ns();

		if (!vgpu_turns_may_launch(load, now, need_ns))
			return VGPU_NOT_ITS_TURN;
		ahead = vgpu_turns_ahead(load, now);
		if (ahead != 0) {
			*wait_ns = ahead;
			return VGPU_NOT_ITS_TURN;
		}
	}
	return take(p, device, need_ns, wait_ns) ? VGPU_ADMITTED : VGPU_NO_CREDIT;
}

static bool stalls(const struct vgpu_load *load)
{
	return GET(load->stalled_ns) != 0 || GET(load->unknown) != 0;
}

/* Whether what stalls holds the work back. */
static bool stalled(const struct vgpu_load *load, uint64_t at_most_ns, struct vgpu_waiting *waiting,
		    uint64_t *wait_ns)
{
	uint64_t now;

	if (!stalls(load)) {
		waiting->stalled_ns = 0;
		return false;
	}
	now = vgpu_now_ns();
	if (waiting->stalled_ns == 0)
		waiting->stalled_ns = now;
	*wait_ns = at_most_ns - (now - waiting->stalled_ns);
	return now - waiting->stalled_ns < at_most_ns;
}

/* Whether the work goes without credit, since what stalls might never end otherwise. */
static bool overdue(struct vgpu_process *p, uint32_t device, uint64_t need_ns, uint64_t at_most_ns,
		    uint64_t since_ns)
{
	uint64_t now;

	if (since_ns == 0 || !stalls(vgpu_load(p, device)))
		return false;
	now = vgpu_now_ns();
	if (now - since_ns < at_most_ns)
		return false;
	vgpu_time_settle(p, device, now, (int64_t)need_ns);
	return true;
}

static void leave(struct vgpu_process *p, uint32_t device, struct vgpu_waiting *waiting, uint64_t taken_ns)
{
	vgpu_queue_leave(p, device, waiting->credit_ns, taken_ns);
	*waiting = (struct vgpu_waiting){0};
}

enum vgpu_admission vgpu_admission_try(struct vgpu_process *p, uint32_t device, uint64_t need_ns,
				       uint64_t stalled_at_most_ns, struct vgpu_waiting *waiting,
				       uint64_t *wait_ns)
{
	enum vgpu_admission admission;

	if (stalled(vgpu_load(p, device), stalled_at_most_ns, waiting, wait_ns))
		return VGPU_STALLED;
	admission = turn_and_credit(p, device, need_ns, wait_ns);
	if (admission == VGPU_NO_CREDIT &&
	    overdue(p, device, need_ns, stalled_at_most_ns, waiting->stalled_ns))
		admission = VGPU_ADMITTED;
	if (admission == VGPU_ADMITTED)
		leave(p, device, waiting, need_ns);
	return admission;
}

uint64_t vgpu_admission_queue(struct vgpu_process *p, uint32_t device, struct vgpu_waiting *waiting,
			      uint64_t wait_ns, uint64_t now_ns)
{
	if (waiting->credit_ns == 0)
		waiting->credit_ns = now_ns;
	return vgpu_queue_wait(p, device, waiting->credit_ns, now_ns + wait_ns, now_ns);
}

void vgpu_admission_leave(struct vgpu_process *p, uint32_t device, struct vgpu_waiting *waiting)
{
	leave(p, device, waiting, 0);
}
