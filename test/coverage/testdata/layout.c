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

/* Both ends of a copy, which all of its structs have. */
#define ENDS(type)                                                                                           \
	SIZE(type) AT(type, srcXInBytes) AT(type, srcY) AT(type, srcMemoryType) AT(type, srcHost)            \
	AT(type, srcDevice) AT(type, srcArray) AT(type, srcPitch) AT(type, dstXInBytes) AT(type, dstY)       \
	AT(type, dstMemoryType) AT(type, dstHost) AT(type, dstDevice) AT(type, dstArray) AT(type, dstPitch)  \
	AT(type, WidthInBytes) AT(type, Height)
#define DEEP(type)                                                                                           \
	ENDS(type) AT(type, srcZ) AT(type, srcLOD) AT(type, srcHeight) AT(type, dstZ) AT(type, dstLOD)       \
	AT(type, dstHeight) AT(type, Depth)
#define SHAPE(type) SIZE(type) AT(type, Width) AT(type, Height) AT(type, Format) AT(type, NumChannels)

int main(void)
{
	ENDS(CUDA_MEMCPY2D_v1)
	ENDS(CUDA_MEMCPY2D)
	DEEP(CUDA_MEMCPY3D_v1)
	DEEP(CUDA_MEMCPY3D)
	DEEP(CUDA_MEMCPY3D_PEER)
	AT(CUDA_MEMCPY3D_PEER, srcContext) AT(CUDA_MEMCPY3D_PEER, dstContext)
#if !defined(CUDA_VERSION) || CUDA_VERSION >= 12080
	SIZE(CUmemcpyAttributes) AT(CUmemcpyAttributes, srcLocHint) AT(CUmemcpyAttributes, flags)
	SIZE(CUmemcpy3DOperand) AT(CUmemcpy3DOperand, op.ptr.ptr) AT(CUmemcpy3DOperand, op.ptr.rowLength)
	AT(CUmemcpy3DOperand, op.ptr.layerHeight) AT(CUmemcpy3DOperand, op.array.array)
	AT(CUmemcpy3DOperand, op.array.offset)
	SIZE(CUDA_MEMCPY3D_BATCH_OP) AT(CUDA_MEMCPY3D_BATCH_OP, src) AT(CUDA_MEMCPY3D_BATCH_OP, dst)
	AT(CUDA_MEMCPY3D_BATCH_OP, extent.width) AT(CUDA_MEMCPY3D_BATCH_OP, extent.height)
	AT(CUDA_MEMCPY3D_BATCH_OP, extent.depth) AT(CUDA_MEMCPY3D_BATCH_OP, srcAccessOrder)
	IS(CU_MEMCPY_OPERAND_TYPE_POINTER) IS(CU_MEMCPY_OPERAND_TYPE_ARRAY)
	IS(CU_MEMCPY_SRC_ACCESS_ORDER_STREAM)
#endif
	IS(CU_MEMORYTYPE_HOST) IS(CU_MEMORYTYPE_DEVICE) IS(CU_MEMORYTYPE_ARRAY) IS(CU_MEMORYTYPE_UNIFIED)
	IS(CU_POINTER_ATTRIBUTE_MEMORY_TYPE) IS(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
	SIZE(CUstreamBatchMemOpParams) AT(CUstreamBatchMemOpParams, waitValue.address)
	AT(CUstreamBatchMemOpParams, waitValue.value64) AT(CUstreamBatchMemOpParams, waitValue.flags)
	IS(CU_STREAM_MEM_OP_WAIT_VALUE_32) IS(CU_STREAM_MEM_OP_WAIT_VALUE_64)
	IS(CU_STREAM_WAIT_VALUE_GEQ) IS(CU_STREAM_WAIT_VALUE_EQ)

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
	IS(CU_EVENT_DISABLE_TIMING) IS(CU_STREAM_CAPTURE_MODE_RELAXED)
	IS(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) IS(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
	IS(CU_LIMIT_STACK_SIZE) IS(CU_LIMIT_PRINTF_FIFO_SIZE) IS(CU_LIMIT_MALLOC_HEAP_SIZE)
	IS(CU_GRAPH_NODE_TYPE_GRAPH) IS(CU_GRAPH_NODE_TYPE_MEM_ALLOC)
	return 0;
}
