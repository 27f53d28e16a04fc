/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds POOL_DESTROY and GRAPH_*: what is held beyond live allocations. */
#ifndef VGPU_CUDA_POOLS_H
#define VGPU_CUDA_POOLS_H

#include "context/overhead.h"
#include "cuda/memory.h"
#include "cuda/wrap.h"
#include "gate/gate.h"
#include "pools/graphs.h"
#include "streams/lease.h"

/* The program has waited for results. What a stream has got to may have given memory back, and made
 * the driver take some. */
static void synchronised(struct vgpu_process *p)
{
	__atomic_store_n(&p->synchronised, 1, __ATOMIC_RELAXED);
	vgpu_lease_drop_if_shared();
	vgpu_pools_synchronised(p);
	vgpu_overhead_catch_up(p);
}

#define WRAP_POOL_DESTROY(symbol, params, args, handle)                                           \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		struct vgpu_pool *noted = p != NULL ? vgpu_pools_destroy(p, handle) : NULL;        \
		CUresult result = real args;                                                      \
                                                                                                  \
		if (noted != NULL)                                                                 \
			vgpu_pools_destroyed(p, noted, handle, result == CUDA_SUCCESS);            \
		return result;                                                                    \
	}

/* The upload, which takes the memory, is done apart, when it is known how much that can be. */
#define WRAP_GRAPH_UPLOAD(symbol, params, args, exec, graph, how, stream)                   \
	WRAP(symbol, params)                                                                \
	{                                                                                   \
		REAL_OR_RETURN(symbol);                                                     \
		struct vgpu_process *p = attached();                                        \
		cuuint64_t flags = (how) != NULL ? (how)->flags : 0;                        \
		bool upload = p != NULL && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD) != 0; \
		CUresult result;                                                            \
                                                                                            \
		if (upload)                                                                 \
			(how)->flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;    \
		result = real args;                                                         \
		if (upload)                                                                 \
			(how)->flags = flags;                                               \
		if (result != CUDA_SUCCESS || p == NULL)                                    \
			return result;                                                      \
		vgpu_graphs_built(p, *(exec), graph);                                       \
		return upload ? vgpu_graphs_upload(p, *(exec), stream) : result;            \
	}

/* Most graphs have no memory nodes, and most programs no graph that has. */
#define GRAPHS_TAKE_NOTHING(p) (__atomic_load_n(&(p)->graphs_with_memory, __ATOMIC_RELAXED) == 0)

#define WRAP_GRAPH_TAKE(symbol, params, args, exec, stream)                                       \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		struct vgpu_growth g;                                                             \
		CUresult result;                                                                  \
                                                                                                  \
		if (p == NULL || GRAPHS_TAKE_NOTHING(p))                                          \
			return real args;                                                         \
		result = vgpu_graphs_begin(p, &g, exec, stream);                                  \
		if (result != CUDA_SUCCESS)                                                       \
			return result;                                                            \
		result = real args;                                                               \
		if (g.pool != NULL)                                                               \
			vgpu_graphs_end(p, &g, exec, result);                                     \
		return result;                                                                    \
	}

#define WRAP_GRAPH_LAUNCH(symbol, params, args, exec, stream)                                     \
	static __attribute__((noinline)) CUresult launch_##symbol params                          \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		bool memory = p != NULL && !GRAPHS_TAKE_NOTHING(p);                               \
		bool shut = p != NULL && vgpu_gate_is_shut(p);                                    \
		struct vgpu_launch launch;                                                        \
		struct vgpu_growth g = {0};                                                       \
		CUresult result = memory ? vgpu_graphs_begin(p, &g, exec, stream) : CUDA_SUCCESS; \
                                                                                                  \
		if (result != CUDA_SUCCESS)                                                       \
			return result;                                                            \
		if (shut && !vgpu_gate_enter(p, &launch, stream, exec, 0, VGPU_PLACES_GRAPH))     \
			result = VGPU_GATE_REFUSES;                                               \
		else                                                                              \
			result = real args;                                                       \
		if (shut)                                                                         \
			vgpu_gate_leave(p, &launch, result);                                      \
		if (g.pool != NULL)                                                               \
			vgpu_graphs_end(p, &g, exec, result);                                     \
		return result;                                                                    \
	}                                                                                         \
	WRAP_QUICKLY(symbol, params, args, GRAPHS_TAKE_NOTHING(p) && !vgpu_gate_is_shut(p), launch_##symbol)

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
