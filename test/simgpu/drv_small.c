/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small blocks. Several of one context lie in a granule of 2 MiB, at any piece of 512 bytes and
 * never across two of them; the first one takes the granule from the device, the last gives it back. */
#include "drv.h"

#include <stdlib.h>

#define PIECE_BYTES 512u
#define PIECES (SIM_GRANULE_BYTES / PIECE_BYTES)
#define WORD_PIECES 64u

struct sim_granule {
	struct sim_granule *prev, *next;
	CUdeviceptr base;
	bool low;
	unsigned used;	/* pieces */
	unsigned first; /* no piece before this one is free */
	unsigned longest; /* no run that is longer is free */
	uint64_t taken[PIECES / WORD_PIECES];
};

static bool is_taken(const struct sim_granule *granule, unsigned piece)
{
	return granule->taken[piece / WORD_PIECES] >> piece % WORD_PIECES & 1;
}

static void mark(struct sim_granule *granule, unsigned from, unsigned count, bool taken)
{
	for (unsigned piece = from; piece < from + count; piece++) {
		uint64_t bit = 1ull << piece % WORD_PIECES;

		if (taken)
			granule->taken[piece / WORD_PIECES] |= bit;
		else
			granule->taken[piece / WORD_PIECES] &= ~bit;
	}
	granule->used += taken ? count : 0u - count;
	if (taken && from == granule->first)
		granule->first = from + count;
	else if (!taken && from < granule->first)
		granule->first = from;
	if (!taken)
		granule->longest = PIECES;
}

/* The first run of so many free pieces; PIECES when there is none. */
static unsigned find_run(struct sim_granule *granule, unsigned count)
{
	unsigned run = 0, longest = 0;

	for (unsigned piece = granule->first; piece < PIECES; piece++) {
		if (piece % WORD_PIECES == 0 && granule->taken[piece / WORD_PIECES] == UINT64_MAX) {
			run = 0;
			piece += WORD_PIECES - 1;
			continue;
		}
		run = is_taken(granule, piece) ? 0 : run + 1;
		if (run == count)
			return piece + 1 - count;
		longest = run > longest ? run : longest;
	}
	granule->longest = longest;
	return PIECES;
}

static struct sim_granule *new_granule(CUcontext ctx, bool low)
{
	struct sim_granule *granule = calloc(1, sizeof(*granule));

	if (granule == NULL)
		return NULL;
	granule->base = drv_va_take(SIM_GRANULE_BYTES, low);
	granule->low = low;
	granule->longest = PIECES;
	if (granule->base == 0 || sim_mem_take(ctx->device, SIM_GRANULE_BYTES) != 0) {
		if (granule->base != 0)
			drv_va_give(granule->base, SIM_GRANULE_BYTES, low);
		free(granule);
		return NULL;
	}
	granule->next = ctx->granules;
	if (granule->next != NULL)
		granule->next->prev = granule;
	ctx->granules = granule;
	return granule;
}

CUdeviceptr drv_small_take(CUcontext ctx, uint64_t bytes, bool low)
{
	unsigned count = (unsigned)((bytes + PIECE_BYTES - 1) / PIECE_BYTES), at = PIECES;
	struct sim_granule *granule = ctx->granules;

	for (; granule != NULL; granule = granule->next) {
		if (granule->low == low && granule->longest >= count && PIECES - granule->used >= count &&
		    (at = find_run(granule, count)) < PIECES)
			break;
	}
	if (granule == NULL) {
		granule = new_granule(ctx, low);
		at = 0;
	}
	if (granule == NULL)
		return 0;
	mark(granule, at, count, true);
	return granule->base + (uint64_t)at * PIECE_BYTES;
}

void drv_small_give(CUcontext ctx, CUdeviceptr base, uint64_t bytes)
{
	unsigned count = (unsigned)((bytes + PIECE_BYTES - 1) / PIECE_BYTES);
	struct sim_granule *granule = ctx->granules;

	while (granule != NULL && base - granule->base >= SIM_GRANULE_BYTES)
		granule = granule->next;
	if (granule == NULL)
		return;
	mark(granule, (unsigned)((base - granule->base) / PIECE_BYTES), count, false);
	if (granule->used > 0)
		return;
	if (granule->next != NULL)
		granule->next->prev = granule->prev;
	if (granule->prev != NULL)
		granule->prev->next = granule->next;
	else
		ctx->granules = granule->next;
	sim_mem_give(ctx->device, SIM_GRANULE_BYTES);
	drv_va_give(granule->base, SIM_GRANULE_BYTES, granule->low);
	free(granule);
}
