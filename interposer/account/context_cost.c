/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/context_cost.h"

#include "account/account.h"
#include "account/locked.h"
#include "account/reclaim.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "process/message.h"
#include "tuning.h"

enum claim { CLAIM_KNOWN, CLAIM_CHARGED, CLAIM_WAIT, CLAIM_REFUSED };

static bool known_cost(uint32_t device, uint64_t *bytes)
{
	uint64_t noted = GET(vgpu_pages.ledger->context_bytes[device]);

	*bytes = noted - 1;
	return noted != 0 && *bytes <= VGPU_CONTEXT_MOST_BYTES;
}

static uint64_t all_that_is_left(struct vgpu_process *p, uint32_t device)
{
	uint64_t bytes = vgpu_account_view_of_sums(p, device).free_bytes;

	return bytes < VGPU_CONTEXT_DEFAULT_BYTES ? bytes : VGPU_CONTEXT_DEFAULT_BYTES;
}

/* With both locks held (account/locked.h). */
static void measure(uint32_t slot, uint32_t device, bool begins)
{
	uint32_t *measuring = &vgpu_pages.ledger->slot[slot].measuring;

	if (begins) {
		SET(*measuring, GET(*measuring) | 1u << device);
		SET(vgpu_pages.ledger->measuring, GET(vgpu_pages.ledger->measuring) | 1u << device);
	} else if ((GET(*measuring) >> device & 1) != 0) {
		SET(*measuring, GET(*measuring) & ~(1u << device));
		vgpu_account_recount();
	}
}

/* Said before it is charged, so that nobody takes the charge for what is used. */
static enum claim charge_unknown(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	measure(p->slot, device, true);
	if (vgpu_account_take(p, device, bytes))
		return CLAIM_CHARGED;
	measure(p->slot, device, false);
	return CLAIM_WAIT;
}

static enum claim claim(struct vgpu_process *p, uint32_t device, uint64_t *bytes)
{
	enum claim result = CLAIM_REFUSED;
	bool kept;

	vgpu_account_lock(p);
	if (!vgpu_account_heal(p, device)) {
		vgpu_account_unlock(p);
		return CLAIM_REFUSED;
	}
	if (known_cost(device, bytes))
		result = CLAIM_KNOWN;
	else if ((*bytes = all_that_is_left(p, device)) < VGPU_CONTEXT_DEFAULT_BYTES &&
		 vgpu_reclaim_is_measured(device, VGPU_MAX_PROCS))
		result = CLAIM_WAIT;
	else if (*bytes > 0)
		result = charge_unknown(p, device, *bytes);
	kept = vgpu_account_unlock(p);
	if (result == CLAIM_CHARGED && !kept && !vgpu_account_stands(p, device, *bytes)) {
		vgpu_context_cost_settled(p, device, VGPU_COST_UNKNOWN);
		result = CLAIM_WAIT;
	}
	return result;
}

bool vgpu_context_cost_charge(struct vgpu_process *p, uint32_t device, uint64_t *charged_bytes)
{
	uint64_t since = vgpu_now_ns();
	enum claim result;

	for (;;) {
		result = claim(p, device, charged_bytes);
		if (result != CLAIM_WAIT || vgpu_now_ns() - since > VGPU_CONTEXT_MEASURED_NS)
			break;
		nanosleep(&(struct timespec){0, VGPU_MEASURE_PAUSE_NS}, NULL);
		vgpu_account_sweep(p, false);
	}
	if (result == CLAIM_CHARGED)
		return true;
	if (result != CLAIM_KNOWN)
		*charged_bytes = VGPU_CONTEXT_DEFAULT_BYTES;
	if (vgpu_account_charge(p, device, *charged_bytes))
		return true;
	vgpu_message_limit(p, device, *charged_bytes);
	*charged_bytes = 0;
	return false;
}

void vgpu_context_cost_settled(struct vgpu_process *p, uint32_t device, uint64_t cost_bytes)
{
	uint64_t known = 0;

	vgpu_account_lock(p);
	if (cost_bytes <= VGPU_CONTEXT_MOST_BYTES && (!known_cost(device, &known) || cost_bytes > known))
		SET(vgpu_pages.ledger->context_bytes[device], cost_bytes + 1);
	if (vgpu_account_heal(p, device)) {
		measure(p->slot, device, false);
		vgpu_account_peaks(p, device);
	}
	vgpu_account_unlock(p);
}
