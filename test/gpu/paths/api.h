/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver functions that the paths use, found by dlsym, so that one build runs with every driver
 * and with the simulated one: a function that is not there leaves its path out. With PATHS_LINKED
 * they are linked instead. Prototypes are written out because cuda.h renames functions as it ages. */
#ifndef VGPU_TEST_PATHS_API_H
#define VGPU_TEST_PATHS_API_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#define CUDA_FUNCTIONS(F)                                                                              \
	F(cuInit, (unsigned int flags))                                                                \
	F(cuDeviceGet, (CUdevice *device, int ordinal))                                                \
	F(cuDeviceGetUuid, (CUuuid *uuid, CUdevice device))                                            \
	F(cuDeviceGetAttribute, (int *value, CUdevice_attribute attribute, CUdevice device))           \
	F(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                             \
	F(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                             \
	F(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device))                   \
	F(cuCtxDestroy_v2, (CUcontext context))                                                        \
	F(cuCtxSetCurrent, (CUcontext context))                                                        \
	F(cuCtxSynchronize, (void))                                                                    \
	F(cuCtxSetLimit, (CUlimit limit, size_t value))                                                \
	F(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))                                  \
	F(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes))                                         \
	F(cuMemAllocPitch_v2,                                                                          \
	  (CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element))    \
	F(cuMemAllocManaged, (CUdeviceptr *pointer, size_t bytes, unsigned int flags))                 \
	F(cuMemFree_v2, (CUdeviceptr pointer))                                                         \
	F(cuMemsetD8_v2, (CUdeviceptr pointer, unsigned char value, size_t count))                     \
	F(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                 \
	F(cuMemAllocAsync, (CUdeviceptr *pointer, size_t bytes, CUstream stream))                      \
	F(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream))                                      \
	F(cuMemAllocFromPoolAsync,                                                                     \
	  (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream))                    \
	F(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device))                            \
	F(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *props))                          \
	F(cuMemPoolDestroy, (CUmemoryPool pool))                                                       \
	F(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value))      \
	F(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                                           \
	F(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes,                            \
			const CUmemAllocationProp *prop, unsigned long long flags))                    \
	F(cuMemRelease, (CUmemGenericAllocationHandle handle))                                         \
	F(cuMemAddressReserve, (CUdeviceptr *pointer, size_t bytes, size_t alignment,                  \
				CUdeviceptr wish, unsigned long long flags))                           \
	F(cuMemAddressFree, (CUdeviceptr pointer, size_t bytes))                                       \
	F(cuMemMap, (CUdeviceptr pointer, size_t bytes, size_t offset,                                 \
		     CUmemGenericAllocationHandle handle, unsigned long long flags))                   \
	F(cuMemUnmap, (CUdeviceptr pointer, size_t bytes))                                             \
	F(cuMemSetAccess,                                                                              \
	  (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count))            \
	F(cuMemExportToShareableHandle, (void *shareable, CUmemGenericAllocationHandle handle,         \
					 CUmemAllocationHandleType type, unsigned long long flags))    \
	F(cuMemGetHandleForAddressRange, (void *shareable, CUdeviceptr pointer, size_t bytes,          \
					  CUmemRangeHandleType type, unsigned long long flags))        \
	F(cuMemImportFromShareableHandle,                                                              \
	  (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type))     \
	F(cuIpcGetMemHandle, (CUipcMemHandle *handle, CUdeviceptr pointer))                            \
	F(cuIpcOpenMemHandle_v2, (CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags))    \
	F(cuIpcCloseMemHandle, (CUdeviceptr pointer))                                                  \
	F(cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor))                 \
	F(cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor))             \
	F(cuArrayDestroy, (CUarray array))                                                             \
	F(cuMipmappedArrayCreate, (CUmipmappedArray *array,                                            \
				   const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels))    \
	F(cuMipmappedArrayDestroy, (CUmipmappedArray array))                                           \
	F(cuStreamCreate, (CUstream *stream, unsigned int flags))                                      \
	F(cuStreamSynchronize, (CUstream stream))                                                      \
	F(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                        \
	F(cuStreamEndCapture, (CUstream stream, CUgraph *graph))                                       \
	F(cuGraphCreate, (CUgraph *graph, unsigned int flags))                                         \
	F(cuGraphDestroy, (CUgraph graph))                                                             \
	F(cuGraphAddMemAllocNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after,         \
				   size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params))                  \
	F(cuGraphAddMemFreeNode, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after,          \
				  size_t count, CUdeviceptr pointer))                                  \
	F(cuGraphAddKernelNode_v2, (CUgraphNode *node, CUgraph graph, const CUgraphNode *after,        \
				    size_t count, const CUDA_KERNEL_NODE_PARAMS *params))              \
	F(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags))   \
	F(cuGraphExecDestroy, (CUgraphExec exec))                                                      \
	F(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                          \
	F(cuDeviceGraphMemTrim, (CUdevice device))                                                     \
	F(cuModuleLoadData, (CUmodule *module, const void *image))                                     \
	F(cuModuleUnload, (CUmodule module))                                                           \
	F(cuModuleGetGlobal_v2,                                                                        \
	  (CUdeviceptr *pointer, size_t *bytes, CUmodule module, const char *name))                    \
	F(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))              \
	F(cuLaunchKernelEx,                                                                            \
	  (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))            \
	F(cuLaunchKernel, (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,     \
			   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,     \
			   CUstream stream, void **params, void **extra))

struct cuda_api {
#define MEMBER(name, params) CUresult(CUDAAPI *name) params;
	CUDA_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern struct cuda_api cu;

/* False with a line on stderr when there is no driver. */
bool cuda_load(void);

/* cuInit, device 0, its primary context made current. */
CUresult cuda_begin(CUdevice *device);

#endif
