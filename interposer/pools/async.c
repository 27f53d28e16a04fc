/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "pools/async.h"

#include "account/attach.h"
#include "api/symbols.h"
#include "base/arithmetic.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "memory/blocks.h"
#include "pools/table.h"
#include "process/message.h"
#include "tuning.h"

static inline struct vgpu_pool *pool_of_stream(struct vgpu_process *p, CUstream stream)
{
	CUdevice ordinal = 0;

	/* Where there is one device only, the driver need not be asked which it is. */
	if (vgpu_device_several(p) && !vgpu_device_of_stream(p, stream, &ordinal))
		return NULL;
	return vgpu_pools_chosen(p, ordinal);
}

CUresult vgpu_async_begin(struct vgpu_async *async, uint64_t bytes, CUmemoryPool handle, CUstream stream)
{
	struct vgpu_process *p = vgpu_attach();
	struct vgpu_pool *pool;

	async->growth.pool = NULL;
	if (vgpu_stage(p) != VGPU_ATTACHED)
		return vgpu_charge_none(&async->charge);
	async->charge.process = p;
	/* Where the driver does not want to say whether it is captured, it will not allocate either. */
	if (vgpu_capture_possible(p) && vgpu_capture_of_stream(stream)) {
		async->charge.process = NULL;
		return CUDA_SUCCESS;
	}
	pool = handle != NULL ? vgpu_pools_find(p, handle) : pool_of_stream(p, stream);
	if (pool == NULL)
		return vgpu_charge_current(&async->charge, bytes);
	if (pool->device == VGPU_NOT_GRANTED) {
		vgpu_message_not_granted(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (pool->device < 0)
		async->charge.process = NULL;
	else if (!vgpu_pools_begin(p, &async->growth, pool, vgpu_round_up(bytes, VGPU_POOL_CHUNK_BYTES),
				   stream)) {
		if (vgpu_device_of_current(p) == VGPU_NO_DEVICE) {
			async->charge.process = NULL;
			return CUDA_SUCCESS; /* there is no context: the driver will say so itself */
		}
		vgpu_message_limit(p, (uint32_t)pool->device, bytes);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Freed in the order of its own stream, so that nothing is waited for. */
static CUresult undo(struct vgpu_process *p, struct vgpu_pool *pool, CUdeviceptr pointer, CUstream stream)
{
	vgpu_fn_cuMemFreeAsync *give = VGPU_REAL(cuMemFreeAsync);

	if (give != NULL)
		give(pointer, stream);
	vgpu_pools_reclaim(p, pool->device);
	vgpu_pools_force(p, pool);
	vgpu_message_limit(p, (uint32_t)pool->device, VGPU_POOL_CHUNK_BYTES);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgpu_async_end(struct vgpu_async *async, CUresult result, CUdeviceptr pointer, CUstream stream)
{
	struct vgpu_process *p = async->charge.process;
	struct vgpu_pool *pool = async->growth.pool;

	if (p == NULL)
		return result;
	if (pool == NULL) {
		if (result != CUDA_SUCCESS)
			vgpu_charge_cancel(&async->charge);
		else if (async->charge.device >= 0)
			vgpu_blocks_put(p, pointer, (uint32_t)async->charge.device, async->charge.bytes, NULL,
					VGPU_BLOCK_MANAGED);
		return result;
	}
	if (!vgpu_pools_end(p, &async->growth)) {
		if (result == CUDA_SUCCESS)
			return undo(p, pool, pointer, stream);
		vgpu_pools_force(p, pool);
	}
	if (result == CUDA_SUCCESS && pool->own)
		vgpu_pools_block(p, pool, pointer);
	return result;
}
