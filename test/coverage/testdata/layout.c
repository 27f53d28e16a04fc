/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Says how large the driver's types are, where their fields lie and what its constants are: compiled once
 * behind interposer/api/cuda_types.h and once behind a cuda.h, which must say the same. */
#include <stdio.h>
#include <stddef.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type));
#define AT(type, field) printf(#type "." #field " %zu\n", offsetof(type, field));
#define IS(constant) printf(#constant " %lld\n", (long long)(constant));

#define SHAPE(type) SIZE(type) AT(type, Width) AT(type, Height) AT(type, Format) AT(type, NumChannels)

int main(void)
{
	SHAPE(CUDA_ARRAY_DESCRIPTOR_v1)
	SHAPE(CUDA_ARRAY_DESCRIPTOR)
	SHAPE(CUDA_ARRAY3D_DESCRIPTOR_v1)
	SHAPE(CUDA_ARRAY3D_DESCRIPTOR)
	AT(CUDA_ARRAY3D_DESCRIPTOR_v1, Depth) AT(CUDA_ARRAY3D_DESCRIPTOR_v1, Flags)
	AT(CUDA_ARRAY3D_DESCRIPTOR, Depth) AT(CUDA_ARRAY3D_DESCRIPTOR, Flags)
	SIZE(CUarrayMapInfo) AT(CUarrayMapInfo, resource) AT(CUarrayMapInfo, subresource)
	AT(CUarrayMapInfo, memOperationType)
	AT(CUarrayMapInfo, memHandle) AT(CUarrayMapInfo, offset) AT(CUarrayMapInfo, deviceBitMask)
	SIZE(CUlaunchConfig) AT(CUlaunchConfig, sharedMemBytes) AT(CUlaunchConfig, hStream)
	AT(CUlaunchConfig, attrs)
	SIZE(CUDA_LAUNCH_PARAMS) AT(CUDA_LAUNCH_PARAMS, sharedMemBytes) AT(CUDA_LAUNCH_PARAMS, hStream)
	SIZE(CUmemAllocationProp) AT(CUmemAllocationProp, requestedHandleTypes)
	AT(CUmemAllocationProp, location)
	SIZE(CUmemPoolProps) AT(CUmemPoolProps, location) AT(CUmemPoolProps, maxSize)
	SIZE(CUDA_MEM_ALLOC_NODE_PARAMS) AT(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize)
	AT(CUDA_MEM_ALLOC_NODE_PARAMS, dptr)
	SIZE(CUDA_GRAPH_INSTANTIATE_PARAMS) AT(CUDA_GRAPH_INSTANTIATE_PARAMS, hUploadStream)
	SIZE(CUmulticastObjectProp) AT(CUmulticastObjectProp, size)
	SIZE(CUipcMemHandle)
	SIZE(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) AT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle)
	AT(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size)
	IS(CU_STREAM_CAPTURE_MODE_RELAXED)
	IS(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) IS(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
	IS(CU_LIMIT_STACK_SIZE) IS(CU_LIMIT_PRINTF_FIFO_SIZE) IS(CU_LIMIT_MALLOC_HEAP_SIZE)
	IS(CU_GRAPH_NODE_TYPE_GRAPH) IS(CU_GRAPH_NODE_TYPE_MEM_ALLOC)
	return 0;
}
