/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "things.h"

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);

#define GRANULE (2 * MIB)

static const CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

uint32_t thing_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

void hands_begin(struct hands *hands, CUcontext context)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};

	*hands = (struct hands){.context = context};
	cuCtxSetCurrent(context);
	cuStreamCreate(&hands->stream, 1);
	cuMemPoolCreate(&hands->pool, &props);
}

void hands_end(struct hands *hands)
{
	cuStreamSynchronize(hands->stream);
	cuMemPoolDestroy(hands->pool);
	cuStreamDestroy_v2(hands->stream);
}

static CUresult take_vmm(struct thing *thing)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	CUresult result = cuMemAddressReserve(&thing->pointer, thing->bytes, 0, 0, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuMemCreate(&thing->handle, thing->bytes, &prop, 0);
	if (result == CUDA_SUCCESS) {
		result = cuMemMap(thing->pointer, thing->bytes, 0, thing->handle, 0);
		if (result != CUDA_SUCCESS)
			cuMemRelease(thing->handle);
	}
	if (result != CUDA_SUCCESS)
		cuMemAddressFree(thing->pointer, thing->bytes);
	return result;
}

static CUresult take_graph(struct hands *hands, struct thing *thing)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here},
		.bytesize = thing->bytes};
	CUgraphNode node, end;
	CUresult result;
	CUgraph graph;

	if (cuGraphCreate(&graph, 0) != CUDA_SUCCESS)
		return CUDA_ERROR_UNKNOWN;
	result = cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
	if (result == CUDA_SUCCESS)
		result = cuGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr);
	if (result == CUDA_SUCCESS)
		result = cuGraphInstantiateWithFlags(&thing->exec, graph, 0);
	cuGraphDestroy(graph);
	if (result != CUDA_SUCCESS)
		return result;
	result = cuGraphLaunch(thing->exec, hands->stream);
	if (result != CUDA_SUCCESS)
		cuGraphExecDestroy(thing->exec);
	return result;
}

static CUresult take_pool(struct hands *hands, struct thing *thing)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here};
	CUresult result = cuMemPoolCreate(&thing->pool, &props);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuMemAllocFromPoolAsync(&thing->pointer, thing->bytes, thing->pool, hands->stream);
	if (result != CUDA_SUCCESS)
		cuMemPoolDestroy(thing->pool);
	return result;
}

static CUresult take_context(struct hands *hands, struct thing *thing)
{
	CUresult result = cuCtxCreate_v2(&thing->context, 0, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = cuMemAlloc_v2(&thing->pointer, thing->bytes);
	if (result != CUDA_SUCCESS)
		cuCtxDestroy_v2(thing->context);
	cuCtxSetCurrent(hands->context);
	return result;
}

CUresult thing_take(struct hands *hands, struct thing *thing, enum thing_kind kind, uint32_t granules)
{
	CUDA_ARRAY_DESCRIPTOR shape = {1024, 512ull * granules, CU_AD_FORMAT_FLOAT, 1};
	CUresult result = CUDA_ERROR_UNKNOWN;
	size_t pitch;

	*thing = (struct thing){.bytes = granules * GRANULE};
	switch (kind) {
	case THING_LINEAR: result = cuMemAlloc_v2(&thing->pointer, thing->bytes); break;
	case THING_PITCHED:
		result = cuMemAllocPitch_v2(&thing->pointer, &pitch, 4000, 512ull * granules, 4);
		break;
	case THING_MANAGED:
		result = cuMemAllocManaged(&thing->pointer, thing->bytes, CU_MEM_ATTACH_GLOBAL);
		if (result == CUDA_SUCCESS) /* until then it is on the host */
			result = cuMemPrefetchAsync(thing->pointer, thing->bytes, 0, hands->stream);
		break;
	case THING_ASYNC: result = cuMemAllocAsync(&thing->pointer, thing->bytes, hands->stream); break;
	case THING_POOLED:
		result = cuMemAllocFromPoolAsync(&thing->pointer, thing->bytes, hands->pool, hands->stream);
		break;
	case THING_VMM: result = take_vmm(thing); break;
	case THING_ARRAY: result = cuArrayCreate_v2(&thing->array, &shape); break;
	case THING_GRAPH: result = take_graph(hands, thing); break;
	case THING_POOL: result = take_pool(hands, thing); break;
	case THING_CONTEXT: result = take_context(hands, thing); break;
	case THING_MODULE: result = cuModuleLoadData(&thing->module, "kernel simgpu_module_mib=2"); break;
	default: break;
	}
	thing->kind = result == CUDA_SUCCESS ? kind : THING_NONE;
	return result;
}

CUresult thing_drop(struct hands *hands, struct thing *thing)
{
	struct thing was = *thing;
	CUresult result;

	*thing = (struct thing){.kind = THING_NONE};
	switch (was.kind) {
	case THING_ASYNC:
	case THING_POOLED: return cuMemFreeAsync(was.pointer, hands->stream);
	case THING_VMM:
		result = cuMemUnmap(was.pointer, was.bytes);
		if (result == CUDA_SUCCESS)
			result = cuMemRelease(was.handle);
		return result == CUDA_SUCCESS ? cuMemAddressFree(was.pointer, was.bytes) : result;
	case THING_ARRAY: return cuArrayDestroy(was.array);
	case THING_GRAPH: return cuGraphExecDestroy(was.exec);
	case THING_POOL:
		result = cuMemPoolDestroy(was.pool);
		return result == CUDA_SUCCESS ? cuMemFreeAsync(was.pointer, hands->stream) : result;
	case THING_CONTEXT: return cuCtxDestroy_v2(was.context);
	case THING_MODULE: return cuModuleUnload(was.module);
	case THING_NONE: return CUDA_SUCCESS;
	default: return cuMemFree_v2(was.pointer);
	}
}
