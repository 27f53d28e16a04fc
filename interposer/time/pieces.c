/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/pieces.h"

/* A word has the number of the piece above and what was used of it, 0 to VGPU_PIECE_NS, below. */
#define USED_BITS 17
#define USED_MASK ((1ull << USED_BITS) - 1)
/* Who loses the race for a word so often races with garbage. */
#define TRIES 16

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Counts so much of the piece of this number. Returns how much of it there was room for. */
static uint64_t take(uint64_t *word, uint64_t number, uint64_t ns, uint64_t now_ns)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED), used, taken = 0;

	for (int i = 0; i < TRIES; i++) {
		uint64_t is = old >> USED_BITS;

		/* A later piece has the place already. What is said of a time to come is garbage. */
		if (is > number && is <= now_ns / VGPU_PIECE_NS)
			return ns;
		used = is == number ? least(old & USED_MASK, VGPU_PIECE_NS) : 0;
		taken = least(ns, VGPU_PIECE_NS - used);
		if (taken == 0 || __atomic_compare_exchange_n(word, &old, number << USED_BITS | (used + taken), 0,
							      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			break;
	}
	return taken;
}

uint64_t vgpu_pieces_count(struct vgpu_pieces *pieces, uint64_t from_ns, uint64_t to_ns, uint64_t ns, uint64_t now_ns)
{
	const uint64_t remembered_ns = (VGPU_PIECES - 1) * VGPU_PIECE_NS;
	uint64_t at = from_ns, end, counted;

	if (to_ns <= from_ns || to_ns >> 63 != 0)
		return 0;
	if (to_ns - from_ns > remembered_ns)
		at = to_ns - remembered_ns;
	for (counted = least(ns, at - from_ns); at < to_ns && counted < ns; at = end) {
		uint64_t number = at / VGPU_PIECE_NS;

		end = least(to_ns, (number + 1) * VGPU_PIECE_NS);
		counted += take(&pieces->word[number % VGPU_PIECES], number, least(end - at, ns - counted), now_ns);
	}
	return counted;
}
