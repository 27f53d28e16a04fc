/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Streams that wait for a word of the host's memory. */
#include "drv.h"

CUresult sim_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
	struct sim_block *block;
	bool readable, there;

	NEED(drv_ready());
	if (address % sizeof(value) != 0 || flags > CU_STREAM_WAIT_VALUE_EQ)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_spans(address, sizeof(value));
	readable = block != NULL && (block->kind == SIM_HOST || block->kind == SIM_MANAGED);
	there = readable && drv_word_is(address, value, flags);
	drv_unlock(CUDA_SUCCESS);
	if (!readable)
		return block == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	return there ? CUDA_SUCCESS : drv_deferred_wait(stream, address, value, flags);
}

CUresult sim_cuStreamWaitValue32(CUstream stream, CUdeviceptr address, uint32_t value, unsigned int flags)
{
	return sim_cuStreamWaitValue32_v2(stream, address, value, flags);
}
