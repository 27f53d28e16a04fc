/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Graphs and their nodes, as far as they take memory. */
#include "drv_graph.h"

#include <stdlib.h>

static CUgraph graphs;

CUgraph drv_graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	if (graph != NULL) {
		graph->next = graphs;
		graphs = graph;
	}
	return graph;
}

bool drv_graph_known(CUgraph graph)
{
	for (CUgraph g = graphs; g != NULL; g = g->next)
		if (g == graph)
			return true;
	return false;
}

static CUgraphNode add(CUgraph graph, int type)
{
	CUgraphNode node = calloc(1, sizeof(*node));

	if (node == NULL)
		return NULL;
	node->type = type;
	if (graph->last != NULL)
		graph->last->next = node;
	else
		graph->first = node;
	graph->last = node;
	return node;
}

static CUresult add_alloc(CUgraph graph, CUDA_MEM_ALLOC_NODE_PARAMS *params, CUgraphNode *out)
{
	CUdeviceptr base = drv_va_take(sim_round_up(params->bytesize, SIM_GRANULE_BYTES), false);
	CUgraphNode node = base != 0 ? add(graph, SIM_NODE_ALLOC) : NULL;

	if (node == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	params->dptr = base;
	node->params = *params;
	*out = node;
	return CUDA_SUCCESS;
}

CUresult drv_graph_alloc(CUgraph graph, int ordinal, size_t bytes, CUdeviceptr *out)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, ordinal } },
		.bytesize = bytes,
	};
	CUgraphNode node;

	NEED(add_alloc(graph, &params, &node));
	*out = params.dptr;
	return CUDA_SUCCESS;
}

static CUresult add_free(CUgraph graph, CUdeviceptr pointer, CUgraphNode *out)
{
	CUgraphNode node = graph->first;

	while (node != NULL && !(node->type == SIM_NODE_ALLOC && node->params.dptr == pointer))
		node = node->next;
	if (node == NULL || (*out = add(graph, SIM_NODE_FREE)) == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	(*out)->pointer = pointer;
	return CUDA_SUCCESS;
}

CUresult drv_graph_free(CUgraph graph, CUdeviceptr pointer)
{
	CUgraphNode node;

	return add_free(graph, pointer, &node);
}

CUresult sim_cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	NEED(drv_ready());
	if (graph == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	*graph = drv_graph_new();
	return drv_unlock(*graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult sim_cuGraphDestroy(CUgraph graph)
{
	NEED(drv_ready());
	drv_lock();
	for (CUgraph *at = &graphs; *at != NULL; at = &(*at)->next)
		if (*at == graph) {
			*at = graph->next;
			while (graph->first != NULL) {
				CUgraphNode node = graph->first;

				graph->first = node->next;
				free(node);
			}
			free(graph);
			return drv_unlock(CUDA_SUCCESS);
		}
	return drv_unlock(CUDA_ERROR_INVALID_VALUE);
}

/* The order in which nodes are made is taken for the order in which they run. */
CUresult sim_cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				    CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	NEED(drv_ready());
	if (node == NULL || params == NULL || params->bytesize == 0 || (after == NULL && count != 0) ||
	    params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(params->poolProps.location.id));
	drv_lock();
	if (drv_graph_known(graph))
		result = add_alloc(graph, params, node);
	return drv_unlock(result);
}

CUresult sim_cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
				   CUdeviceptr pointer)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	NEED(drv_ready());
	if (node == NULL || (after == NULL && count != 0))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (drv_graph_known(graph))
		result = add_free(graph, pointer, node);
	return drv_unlock(result);
}

static CUresult add_plain(CUgraphNode *node, CUgraph graph, int type, CUgraph child)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	NEED(drv_ready());
	if (node == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (drv_graph_known(graph) && (child == NULL || drv_graph_known(child)) &&
	    (*node = add(graph, type)) != NULL) {
		(*node)->child = child;
		result = CUDA_SUCCESS;
	}
	return drv_unlock(result);
}

CUresult sim_cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count)
{
	return after == NULL && count != 0 ? CUDA_ERROR_INVALID_VALUE
					   : add_plain(node, graph, SIM_NODE_EMPTY, NULL);
}

CUresult sim_cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after,
				      size_t count, CUgraph child)
{
	if ((after == NULL && count != 0) || child == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return add_plain(node, graph, SIM_NODE_CHILD, child);
}

CUresult sim_cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	size_t have = 0;

	NEED(drv_ready());
	drv_lock();
	if (count == NULL || !drv_graph_known(graph))
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	for (CUgraphNode n = graph->first; n != NULL; n = n->next, have++)
		if (nodes != NULL && have < *count)
			nodes[have] = n;
	if (nodes == NULL || have < *count)
		*count = have;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuGraphNodeGetType(CUgraphNode node, int *type)
{
	NEED(drv_ready());
	if (node == NULL || type == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	NEED(drv_ready());
	if (node == NULL || params == NULL || node->type != SIM_NODE_ALLOC)
		return CUDA_ERROR_INVALID_VALUE;
	*params = node->params;
	return CUDA_SUCCESS;
}

CUresult sim_cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	NEED(drv_ready());
	if (node == NULL || graph == NULL || node->type != SIM_NODE_CHILD)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = node->child;
	return CUDA_SUCCESS;
}
