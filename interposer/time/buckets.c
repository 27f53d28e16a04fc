/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/buckets.h"

/* A word has the number of the bucket above and what was used of it, 0 to VGPU_BUCKET_NS, below. */
#define USED_BITS 17
#define USED_MASK ((1ull << USED_BITS) - 1)
/* Who loses the race for a word so often races with garbage. */
#define TRIES 16

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Counts so much of the bucket of this number. Returns how much of it there was room for. */
static uint64_t count_in_bucket(uint64_t *word, uint64_t number, uint64_t ns, uint64_t now_ns)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED), used, taken = 0;

	for (int i = 0; i < TRIES; i++) {
		uint64_t is = old >> USED_BITS;

		/* A later bucket has the place already. What is said of a time to come is garbage. */
		if (is > number && is <= now_ns / VGPU_BUCKET_NS)
			return ns;
		used = is == number ? least(old & USED_MASK, VGPU_BUCKET_NS) : 0;
		taken = least(ns, VGPU_BUCKET_NS - used);
		if (taken == 0 ||
		    __atomic_compare_exchange_n(word, &old, number << USED_BITS | (used + taken), 0,
						__ATOMIC_RELAXED, __ATOMIC_RELAXED))
			break;
	}
	return taken;
}

uint64_t vgpu_buckets_count(struct vgpu_buckets *buckets, uint64_t from_ns, uint64_t to_ns, uint64_t ns,
			    uint64_t now_ns)
{
	const uint64_t remembered_ns = (VGPU_BUCKETS - 1) * VGPU_BUCKET_NS;
	uint64_t at = from_ns, end, counted;

	if (to_ns <= from_ns || to_ns >> 63 != 0)
		return 0;
	if (to_ns - from_ns > remembered_ns)
		at = to_ns - remembered_ns;
	for (counted = least(ns, at - from_ns); at < to_ns && counted < ns; at = end) {
		uint64_t number = at / VGPU_BUCKET_NS;

		end = least(to_ns, (number + 1) * VGPU_BUCKET_NS);
		counted += count_in_bucket(&buckets->word[number % VGPU_BUCKETS], number,
					   least(end - at, ns - counted), now_ns);
	}
	return counted;
}
