/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/share.h"

/* The ledger is the job's own to write. What lies further ahead than this is garbage: the longest
 * debt that is believed is that of half a minute of GPU time at one percent. */
#define BELIEVED_NS 3600000000000ull

static uint64_t wall_of(uint64_t busy_ns, uint32_t percent)
{
	return busy_ns > BELIEVED_NS ? BELIEVED_NS * 100 / percent : busy_ns * 100 / percent;
}

/* Where the word stands, with credit that is too old left out. */
static uint64_t standing(const struct vgpu_share *share, uint64_t free_at_ns, uint64_t now_ns)
{
	uint64_t burst = wall_of(share->burst_ns, share->percent);
	uint64_t earliest = now_ns > burst ? now_ns - burst : 0;

	if (free_at_ns > now_ns + BELIEVED_NS)
		return now_ns;
	return free_at_ns < earliest ? earliest : free_at_ns;
}

/* A longer debt would be taken for garbage, soonest by whoever has looked at the clock a little earlier. */
#define OWED_NS (BELIEVED_NS / 2)

static uint64_t after(uint64_t is_ns, uint64_t busy_ns, uint32_t percent, uint64_t now_ns)
{
	uint64_t to = is_ns + wall_of(busy_ns, percent);

	return to > now_ns + OWED_NS ? now_ns + OWED_NS : to;
}

uint64_t vgpu_share_take(const struct vgpu_share *share, uint64_t now_ns, uint64_t need_ns, uint64_t want_ns,
			 uint64_t *from_ns)
{
	uint64_t old = __atomic_load_n(share->free_at_ns, __ATOMIC_RELAXED);
	uint64_t is, taken;

	do {
		is = standing(share, old, now_ns);
		if (is > now_ns) {
			*from_ns = is;
			return 0;
		}
		taken = (now_ns - is) * share->percent / 100;
		taken = taken > want_ns ? want_ns : taken;
		taken = taken < need_ns ? need_ns : taken;
	} while (!__atomic_compare_exchange_n(share->free_at_ns, &old,
					      after(is, taken, share->percent, now_ns), 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	return taken;
}

void vgpu_share_settle(const struct vgpu_share *share, uint64_t now_ns, int64_t more_ns)
{
	uint64_t old = __atomic_load_n(share->free_at_ns, __ATOMIC_RELAXED);
	uint64_t is, to;

	do {
		is = standing(share, old, now_ns);
		if (more_ns >= 0) {
			to = after(is, (uint64_t)more_ns, share->percent, now_ns);
		} else {
			uint64_t back = wall_of((uint64_t)-more_ns, share->percent);

			to = is > back ? is - back : 0;
		}
	} while (!__atomic_compare_exchange_n(share->free_at_ns, &old, to, 0, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
}

uint64_t vgpu_share_age(const struct vgpu_share *share, uint64_t now_ns)
{
	uint64_t is = standing(share, __atomic_load_n(share->free_at_ns, __ATOMIC_RELAXED), now_ns);

	return is < now_ns ? now_ns - is : 0;
}

int64_t vgpu_share_credit(const struct vgpu_share *share, uint64_t now_ns)
{
	uint64_t is = standing(share, __atomic_load_n(share->free_at_ns, __ATOMIC_RELAXED), now_ns);

	return is <= now_ns ? (int64_t)((now_ns - is) * share->percent / 100)
			    : -(int64_t)((is - now_ns) / 100 * share->percent);
}
