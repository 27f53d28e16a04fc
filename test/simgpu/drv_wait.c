/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What keeps a stream waiting for the host: functions that run there, words that change, semaphores of
 * other interfaces. A stream is a time here, so what is there already takes as long as the configuration
 * says. */
#include "drv_copy.h"

static CUresult hold(CUstream stream)
{
	return drv_hold(stream, sim_conf.host_us * 1000ull);
}

static bool is_captured(CUstream handle)
{
	CUstream stream;

	return drv_stream(handle, &stream) == CUDA_SUCCESS && stream->capture != NULL;
}

/* Runs in this thread, once the stream has come so far. */
static CUresult run_on_host(CUstream stream, CUhostFn function, CUstreamCallback callback, void *data)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (function == NULL && callback == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (is_captured(stream))
		return CUDA_SUCCESS;
	NEED(drv_wait(stream));
	if (function != NULL)
		function(data);
	else
		callback(stream, CUDA_SUCCESS, data);
	return hold(stream);
}

CUresult sim_cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
	return run_on_host(stream, function, NULL, data);
}

CUresult sim_cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data)
{
	return run_on_host(drv_ptsz(stream), function, NULL, data);
}

CUresult sim_cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int how)
{
	return how > 1 ? CUDA_ERROR_INVALID_VALUE : run_on_host(stream, function, NULL, data);
}

CUresult sim_cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *data, unsigned int how)
{
	return sim_cuLaunchHostFunc_v2(drv_ptsz(stream), function, data, how);
}

CUresult sim_cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
	return flags != 0 ? CUDA_ERROR_INVALID_VALUE : run_on_host(stream, NULL, callback, data);
}

CUresult sim_cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data,
				      unsigned int flags)
{
	return sim_cuStreamAddCallback(drv_ptsz(stream), callback, data, flags);
}

/* Waiting for what is there already takes a moment, too. */
static CUresult wait_value(CUstream stream, CUdeviceptr address, uint64_t value, unsigned int width,
			   unsigned int flags)
{
	struct sim_block *block;
	bool readable, there;

	NEED(drv_ready());
	if (sim_conf.no_wait_value)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (address % width != 0 || flags > CU_STREAM_WAIT_VALUE_EQ)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_spans(address, width);
	readable = block != NULL ? block->kind == SIM_HOST || block->kind == SIM_MANAGED
				 : drv_is_registered(address, width);
	there = readable && drv_word_is(address, width, value, flags);
	drv_unlock(CUDA_SUCCESS);
	if (!readable)
		return block == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
	return there ? hold(stream) : drv_deferred_wait(stream, address, width, value, flags);
}

#define WAIT_VALUE(NAME, TYPE)                                                                                   \
	CUresult sim_##NAME(CUstream stream, CUdeviceptr address, TYPE value, unsigned int flags)                \
	{                                                                                                        \
		return wait_value(stream, address, value, sizeof(value), flags);                                 \
	}                                                                                                        \
	CUresult sim_##NAME##_ptsz(CUstream stream, CUdeviceptr address, TYPE value, unsigned int flags)         \
	{                                                                                                        \
		return wait_value(drv_ptsz(stream), address, value, sizeof(value), flags);                       \
	}

WAIT_VALUE(cuStreamWaitValue32, uint32_t)
WAIT_VALUE(cuStreamWaitValue32_v2, uint32_t)
WAIT_VALUE(cuStreamWaitValue64, cuuint64_t)
WAIT_VALUE(cuStreamWaitValue64_v2, cuuint64_t)

CUresult sim_cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,
				unsigned int flags)
{
	NEED(drv_ready());
	if (list == NULL || count == 0 || count > 256 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; i++) {
		bool wide = list[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;

		if (!wide && list[i].operation != CU_STREAM_MEM_OP_WAIT_VALUE_32)
			return CUDA_ERROR_NOT_SUPPORTED;
		NEED(wait_value(stream, list[i].waitValue.address,
				wide ? list[i].waitValue.value64 : list[i].waitValue.value, wide ? 8 : 4,
				list[i].waitValue.flags));
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,
				     unsigned int flags)
{
	return sim_cuStreamBatchMemOp(drv_ptsz(stream), count, list, flags);
}

CUresult sim_cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,
				   unsigned int flags)
{
	return sim_cuStreamBatchMemOp(stream, count, list, flags);
}

CUresult sim_cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *list,
					unsigned int flags)
{
	return sim_cuStreamBatchMemOp(drv_ptsz(stream), count, list, flags);
}

/* Semaphores exist without having been imported, and are there when they are waited for. */
CUresult sim_cuWaitExternalSemaphoresAsync(const CUexternalSemaphore *list,
					   const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *how, unsigned int count,
					   CUstream stream)
{
	NEED(drv_ready());
	return list == NULL || how == NULL || count == 0 ? CUDA_ERROR_INVALID_VALUE : hold(stream);
}

CUresult sim_cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore *list,
						const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *how,
						unsigned int count, CUstream stream)
{
	return sim_cuWaitExternalSemaphoresAsync(list, how, count, drv_ptsz(stream));
}
