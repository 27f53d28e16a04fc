/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One stream-ordered allocation, before and after the driver is called. */
#ifndef VGPU_POOLS_ASYNC_H
#define VGPU_POOLS_ASYNC_H

#include "memory/charge.h"
#include "pools/pools.h"

struct vgpu_async {
	struct vgpu_charge charge; /* of memory whose pool is not known, managed it may be: by the block */
	struct vgpu_growth growth; /* pool is NULL then */
};

/* pool is NULL for the one that the stream's device has now. Anything but CUDA_SUCCESS is the
 * caller's answer. */
CUresult vgpu_async_begin(struct vgpu_async *async, uint64_t bytes, CUmemoryPool pool, CUstream stream);

/* Returns the caller's answer to what the driver has answered. */
CUresult vgpu_async_end(struct vgpu_async *async, CUresult result, CUdeviceptr pointer, CUstream stream);

#endif
