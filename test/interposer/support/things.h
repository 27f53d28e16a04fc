/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every kind of thing that takes memory of a GPU, to be taken and dropped in any order. Sizes are such
 * that the driver takes what was asked for, so that its own figure can be compared with the account. */
#ifndef VGPU_TEST_THINGS_H
#define VGPU_TEST_THINGS_H

#include "harness.h"

enum thing_kind {
	THING_NONE,
	THING_LINEAR,
	THING_PITCHED,
	THING_MANAGED,
	THING_ASYNC,
	THING_POOLED,
	THING_VMM,
	THING_ARRAY,
	THING_MEMORY_KINDS, /* those before are memory and nothing else */
	THING_GRAPH = THING_MEMORY_KINDS,
	THING_POOL,
	THING_CONTEXT,
	THING_MODULE,
	THING_KINDS,
};

struct thing {
	enum thing_kind kind;
	CUdeviceptr pointer;
	uint64_t bytes;
	CUmemGenericAllocationHandle handle;
	CUarray array;
	CUgraphExec exec;
	CUmemoryPool pool;
	CUcontext context;
	CUmodule module;
};

/* What a thread takes things with. */
struct hands {
	CUcontext context;
	CUstream stream;
	CUmemoryPool pool;
};

void hands_begin(struct hands *hands, CUcontext context);
void hands_end(struct hands *hands);

/* Takes so many granules of 2 MiB. Without success nothing is taken. */
CUresult thing_take(struct hands *hands, struct thing *thing, enum thing_kind kind, uint32_t granules);
CUresult thing_drop(struct hands *hands, struct thing *thing);

uint32_t thing_random(uint32_t *seed);

#endif
