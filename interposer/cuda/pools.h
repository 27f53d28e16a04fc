/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds POOL_DESTROY and GRAPH_*: what is held beyond live allocations. */
#ifndef VGPU_CUDA_POOLS_H
#define VGPU_CUDA_POOLS_H

#include "context/overhead.h"
#include "cuda/launch.h"
#include "cuda/memory.h"
#include "cuda/wrap.h"
#include "pools/graphs.h"

/* The work that a stream has finished may have given memory back, and made the driver take some. */
static void synchronised(struct vgpu_process *p)
{
	vgpu_gate_settle(p, NULL);
	vgpu_pools_synchronised(p);
	vgpu_overhead_catch_up(p);
}

#define WRAP_POOL_DESTROY(symbol, params, args, handle)                                         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_pool *noted = p != NULL ? vgpu_pools_destroy(p, handle) : NULL;     \
		CUresult result = real args;                                                    \
                                                                                                \
		if (noted != NULL)                                                              \
			vgpu_pools_destroyed(p, noted, handle, result == CUDA_SUCCESS);         \
		return result;                                                                  \
	}

/* The upload, which takes the memory, is done apart, when it is known how much that can be. What the flags
 * were; 0: there is none to be done. */
static cuuint64_t put_off_upload(struct vgpu_process *p, CUDA_GRAPH_INSTANTIATE_PARAMS *how)
{
	cuuint64_t flags = p != NULL && how != NULL ? how->flags : 0;

	if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) == 0)
		return 0;
	how->flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
	return flags;
}

static void put_back_upload(CUDA_GRAPH_INSTANTIATE_PARAMS *how, cuuint64_t flags)
{
	if (flags != 0)
		how->flags = flags;
}

#define WRAP_GRAPH_UPLOAD(symbol, params, args, exec, graph, how, stream)                       \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		cuuint64_t flags = put_off_upload(p, how);                                      \
		CUresult result = real args;                                                    \
		put_back_upload(how, flags);                                                    \
		if (result == CUDA_SUCCESS && p != NULL)                                        \
			vgpu_graphs_built(p, *(exec), graph);                                   \
		return result == CUDA_SUCCESS && flags != 0 ? vgpu_graphs_upload(p, *(exec), stream) : result; \
	}

/* Most graphs have no memory nodes, and most programs no graph that has. */
#define GRAPHS_TAKE_NOTHING(p) (__atomic_load_n(&(p)->graphs_with_memory, __ATOMIC_RELAXED) == 0)

static CUresult graph_took(struct vgpu_process *p, struct vgpu_growth *g, CUgraphExec exec, CUresult result)
{
	if (g->pool != NULL)
		vgpu_graphs_end(p, g, exec, result);
	return result;
}

#define WRAP_GRAPH_TAKE(symbol, params, args, exec, stream)                                     \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_growth g;                                                           \
		CUresult refused = CUDA_SUCCESS;                                                \
		if (p == NULL || GRAPHS_TAKE_NOTHING(p))                                        \
			return real args;                                                       \
		refused = vgpu_graphs_begin(p, &g, exec, stream);                               \
		return refused == CUDA_SUCCESS ? graph_took(p, &g, exec, real args) : refused;  \
	}

struct graph_launch {
	struct launch launch;
	struct vgpu_growth growth;
};

static CUresult graph_begins(struct vgpu_process *p, struct graph_launch *g, CUgraphExec exec,
			     CUstream stream)
{
	CUresult refused = CUDA_SUCCESS;

	g->growth = (struct vgpu_growth){0};
	if (p != NULL && !GRAPHS_TAKE_NOTHING(p))
		refused = vgpu_graphs_begin(p, &g->growth, exec, stream);
	if (refused == CUDA_SUCCESS)
		launch_begins(p, &g->launch, stream);
	return refused;
}

static CUresult graph_left(struct vgpu_process *p, struct graph_launch *g, CUgraphExec exec, CUresult result)
{
	return graph_took(p, &g->growth, exec, launch_ends(p, &g->launch, result));
}

#define WRAP_GRAPH_LAUNCH(symbol, params, args, exec, stream)                                   \
	static __attribute__((noinline)) CUresult launch_##symbol params                        \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct graph_launch g;                                                          \
		CUresult refused = graph_begins(p, &g, exec, stream);                           \
                                                                                                \
		return refused != CUDA_SUCCESS ? refused : graph_left(p, &g, exec, real args);  \
	}                                                                                       \
	WRAP_QUICKLY(symbol, params, args, GRAPHS_TAKE_NOTHING(p) && PASSES(p), launch_##symbol)

#define WRAP_GRAPH_DESTROY(symbol, params, args, exec)              \
	WRAP(symbol, params)                                        \
	{                                                           \
		REAL_OR_RETURN(symbol);                             \
		struct vgpu_process *p = attached();                \
                                                                    \
		if (p != NULL)                                      \
			vgpu_graphs_gone(p, exec);                  \
		return real args;                                   \
	}

#endif
