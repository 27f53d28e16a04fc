/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds LAUNCH, LAUNCH_CONFIG, LAUNCH_SEVERAL, FILL, COPY and STREAM_DESTROY: work for the GPU. */
#ifndef VGPU_WRAP_LAUNCH_H
#define VGPU_WRAP_LAUNCH_H

#include "gate.h"
#include "streams.h"
#include "wrap_memory.h"

static uint64_t shape_of(uint64_t gx, uint64_t gy, uint64_t gz, uint64_t bx, uint64_t by, uint64_t bz, uint64_t shared_bytes)
{
	return ((gx * 0x9e3779b1u + gy) * 0x85ebca6bu + gz) * 0xc2b2ae35u ^ (bx << 42 ^ by << 32 ^ bz << 24 ^ shared_bytes);
}

#define WRAP_LAUNCH(symbol, params, args, what, shape, stream)            \
	WRAP_LAUNCH_IF(symbol, params, args, true, what, shape, stream, )

/* otherwise: what is to be done when it is not such work. */
#define WRAP_LAUNCH_IF(symbol, params, args, condition, what, shape, stream, otherwise) \
	static __attribute__((noinline)) CUresult launch_##symbol params  \
	{                                                                 \
		REAL_OR_RETURN(symbol);                                   \
		struct vgpu_process *p = attached();                      \
		struct vgpu_launch launch;                                \
		CUresult result;                                          \
                                                                          \
		if (p == NULL || !vgpu_gate_is_shut(p))                   \
			return real args;                                 \
		if (!(condition)) {                                       \
			otherwise;                                        \
			return real args;                                 \
		}                                                         \
		vgpu_gate_enter(p, &launch, stream, what, shape);         \
		result = real args;                                       \
		vgpu_gate_leave(p, &launch, result);                      \
		return result;                                            \
	}                                                                 \
	WRAP_QUICKLY(symbol, params, args, !vgpu_gate_is_shut(p), launch_##symbol)

/* Nobody looks into a NULL configuration but the driver. */
static const CUlaunchConfig no_config;
#define WRAP_LAUNCH_CONFIG(symbol, params, args, what, config, stream)                                        \
	WRAP_LAUNCH(symbol, params, args, what,                                                               \
		    shape_of(CONFIG(config)->gridDimX, CONFIG(config)->gridDimY, CONFIG(config)->gridDimZ,    \
			     CONFIG(config)->blockDimX, CONFIG(config)->blockDimY, CONFIG(config)->blockDimZ, \
			     CONFIG(config)->sharedMemBytes), stream)
#define CONFIG(config) ((config) != NULL ? (config) : &no_config)

/* One kernel on several devices, which wait for each other: let through together. */
#define LAUNCHES_TOGETHER 16u
#define WRAP_LAUNCH_SEVERAL(symbol, params, args, list, count)                                            \
	WRAP(symbol, params)                                                                              \
	{                                                                                                 \
		REAL_OR_RETURN(symbol);                                                                   \
		struct vgpu_process *p = attached();                                                      \
		struct vgpu_launch launch[LAUNCHES_TOGETHER];                                             \
		CUresult result;                                                                          \
                                                                                                          \
		if (p == NULL || (list) == NULL || (count) > LAUNCHES_TOGETHER || !vgpu_gate_is_shut(p))  \
			return real args;                                                                 \
		for (unsigned int i = 0; i < (count); i++)                                                \
			vgpu_gate_enter(p, &launch[i], (list)[i].hStream, (list)[i].function,             \
					shape_of((list)[i].gridDimX, (list)[i].gridDimY, (list)[i].gridDimZ, \
						 (list)[i].blockDimX, (list)[i].blockDimY, (list)[i].blockDimZ, \
						 (list)[i].sharedMemBytes));                              \
		result = real args;                                                                       \
		for (unsigned int i = 0; i < (count); i++)                                                \
			vgpu_gate_leave(p, &launch[i], result);                                           \
		return result;                                                                            \
	}

/* Filling memory, and copying it within a device, keeps the GPU busy like a kernel. Copies from and to the
 * host do not: other engines make them. Shorter ones than this are over sooner than they could be timed. */
#define LONG_BYTES (1u << 20)

enum operation { OPERATION_FILL = 1, OPERATION_COPY };

/* Sizes that differ by less than an eighth take as long, nearly. */
static uint64_t size_class(uint64_t bytes)
{
	uint32_t bits = bytes < 8 ? 3 : 63u - (uint32_t)__builtin_clzll(bytes);

	return bits << 3 | (bytes >> (bits - 3) & 7);
}

/* No kernel has such an address. It names the size too: an average over all sizes would tell nothing. */
static const void *operation_of(enum operation operation, uint64_t bytes)
{
	return (const void *)(uintptr_t)((uint64_t)operation << 9 | size_class(bytes));
}

/* Whether both lie on the same device. */
static bool within_device(CUdeviceptr to, CUdeviceptr from)
{
	vgpu_fn_cuPointerGetAttribute *ask = VGPU_REAL(cuPointerGetAttribute);
	unsigned int type[2] = {0};
	int ordinal[2] = {-1, -2};

	if (ask == NULL)
		return false;
	for (int i = 0; i < 2; i++) {
		CUdeviceptr pointer = i == 0 ? to : from;

		if (ask(&type[i], CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) != CUDA_SUCCESS ||
		    ask(&ordinal[i], CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer) != CUDA_SUCCESS)
			return false;
	}
	return type[0] == CU_MEMORYTYPE_DEVICE && type[1] == CU_MEMORYTYPE_DEVICE && ordinal[0] == ordinal[1];
}

/* Many short rows take longer than one that is as large. */
#define WRAP_FILL(symbol, params, args, row_bytes, rows, stream)                              \
	WRAP_LAUNCH_IF(symbol, params, args, times(row_bytes, rows) >= LONG_BYTES,            \
		       operation_of(OPERATION_FILL, times(row_bytes, rows)), size_class(row_bytes), stream, )

#define WRAP_COPY(symbol, params, args, bytes, within, stream)                                \
	WRAP_LAUNCH_IF(symbol, params, args, (bytes) >= LONG_BYTES && (within),               \
		       operation_of(OPERATION_COPY, bytes), 0, stream, if ((bytes) >= LONG_BYTES) vgpu_gate_beside(p, stream))

/* What keeps a stream waiting and not the GPU busy. It is said before: the next launch comes behind it. */
#define WRAP_BESIDE(symbol, params, args, stream, bytes)                                      \
	static __attribute__((noinline)) CUresult launch_##symbol params                      \
	{                                                                                     \
		REAL_OR_RETURN(symbol);                                                       \
		struct vgpu_process *p = attached();                                          \
                                                                                              \
		if (p != NULL && vgpu_gate_is_shut(p) && (bytes) >= LONG_BYTES)               \
			vgpu_gate_beside(p, stream);                                          \
		return real args;                                                             \
	}                                                                                     \
	WRAP_QUICKLY(symbol, params, args, !vgpu_gate_is_shut(p), launch_##symbol)

#define WRAP_STREAM_DESTROY(symbol, params, args, stream)                 \
	WRAP(symbol, params)                                              \
	{                                                                 \
		REAL_OR_RETURN(symbol);                                   \
		struct vgpu_process *p = attached();                      \
                                                                          \
		if (p != NULL)                                            \
			vgpu_streams_gone(p, stream);                     \
		return real args;                                         \
	}

#endif
