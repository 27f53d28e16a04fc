/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Questions about streams, and the per-thread forms of drv_stream.c's functions. */
#include "drv.h"

CUresult sim_cuStreamGetFlags(CUstream handle, unsigned int *flags)
{
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (flags == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetPriority(CUstream handle, int *priority)
{
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (priority == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*priority = stream->priority;
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*context = stream->ctx;
	return CUDA_SUCCESS;
}

CUresult sim_cuStreamSynchronize_ptsz(CUstream stream)
{
	return sim_cuStreamSynchronize(drv_ptsz(stream));
}

CUresult sim_cuStreamQuery_ptsz(CUstream stream)
{
	return sim_cuStreamQuery(drv_ptsz(stream));
}

CUresult sim_cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
	return sim_cuStreamWaitEvent(drv_ptsz(stream), event, flags);
}

CUresult sim_cuStreamGetFlags_ptsz(CUstream stream, unsigned int *flags)
{
	return sim_cuStreamGetFlags(drv_ptsz(stream), flags);
}

CUresult sim_cuStreamGetPriority_ptsz(CUstream stream, int *priority)
{
	return sim_cuStreamGetPriority(drv_ptsz(stream), priority);
}

CUresult sim_cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
	return sim_cuStreamGetCtx(drv_ptsz(stream), context);
}

CUresult sim_cuStreamIsCapturing_ptsz(CUstream stream, int *status)
{
	return sim_cuStreamIsCapturing(drv_ptsz(stream), status);
}

CUresult sim_cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return sim_cuEventRecord(event, drv_ptsz(stream));
}

CUresult sim_cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags)
{
	return sim_cuEventRecordWithFlags(event, drv_ptsz(stream), flags);
}
