/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds LAUNCH, LAUNCH_CONFIG, LAUNCH_SEVERAL, FILL and STREAM_DESTROY: work for the GPU. */
#ifndef VGPU_CUDA_LAUNCH_H
#define VGPU_CUDA_LAUNCH_H

#include "cuda/memory.h"
#include "gate/copies.h"
#include "gate/gate.h"
#include "streams/lease.h"
#include "streams/streams.h"

/* Products that do not wait for each other; of 32 bits each, since what was passed as that many may lie on
 * the stack so, and is not to be read as more. */
static uint64_t shape_of(uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz,
			 uint32_t shared_bytes)
{
	return (gx * 0x9e3779b97f4a7c15ull ^ gy * 0xc2b2ae3d27d4eb4full ^ gz * 0x165667b19e3779f9ull) +
	       (bx * 0x85ebca77c2b2ae63ull ^ by * 0x27d4eb2f165667c5ull ^ bz * 0xd6e8feb86659fd93ull) +
	       shared_bytes * 0xa0761d6478bd642full;
}

#define WRAP_LAUNCH(symbol, params, args, what, shape, stream)            \
	WRAP_LAUNCH_IF(symbol, params, args, true, what, shape, stream)

/* Their entries are in free_launch.S: these are what comes behind them. */
#define WRAP_LAUNCH_IF(symbol, params, args, condition, what, shape, stream)                    \
	GATED(symbol, params, args, condition, vgpu_gate_enter(p, &launch, stream, what, shape, VGPU_PLACES_OTHER)) \
	vgpu_fn_##symbol vgpu_lease_##symbol;                                                   \
	CUresult vgpu_lease_##symbol params                                                     \
	{                                                                                       \
		vgpu_fn_##symbol *const real = __atomic_load_n(&vgpu_real[VGPU_SYMBOL_##symbol], __ATOMIC_ACQUIRE); \
		uint64_t expected_ns;                                                           \
		if (real == NULL || !LEASED(condition, what, shape, stream))                    \
			return vgpu_launch_##symbol args;                                       \
		return leased(real args, expected_ns);                                          \
	}
#define LEASED(condition, what, shape, stream) \
	(vgpu_lease_is_at_hand(stream) && (condition) && vgpu_lease_covers(vgpu_this_process, what, shape, &expected_ns))

static inline CUresult leased(CUresult result, uint64_t expected_ns)
{
	if (result == CUDA_SUCCESS && !vgpu_lease_count_one(expected_ns))
		vgpu_gate_late(vgpu_this_process, expected_ns);
	return result;
}

#define WRAP_GATED(symbol, params, args, condition, enter)                \
	GATED(symbol, params, args, condition, enter)                     \
	WRAP_QUICKLY(symbol, params, args, !vgpu_gate_is_shut(p), vgpu_launch_##symbol)

static inline CUresult left_gate(struct vgpu_process *p, struct vgpu_launch *launch, CUresult result)
{
	vgpu_gate_leave(p, launch, result);
	return result;
}

/* enter: what lets the launch through the gate, if it has to pass it; false refuses it. */
#define GATED(symbol, params, args, condition, enter)                                           \
	vgpu_fn_##symbol vgpu_launch_##symbol;                                                  \
	__attribute__((noinline)) CUresult vgpu_launch_##symbol params                          \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_launch launch;                                                      \
                                                                                                \
		if (p == NULL || !vgpu_gate_is_shut(p) || !(condition))                         \
			return real args;                                                       \
		return (enter) ? left_gate(p, &launch, real args) : VGPU_GATE_REFUSES;          \
	}

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
struct launches {
	struct vgpu_launch each[LAUNCHES_TOGETHER];
	unsigned int entered;
};

/* Whether all of them may go. */
static bool enter_together(struct vgpu_process *p, struct launches *launches, const CUDA_LAUNCH_PARAMS *list,
			   unsigned int count)
{
	bool goes = true;

	vgpu_lease_drop();
	launches->entered = 0;
	for (const CUDA_LAUNCH_PARAMS *one = list; one < list + count && goes; one++)
		goes = vgpu_gate_enter(p, &launches->each[launches->entered++], one->hStream, one->function,
				       shape_of(one->gridDimX, one->gridDimY, one->gridDimZ, one->blockDimX,
						one->blockDimY, one->blockDimZ, one->sharedMemBytes),
				       VGPU_PLACES_OTHER);
	return goes;
}

static CUresult leave_together(struct vgpu_process *p, struct launches *launches, CUresult result)
{
	while (launches->entered > 0)
		vgpu_gate_leave(p, &launches->each[--launches->entered], result);
	return result;
}

#define WRAP_LAUNCH_SEVERAL(symbol, params, args, list, count)                                  \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct launches launches;                                                       \
                                                                                                \
		if (p == NULL || (list) == NULL || (count) > LAUNCHES_TOGETHER || !vgpu_gate_is_shut(p)) \
			return real args;                                                       \
		return leave_together(p, &launches, enter_together(p, &launches, list, count) ? real args : VGPU_GATE_REFUSES); \
	}

/* Filling memory, and copying it within a device (copy.h), keeps the GPU busy like a kernel. */
enum operation { OPERATION_FILL = 1, OPERATION_COPY };

/* No kernel has such an address. It names the size too: an average over all sizes would tell nothing. */
static const void *operation_of(enum operation operation, uint64_t bytes)
{
	return (const void *)(uintptr_t)((uint64_t)operation << 9 | vgpu_size_class(bytes));
}

/* Many short rows take longer than one that is as large. */
#define WRAP_FILL(symbol, params, args, row_bytes, rows, stream)                              \
	WRAP_LAUNCH_IF(symbol, params, args, times(row_bytes, rows) >= LONG_BYTES,            \
		       operation_of(OPERATION_FILL, times(row_bytes, rows)), vgpu_size_class(row_bytes), stream)

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
