/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Addresses and what lies at them. Device addresses are numbers that nothing is mapped at; they
 * lie far from the host's memory and differ from process to process. */
#define _GNU_SOURCE
#include "drv.h"

#include <search.h>
#include <stdlib.h>

#define VA_BASE 0x100000000000ull /* 16 TiB: between a program's heap and its libraries */
#define VA_PER_SLOT (1ull << 40)
#define VA_LOW_BASE 0x10000000ull /* for the functions with 32-bit pointers */
#define VA_LOW_END 0xf0000000ull

/* Freed addresses of one size, used again last in, first out. */
struct spare {
	uint64_t bytes;
	bool low;
	CUdeviceptr *base;
	size_t count, room;
};

static void *spares, *blocks; /* search trees */
static CUdeviceptr next_va, next_low_va = VA_LOW_BASE;

static int spare_cmp(const void *a, const void *b)
{
	const struct spare *x = a, *y = b;

	if (x->low != y->low)
		return x->low ? 1 : -1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Ranges that overlap compare equal, so a search with one address finds its block. */
static int block_cmp(const void *a, const void *b)
{
	const struct sim_block *x = a, *y = b;

	if (x->base + x->span <= y->base)
		return -1;
	return y->base + y->span <= x->base ? 1 : 0;
}

CUdeviceptr drv_va_take(uint64_t bytes, bool low)
{
	struct spare key = { .bytes = bytes, .low = low };
	struct spare **spare = tfind(&key, &spares, spare_cmp);
	CUdeviceptr base, align = bytes % SIM_GRANULE_BYTES == 0 ? SIM_GRANULE_BYTES : 512;

	if (spare != NULL && (*spare)->count > 0)
		return (*spare)->base[--(*spare)->count];
	if (next_va == 0)
		next_va = VA_BASE + (sim_own_slot() % 64) * VA_PER_SLOT;
	base = sim_round_up(low ? next_low_va : next_va, align);
	if (low && base + bytes > VA_LOW_END)
		return 0;
	*(low ? &next_low_va : &next_va) = base + bytes;
	return base;
}

void drv_va_give(CUdeviceptr base, uint64_t bytes, bool low)
{
	struct spare key = { .bytes = bytes, .low = low }, **found, *spare;

	found = tfind(&key, &spares, spare_cmp);
	spare = found != NULL ? *found : calloc(1, sizeof(*spare));
	if (spare == NULL)
		return; /* these addresses are not used again */
	if (found == NULL) {
		spare->bytes = bytes;
		spare->low = low;
		if (tsearch(spare, &spares, spare_cmp) == NULL) {
			free(spare);
			return;
		}
	}
	if (spare->count == spare->room) {
		size_t room = spare->room != 0 ? spare->room * 2 : 8;
		CUdeviceptr *more = realloc(spare->base, room * sizeof(*more));

		if (more == NULL)
			return;
		spare->base = more;
		spare->room = room;
	}
	spare->base[spare->count++] = base;
}

struct sim_block *drv_block_new(enum sim_kind kind, CUdeviceptr base, uint64_t bytes, CUcontext ctx)
{
	struct sim_block *block = calloc(1, sizeof(*block));

	if (block == NULL)
		return NULL;
	block->kind = kind;
	block->base = base;
	block->bytes = bytes;
	block->span = bytes;
	if (tsearch(block, &blocks, block_cmp) == NULL) {
		free(block);
		return NULL;
	}
	block->ctx = ctx;
	if (ctx != NULL) {
		block->next = ctx->blocks;
		if (block->next != NULL)
			block->next->prev = block;
		ctx->blocks = block;
	}
	return block;
}

struct sim_block *drv_block_find(CUdeviceptr pointer)
{
	struct sim_block key = { .base = pointer, .span = 1 };
	struct sim_block **found = tfind(&key, &blocks, block_cmp);

	return found != NULL ? *found : NULL;
}

void drv_block_drop(struct sim_block *block)
{
	tdelete(block, &blocks, block_cmp);
	if (block->next != NULL)
		block->next->prev = block->prev;
	if (block->prev != NULL)
		block->prev->next = block->next;
	else if (block->ctx != NULL)
		block->ctx->blocks = block->next;
	free(block);
}
