/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/bucket.h"
#include "tuning.h"

static bool is_garbage(uint64_t free_at_ns, uint64_t now_ns)
{
	return free_at_ns > now_ns + VGPU_BUCKET_OWED_NS + VGPU_BUCKET_EARLIER_NS;
}

/* Credit is earned until the work begins, and what it earns itself while it runs is not lost. */
static uint64_t after(uint64_t free_at_ns, uint32_t percent, uint64_t begun_ns, uint64_t now_ns,
		      uint64_t busy_ns)
{
	uint64_t earliest = begun_ns > VGPU_BUCKET_CREDIT_NS ? begun_ns - VGPU_BUCKET_CREDIT_NS : 0;
	uint64_t latest = now_ns + VGPU_BUCKET_OWED_NS;
	uint64_t from = is_garbage(free_at_ns, now_ns) || free_at_ns < earliest ? earliest : free_at_ns;
	uint64_t wall_ns = busy_ns > latest ? latest : busy_ns * 100 / percent;

	return from > latest || wall_ns > latest - from ? latest : from + wall_ns;
}

void vgpu_bucket_charge(uint64_t *word, uint32_t percent, uint64_t begun_ns, uint64_t now_ns,
			uint64_t busy_ns)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	if (begun_ns > now_ns)
		begun_ns = now_ns;
	while (!__atomic_compare_exchange_n(word, &old, after(old, percent, begun_ns, now_ns, busy_ns), 0,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

uint64_t vgpu_bucket_at_most(uint64_t *counted_ns, uint64_t earliest_ns, uint64_t now_ns, uint64_t busy_ns)
{
	uint64_t from = *counted_ns > earliest_ns && *counted_ns <= now_ns ? *counted_ns : earliest_ns;
	uint64_t at_most = now_ns > from ? now_ns - from : 0;

	busy_ns = busy_ns < at_most ? busy_ns : at_most;
	*counted_ns = from + busy_ns;
	return busy_ns;
}

uint64_t vgpu_bucket_wait(const uint64_t *word, uint64_t now_ns)
{
	uint64_t free_at_ns = __atomic_load_n(word, __ATOMIC_RELAXED);

	return free_at_ns <= now_ns || is_garbage(free_at_ns, now_ns) ? 0 : free_at_ns - now_ns;
}

uint32_t vgpu_bucket_launches(uint64_t launch_ns)
{
	uint64_t launches = launch_ns == 0 ? 1 : VGPU_BUCKET_GROUP_NS / launch_ns;

	if (launches > VGPU_BUCKET_GROUP_LAUNCHES)
		return VGPU_BUCKET_GROUP_LAUNCHES;
	return launches == 0 ? 1 : (uint32_t)launches;
}
