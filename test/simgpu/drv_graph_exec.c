/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs. Addresses are given when a node is made, memory when the executable graph is
 * uploaded or launched: from one pool per device, which all graphs share, since a device does one
 * thing after the other, and which keeps it until it is trimmed. What a graph frees itself is used
 * again within it, in the order in which its nodes were made. */
#include "drv_graph.h"

#include <stdlib.h>

#define CHUNK_BYTES (32 * SIM_MIB)
#define AUTO_FREE 1u
#define UPLOAD 2u

/* One block of an executable graph. */
struct piece {
	struct piece *next;
	CUdeviceptr base;
	uint64_t bytes;
	bool freed; /* by the graph itself */
};

struct CUgraphExec_st {
	CUgraphExec next;
	int ordinal;
	bool auto_free;
	uint64_t peak_bytes;
	struct piece *pieces;
};

static CUgraphExec execs;

static uint64_t cost_of(uint64_t bytes)
{
	return sim_round_up(bytes, bytes > CHUNK_BYTES ? CHUNK_BYTES : SIM_GRANULE_BYTES);
}

static bool add_pieces(CUgraphExec exec, CUgraph graph, uint64_t *now)
{
	for (CUgraphNode node = graph->first; node != NULL; node = node->next) {
		struct piece *piece = exec->pieces;

		if (node->type == SIM_NODE_CHILD && !add_pieces(exec, node->child, now))
			return false;
		if (node->type == SIM_NODE_FREE) {
			while (piece != NULL && piece->base != node->pointer)
				piece = piece->next;
			if (piece != NULL) {
				piece->freed = true;
				*now -= cost_of(piece->bytes);
			}
		}
		if (node->type != SIM_NODE_ALLOC)
			continue;
		if ((piece = calloc(1, sizeof(*piece))) == NULL)
			return false;
		piece->base = node->params.dptr;
		piece->bytes = node->params.bytesize;
		piece->next = exec->pieces;
		exec->pieces = piece;
		exec->ordinal = node->params.poolProps.location.id;
		*now += cost_of(piece->bytes);
		if (*now > exec->peak_bytes)
			exec->peak_bytes = *now;
	}
	return true;
}

static void free_exec(CUgraphExec exec)
{
	while (exec->pieces != NULL) {
		struct piece *piece = exec->pieces;

		exec->pieces = piece->next;
		free(piece);
	}
	free(exec);
}

static CUresult build(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	CUgraphExec exec;
	uint64_t now = 0;

	NEED(drv_ready());
	drv_lock();
	if (out == NULL || !drv_graph_known(graph))
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	exec = calloc(1, sizeof(*exec));
	if (exec == NULL || drv_fail_injected() || !add_pieces(exec, graph, &now)) {
		if (exec != NULL)
			free_exec(exec);
		return drv_unlock(CUDA_ERROR_OUT_OF_MEMORY);
	}
	exec->auto_free = (flags & AUTO_FREE) != 0;
	exec->next = execs;
	execs = exec;
	*out = exec;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	return build(exec, graph, flags);
}

CUresult sim_cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
				size_t log_bytes)
{
	(void)node, (void)log, (void)log_bytes;
	return build(exec, graph, 0);
}

CUresult sim_cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
				   size_t log_bytes)
{
	return sim_cuGraphInstantiate(exec, graph, node, log, log_bytes);
}

CUresult sim_cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
					  CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	if (params == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(build(exec, graph, params->flags));
	return params->flags & UPLOAD ? sim_cuGraphUpload(*exec, params->hUploadStream) : CUDA_SUCCESS;
}

CUresult sim_cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
					       CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return sim_cuGraphInstantiateWithParams(exec, graph, params);
}

static CUresult known_exec(CUgraphExec exec)
{
	for (CUgraphExec e = execs; e != NULL; e = e->next)
		if (e == exec)
			return CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_VALUE;
}

/* With the lock held. */
static CUresult map(CUgraphExec exec)
{
	CUmemoryPool pool = drv.graph_pool[exec->ordinal];

	if (exec->pieces == NULL)
		return CUDA_SUCCESS;
	for (struct piece *p = exec->pieces; p != NULL; p = p->next) {
		struct sim_block *block = p->freed ? NULL : drv_block_find(p->base);

		if (block != NULL && !exec->auto_free)
			return CUDA_ERROR_INVALID_VALUE;
		if (block != NULL)
			drv_block_release(block);
	}
	return drv_pool_reserve(pool, pool->used_bytes + exec->peak_bytes) ? CUDA_SUCCESS
									   : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sim_cuGraphUpload(CUgraphExec exec, CUstream handle)
{
	CUresult result;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	drv_lock();
	result = known_exec(exec);
	if (result == CUDA_SUCCESS)
		result = map(exec);
	return drv_unlock(result);
}

/* What the graph does not free is there until somebody else does. */
static void keep_pieces(CUgraphExec exec)
{
	CUmemoryPool pool = drv.graph_pool[exec->ordinal];

	for (struct piece *p = exec->pieces; p != NULL; p = p->next) {
		struct sim_block *block = p->freed ? NULL : drv_block_new(SIM_GRAPH, p->base, p->bytes, NULL);

		if (block == NULL)
			continue;
		block->span = sim_round_up(p->bytes, SIM_GRANULE_BYTES);
		block->physical_bytes = cost_of(p->bytes);
		block->ordinal = pool->ordinal;
		block->device = pool->device;
		block->pool = pool;
		pool->used_bytes += block->physical_bytes;
	}
}

CUresult sim_cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUresult result;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	drv_within("cuGraphLaunch");
	drv_lock();
	result = known_exec(exec);
	if (result == CUDA_SUCCESS && stream->capture == NULL)
		result = map(exec);
	if (result == CUDA_SUCCESS && stream->capture == NULL)
		keep_pieces(exec);
	drv_unlock(result);
	return result == CUDA_SUCCESS && stream->capture == NULL ? drv_enqueue(handle, 0) : result;
}

CUresult sim_cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return sim_cuGraphLaunch(exec, drv_ptsz(stream));
}

CUresult sim_cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	return sim_cuGraphUpload(exec, drv_ptsz(stream));
}

CUresult sim_cuGraphExecDestroy(CUgraphExec exec)
{
	NEED(drv_ready());
	drv_lock();
	for (CUgraphExec *at = &execs; *at != NULL; at = &(*at)->next)
		if (*at == exec) {
			*at = exec->next;
			free_exec(exec);
			return drv_unlock(CUDA_SUCCESS);
		}
	return drv_unlock(CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuDeviceGraphMemTrim(CUdevice device)
{
	NEED(drv_device(device));
	drv_lock();
	drv_pool_shrink(drv.graph_pool[device], 0);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	CUmemoryPool pool;

	NEED(drv_device(device));
	if (value == NULL || attribute < 0 || attribute > 3)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == 2 && sim_conf.pool_silent)
		return CUDA_ERROR_NOT_SUPPORTED;
	pool = drv.graph_pool[device];
	drv_lock();
	/* What graphs share counts as used, as measured. */
	*(cuuint64_t *)value = attribute % 2 == 0 ? pool->reserved_bytes : pool->reserved_high;
	drv_unlock(CUDA_SUCCESS);
	drv_within("cuDeviceGetGraphMemAttribute");
	return CUDA_SUCCESS;
}
