/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver functions that these programs use, found by dlsym. A function that is not there is NULL, and the
 * call that needs it is left out: the simulated driver has only some of them. */
#ifndef VGPU_TEST_WAITS_API_H
#define VGPU_TEST_WAITS_API_H

#include "api/cuda_types.h"

#define STREAM_NON_BLOCKING 1u

struct graph_update {
	int result;
	CUgraphNode error, error_from;
};

#define DRIVER_FUNCTIONS(F)                                                                                       \
	F(cuInit, (unsigned int flags))                                                                           \
	F(cuDeviceGet, (CUdevice *device, int ordinal))                                                           \
	F(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                                        \
	F(cuDevicePrimaryCtxReset_v2, (CUdevice device))                                                          \
	F(cuCtxCreate_v2, (CUcontext *context, unsigned int flags, CUdevice device))                              \
	F(cuCtxDestroy_v2, (CUcontext context))                                                                   \
	F(cuCtxSetCurrent, (CUcontext context))                                                                   \
	F(cuCtxSynchronize, (void))                                                                               \
	F(cuCtxSetLimit, (int limit, size_t value))                                                               \
	F(cuCtxGetLimit, (size_t *value, int limit))                                                              \
	F(cuStreamCreate, (CUstream *stream, unsigned int flags))                                                 \
	F(cuStreamDestroy_v2, (CUstream stream))                                                                  \
	F(cuStreamSynchronize, (CUstream stream))                                                                 \
	F(cuStreamQuery, (CUstream stream))                                                                       \
	F(cuStreamWaitValue32_v2, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags))     \
	F(cuStreamBeginCapture_v2, (CUstream stream, int mode))                                                   \
	F(cuStreamEndCapture, (CUstream stream, CUgraph *graph))                                                  \
	F(cuStreamAddCallback, (CUstream stream, CUstreamCallback callback, void *data, unsigned int flags))      \
	F(cuEventCreate, (CUevent *event, unsigned int flags))                                                    \
	F(cuEventDestroy_v2, (CUevent event))                                                                     \
	F(cuEventRecord, (CUevent event, CUstream stream))                                                        \
	F(cuEventQuery, (CUevent event))                                                                          \
	F(cuEventSynchronize, (CUevent event))                                                                    \
	F(cuEventElapsedTime, (float *ms, CUevent begin, CUevent end))                                            \
	F(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))                                     \
	F(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes))                                                    \
	F(cuMemAllocManaged, (CUdeviceptr *pointer, size_t bytes, unsigned int flags))                            \
	F(cuMemFree_v2, (CUdeviceptr pointer))                                                                    \
	F(cuMemGetInfo_v2, (size_t *free_bytes, size_t *total_bytes))                                             \
	F(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned int flags))                                     \
	F(cuMemFreeHost, (void *pointer))                                                                         \
	F(cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned int flags))                                \
	F(cuMemHostUnregister, (void *pointer))                                                                   \
	F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *address, void *pointer, unsigned int flags))                \
	F(cuMemAllocAsync, (CUdeviceptr *pointer, size_t bytes, CUstream stream))                                 \
	F(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream))                                                 \
	F(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *props))                                     \
	F(cuMemPoolDestroy, (CUmemoryPool pool))                                                                  \
	F(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep))                                                      \
	F(cuMemAllocFromPoolAsync, (CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream))      \
	F(cuDeviceGetDefaultMemPool, (CUmemoryPool *pool, CUdevice device))                                       \
	F(cuMemCreate, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,      \
			unsigned long long flags))                                                                \
	F(cuMemRelease, (CUmemGenericAllocationHandle handle))                                                    \
	F(cuMemAddressReserve, (CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr wish,           \
				unsigned long long flags))                                                        \
	F(cuMemAddressFree, (CUdeviceptr pointer, size_t bytes))                                                  \
	F(cuMemMap, (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,       \
		     unsigned long long flags))                                                                   \
	F(cuMemUnmap, (CUdeviceptr pointer, size_t bytes))                                                        \
	F(cuMemsetD8_v2, (CUdeviceptr pointer, unsigned char value, size_t count))                                \
	F(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                                      \
	F(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                            \
	F(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                                      \
	F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))                \
	F(cuArrayCreate_v2, (CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor))                            \
	F(cuArray3DCreate_v2, (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor))                        \
	F(cuArrayDestroy, (CUarray array))                                                                        \
	F(cuGraphDestroy, (CUgraph graph))                                                                        \
	F(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags))              \
	F(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, struct graph_update *info))                     \
	F(cuGraphExecDestroy, (CUgraphExec exec))                                                                 \
	F(cuGraphUpload, (CUgraphExec exec, CUstream stream))                                                     \
	F(cuGraphLaunch, (CUgraphExec exec, CUstream stream))                                                     \
	F(cuDeviceGraphMemTrim, (CUdevice device))                                                                \
	F(cuModuleLoadData, (CUmodule *module, const void *image))                                                \
	F(cuModuleUnload, (CUmodule module))                                                                      \
	F(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))                         \
	F(cuLaunchCooperativeKernel,                                                                              \
	  (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, \
	   unsigned int bz, unsigned int shared, CUstream stream, void **params))                                 \
	F(cuLaunchKernel, (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, \
			   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params, \
			   void **extra))

struct driver {
#define MEMBER(name, params) CUresult(*name) params;
	DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
};

extern struct driver cu;

#endif
