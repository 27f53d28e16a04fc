/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver functions that a load uses, found by dlsym; the simulated driver has them all. */
#ifndef VGPU_TEST_DRIVER_H
#define VGPU_TEST_DRIVER_H

#include "api/cuda_types.h"

#define MOST_STREAMS 16
#define STREAM_NON_BLOCKING 1u
#define EVENT_DISABLE_TIMING 2u

#define DRIVER_FUNCTIONS(F)                                                                            \
	F(cuInit, (unsigned int flags))                                                                \
	F(cuDeviceGet, (CUdevice *device, int ordinal))                                                \
	F(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device))                             \
	F(cuCtxSetCurrent, (CUcontext context))                                                        \
	F(cuStreamCreate, (CUstream *stream, unsigned int flags))                                      \
	F(cuStreamSynchronize, (CUstream stream))                                                      \
	F(cuEventCreate, (CUevent *event, unsigned int flags))                                         \
	F(cuEventRecord, (CUevent event, CUstream stream))                                             \
	F(cuEventSynchronize, (CUevent event))                                                         \
	F(cuMemHostAlloc, (void **pointer, size_t bytes, unsigned int flags))                          \
	F(cuMemAlloc_v2, (CUdeviceptr *pointer, size_t bytes))                                         \
	F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))     \
	F(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))     \
	F(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream))                            \
	F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags))                     \
	F(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))                          \
	F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream))       \
	F(cuModuleLoadData, (CUmodule *module, const void *image))                                     \
	F(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name))              \
	F(cuLaunchKernel, (CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,     \
			   unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,     \
			   CUstream stream, void **params, void **extra))

struct driver {
#define MEMBER(name, params) CUresult(*name) params;
	DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
	/* Of CUDA 13; NULL before. */
	CUresult (*cuMemcpyBatchAsync_v2)(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
					  CUmemcpyAttributes *attributes, size_t *from_entry, size_t kinds,
					  CUstream stream);
};

extern struct driver cu;

/* Device 0's primary context, and the kernel (../spin.h). */
int driver_begin(CUcontext *context, CUfunction *spin);

#endif
