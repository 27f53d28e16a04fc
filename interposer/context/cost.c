/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "context/cost.h"

#include "account/account.h"
#include "account/inside.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "process/message.h"

/* A context takes some tenths of a second, also when eight are made at once. */
#define MEASURED_WITHIN_NS 10000000000u
#define SETTLED_WITHIN_NS 2000000000u
/* Who has waited for that in vain does not wait again so soon: what the ledger says may be garbage, or
 * left by a process that was killed where this one cannot see it. */
#define NOT_AGAIN_WITHIN_NS 60000000000u
#define PAUSE_NS 1000000

enum claim { CLAIM_KNOWN, CLAIM_CHARGED, CLAIM_WAIT, CLAIM_REFUSED };

static void pause_a_moment(void)
{
	nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
}

static bool known_cost(uint32_t device, uint64_t *bytes)
{
	uint64_t noted = GET(vgpu_pages.ledger->context_bytes[device]);

	*bytes = noted - 1;
	return noted != 0 && *bytes <= VGPU_CONTEXT_MOST_BYTES;
}

static bool anybody_measures(uint32_t device, uint32_t but_slot)
{
	uint32_t high = GET(vgpu_pages.ledger->slots_high);
	bool found = false;

	for (uint32_t i = 0; i < high && i < VGPU_MAX_PROCS && !found; i++) {
		const struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[i];

		found = i != but_slot && GET(slot->state) == 1 && (GET(slot->measuring) >> device & 1) != 0;
	}
	return found;
}

bool vgpu_context_cost_others(struct vgpu_process *p, uint32_t device)
{
	uint64_t in_vain_ns = GET(p->in_vain_ns);

	return (GET(vgpu_pages.ledger->measuring) >> device & 1) != 0 &&
	       (in_vain_ns == 0 || vgpu_now_ns() - in_vain_ns >= NOT_AGAIN_WITHIN_NS) &&
	       anybody_measures(device, GET(p->slot));
}

static uint64_t all_that_is_left(struct vgpu_process *p, uint32_t device)
{
	uint64_t bytes = vgpu_account_view_of_sums(p, device).free_bytes;

	return bytes < VGPU_CONTEXT_DEFAULT_BYTES ? bytes : VGPU_CONTEXT_DEFAULT_BYTES;
}

/* With the lock held. */
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
static enum claim take(struct vgpu_process *p, uint32_t device, uint64_t bytes)
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
	else if ((*bytes = all_that_is_left(p, device)) < VGPU_CONTEXT_DEFAULT_BYTES && anybody_measures(device, VGPU_MAX_PROCS))
		result = CLAIM_WAIT;
	else if (*bytes > 0)
		result = take(p, device, *bytes);
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
		if (result != CLAIM_WAIT || vgpu_now_ns() - since > MEASURED_WITHIN_NS)
			break;
		pause_a_moment();
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

bool vgpu_context_cost_wait(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	uint64_t since = vgpu_now_ns();
	bool charged = false;

	while (!charged && vgpu_context_cost_others(p, device)) {
		if (vgpu_now_ns() - since >= SETTLED_WITHIN_NS) {
			SET(p->in_vain_ns, vgpu_now_ns());
			break;
		}
		pause_a_moment();
		vgpu_account_sweep(p, false);
		charged = vgpu_account_try(p, device, bytes);
	}
	return charged;
}
