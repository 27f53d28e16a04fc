/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * vgpu_pools(p)->graphs: executable graph → bytes: what its memory nodes can take at most, device: CUDA
 * ordinal of them, owner: 1 + graphs_trimmed when it was last launched. Only graphs with memory nodes. */
#include "pools/graphs.h"

#include "api/symbols.h"
#include "base/arithmetic.h"
#include "base/futex.h"
#include "base/table.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "pools/table.h"
#include "process/message.h"
#include "tuning.h"

#include <sys/mman.h>

/* Large blocks have chunks of their own, small ones share them. */
static uint64_t cost_of(uint64_t bytes)
{
	uint64_t to = bytes > VGPU_POOL_CHUNK_BYTES / 2 ? VGPU_POOL_CHUNK_BYTES : VGPU_GRANULE_BYTES;

	return bytes > UINT64_MAX / 2 ? UINT64_MAX / 2 : vgpu_round_up(bytes, to);
}

struct sum {
	uint64_t bytes;
	CUdevice ordinal;
};

static void add_bytes(struct sum *sum, uint64_t bytes)
{
	sum->bytes = bytes > UINT64_MAX / 2 - sum->bytes ? UINT64_MAX / 2 : sum->bytes + bytes;
}

static void add_graph(struct sum *sum, CUgraph graph, int depth);

static void add_node(struct sum *sum, CUgraphNode node, int depth)
{
	vgpu_fn_cuGraphNodeGetType *get_type = VGPU_REAL(cuGraphNodeGetType);
	vgpu_fn_cuGraphMemAllocNodeGetParams *get_params = VGPU_REAL(cuGraphMemAllocNodeGetParams);
	vgpu_fn_cuGraphChildGraphNodeGetGraph *get_graph = VGPU_REAL(cuGraphChildGraphNodeGetGraph);
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraph child;
	int type;

	if (get_type == NULL || get_type(node, &type) != CUDA_SUCCESS)
		return;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && get_params != NULL &&
	    get_params(node, &params) == CUDA_SUCCESS) {
		if (params.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
			return;
		sum->ordinal = params.poolProps.location.id;
		add_bytes(sum, cost_of(params.bytesize));
	} else if (type == CU_GRAPH_NODE_TYPE_GRAPH && get_graph != NULL && depth < VGPU_NESTED_GRAPHS &&
		   get_graph(node, &child) == CUDA_SUCCESS) {
		add_graph(sum, child, depth + 1);
	}
}

static void add_graph(struct sum *sum, CUgraph graph, int depth)
{
	vgpu_fn_cuGraphGetNodes *get_nodes = VGPU_REAL(cuGraphGetNodes);
	size_t count = 0, room;
	CUgraphNode *nodes;

	if (get_nodes == NULL || get_nodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
		return;
	room = count;
	nodes = mmap(NULL, room * sizeof(*nodes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (nodes == MAP_FAILED)
		return;
	if (get_nodes(graph, nodes, &count) == CUDA_SUCCESS) {
		for (size_t i = 0; i < count && i < room; i++)
			add_node(sum, nodes[i], depth);
	}
	munmap(nodes, room * sizeof(*nodes));
}

static bool take_graph(struct vgpu_process *p, CUgraphExec exec, struct vgpu_entry *out)
{
	bool found;

	vgpu_mutex_lock(&vgpu_pools(p)->graphs_mutex, VGPU_RANK_GRAPHS);
	found = vgpu_table_take(&vgpu_pools(p)->graphs, (uint64_t)(uintptr_t)exec, out);
	__atomic_store_n(&p->graphs_with_memory, (uint32_t)vgpu_pools(p)->graphs.used, __ATOMIC_RELAXED);
	vgpu_mutex_unlock(&vgpu_pools(p)->graphs_mutex);
	return found;
}

void vgpu_graphs_built(struct vgpu_process *p, CUgraphExec exec, CUgraph graph)
{
	struct vgpu_entry entry = {.key = (uint64_t)(uintptr_t)exec, .count = 1};
	struct sum sum = {0};

	add_graph(&sum, graph, 0);
	if (sum.bytes == 0) {
		/* The driver may give a handle again that was not seen to end. */
		if (__atomic_load_n(&p->graphs_with_memory, __ATOMIC_RELAXED) != 0)
			take_graph(p, exec, &entry);
		return;
	}
	entry.bytes = vgpu_round_up(sum.bytes, VGPU_POOL_CHUNK_BYTES);
	entry.device = (uint32_t)sum.ordinal;
	vgpu_mutex_lock(&vgpu_pools(p)->graphs_mutex, VGPU_RANK_GRAPHS);
	vgpu_table_put(&vgpu_pools(p)->graphs, &entry);
	__atomic_store_n(&p->graphs_with_memory, (uint32_t)vgpu_pools(p)->graphs.used, __ATOMIC_RELAXED);
	vgpu_mutex_unlock(&vgpu_pools(p)->graphs_mutex);
}

void vgpu_graphs_gone(struct vgpu_process *p, CUgraphExec exec)
{
	struct vgpu_entry entry;
	struct vgpu_pool *pool;

	if (__atomic_load_n(&p->graphs_with_memory, __ATOMIC_RELAXED) == 0 || !take_graph(p, exec, &entry))
		return;
	pool = vgpu_pools_of_graphs(p, (CUdevice)entry.device);
	if (pool != NULL)
		vgpu_pools_settle(p, pool);
}

CUresult vgpu_graphs_begin(struct vgpu_process *p, struct vgpu_growth *g, CUgraphExec exec, CUstream stream)
{
	struct vgpu_entry entry = {0};
	struct vgpu_entry *found;
	struct vgpu_pool *pool;
	uint64_t trimmed;

	g->pool = NULL;
	vgpu_mutex_lock(&vgpu_pools(p)->graphs_mutex, VGPU_RANK_GRAPHS);
	found = vgpu_table_find(&vgpu_pools(p)->graphs, (uint64_t)(uintptr_t)exec);
	if (found != NULL)
		entry = *found;
	vgpu_mutex_unlock(&vgpu_pools(p)->graphs_mutex);
	if (entry.key == 0 || (vgpu_capture_possible(p) && vgpu_capture_of_stream(stream)))
		return CUDA_SUCCESS;
	pool = vgpu_pools_of_graphs(p, (CUdevice)entry.device);
	if (pool == NULL || pool->device == VGPU_NO_DEVICE)
		return CUDA_SUCCESS;
	if (pool->device == VGPU_NOT_GRANTED) {
		vgpu_message_not_granted(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	trimmed = __atomic_load_n(&vgpu_pools(p)->graphs_trimmed, __ATOMIC_SEQ_CST);
	if (entry.owner == trimmed + 1) {
		vgpu_pools_begin_again(p, g, pool, entry.bytes);
		g->trimmed = trimmed;
		if (__atomic_load_n(&vgpu_pools(p)->graphs_trimmed, __ATOMIC_SEQ_CST) == trimmed)
			return CUDA_SUCCESS;
		vgpu_pools_cancel_again(p, g);
	}
	if (vgpu_pools_begin(p, g, pool, entry.bytes, stream)) {
		g->trimmed = trimmed;
		return CUDA_SUCCESS;
	}
	g->pool = NULL;
	vgpu_message_limit(p, (uint32_t)pool->device, entry.bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

void vgpu_graphs_end(struct vgpu_process *p, struct vgpu_growth *g, CUgraphExec exec, CUresult result)
{
	struct vgpu_entry *found;

	/* A graph that runs cannot be taken back: it is charged, and further calls are refused until it is
	 * less. */
	if (!vgpu_pools_end(p, g))
		vgpu_pools_force(p, g->pool);
	if (result != CUDA_SUCCESS)
		return;
	vgpu_mutex_lock(&vgpu_pools(p)->graphs_mutex, VGPU_RANK_GRAPHS);
	found = vgpu_table_find(&vgpu_pools(p)->graphs, (uint64_t)(uintptr_t)exec);
	if (found != NULL)
		found->owner = g->trimmed + 1;
	vgpu_mutex_unlock(&vgpu_pools(p)->graphs_mutex);
}

CUresult vgpu_graphs_upload(struct vgpu_process *p, CUgraphExec exec, CUstream stream)
{
	vgpu_fn_cuGraphUpload *upload = VGPU_REAL(cuGraphUpload);
	vgpu_fn_cuGraphExecDestroy *destroy = VGPU_REAL(cuGraphExecDestroy);
	struct vgpu_growth g;
	CUresult result = upload != NULL ? vgpu_graphs_begin(p, &g, exec, stream) : CUDA_ERROR_NOT_FOUND;

	if (result == CUDA_SUCCESS) {
		result = upload(exec, stream);
		if (g.pool != NULL)
			vgpu_graphs_end(p, &g, exec, result);
	}
	if (result != CUDA_SUCCESS) {
		vgpu_graphs_gone(p, exec);
		if (destroy != NULL)
			destroy(exec);
	}
	return result;
}

void vgpu_graphs_trimmed(struct vgpu_process *p, CUdevice ordinal)
{
	struct vgpu_pool *pool = vgpu_pools_of_graphs(p, ordinal);

	__atomic_add_fetch(&vgpu_pools(p)->graphs_trimmed, 1, __ATOMIC_SEQ_CST);
	if (pool != NULL)
		vgpu_pools_settle(p, pool);
}
