/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small blocks. Several of one context lie in a granule of 2 MiB, at any piece of 512 bytes and
 * never across two of them; the first one takes the granule from the device, the last gives it back.
 * A managed one is mapped on the host, and the device's while one of its blocks has been moved there. */
#include "drv.h"

#include <stdlib.h>
#include <sys/mman.h>

#define PIECE_BYTES 512u
#define PIECES (SIM_GRANULE_BYTES / PIECE_BYTES)
#define WORD_PIECES 64u

struct sim_granule {
	struct sim_granule *prev, *next;
	CUdeviceptr base;
	enum sim_place place;
	unsigned resident; /* managed blocks on the device */
	int device;	   /* where they are */
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

static void end_granule(CUcontext ctx, struct sim_granule *granule)
{
	if (granule->place == SIM_PLACE_MANAGED) {
		munmap((void *)(uintptr_t)granule->base, SIM_GRANULE_BYTES);
	} else {
		sim_mem_give(ctx->device, SIM_GRANULE_BYTES);
		drv_va_give(granule->base, SIM_GRANULE_BYTES, granule->place == SIM_PLACE_LOW);
	}
	free(granule);
}

/* Addresses, and what they need of the device; 0 when one of them is not there. */
static CUdeviceptr begin_granule(CUcontext ctx, enum sim_place place)
{
	CUdeviceptr base;
	void *at;

	if (place == SIM_PLACE_MANAGED) {
		at = drv_map(SIM_GRANULE_BYTES, SIM_GRANULE_BYTES);
		return at != MAP_FAILED ? (uintptr_t)at : 0;
	}
	base = drv_va_take(SIM_GRANULE_BYTES, place == SIM_PLACE_LOW);
	if (base != 0 && sim_mem_take(ctx->device, SIM_GRANULE_BYTES) != 0) {
		drv_va_give(base, SIM_GRANULE_BYTES, place == SIM_PLACE_LOW);
		return 0;
	}
	return base;
}

static struct sim_granule *new_granule(CUcontext ctx, enum sim_place place)
{
	struct sim_granule *granule = calloc(1, sizeof(*granule));

	if (granule == NULL)
		return NULL;
	granule->base = begin_granule(ctx, place);
	granule->place = place;
	granule->longest = PIECES;
	if (granule->base == 0) {
		free(granule);
		return NULL;
	}
	granule->next = ctx->granules;
	if (granule->next != NULL)
		granule->next->prev = granule;
	ctx->granules = granule;
	return granule;
}

static struct sim_granule *granule_at(CUcontext ctx, CUdeviceptr base)
{
	struct sim_granule *granule = ctx->granules;

	while (granule != NULL && base - granule->base >= SIM_GRANULE_BYTES)
		granule = granule->next;
	return granule;
}

CUdeviceptr drv_small_take(CUcontext ctx, uint64_t bytes, enum sim_place place)
{
	unsigned count = (unsigned)((bytes + PIECE_BYTES - 1) / PIECE_BYTES), at = PIECES;
	struct sim_granule *granule = ctx->granules;

	for (; granule != NULL; granule = granule->next) {
		if (granule->place == place && granule->longest >= count && PIECES - granule->used >= count &&
		    (at = find_run(granule, count)) < PIECES)
			break;
	}
	if (granule == NULL) {
		granule = new_granule(ctx, place);
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
	struct sim_granule *granule = granule_at(ctx, base);

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
	end_granule(ctx, granule);
}

bool drv_small_move_in(CUcontext ctx, CUdeviceptr base, int *device)
{
	struct sim_granule *granule = granule_at(ctx, base);

	if (granule == NULL || (granule->resident == 0 && sim_managed_take(*device, SIM_GRANULE_BYTES) != 0))
		return false;
	if (granule->resident++ == 0)
		granule->device = *device;
	*device = granule->device;
	return true;
}

void drv_small_move_out(CUcontext ctx, CUdeviceptr base)
{
	struct sim_granule *granule = granule_at(ctx, base);

	if (granule != NULL && --granule->resident == 0)
		sim_managed_give(granule->device, SIM_GRANULE_BYTES);
}
