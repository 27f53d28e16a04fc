/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CAPTURE_BEGIN and CAPTURE_END: counted, so that no query is needed when there is none. */
#ifndef VGPU_CUDA_CAPTURE_H
#define VGPU_CUDA_CAPTURE_H

#include "cuda/wrap.h"
#include "driver/capture.h"

static CUresult capture_begun(struct vgpu_process *p, CUresult result)
{
	if (p != NULL && result != CUDA_SUCCESS)
		vgpu_capture_ended(p);
	return result;
}

#define WRAP_CAPTURE_BEGIN(symbol, params, args)                                                \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
                                                                                                \
		if (p != NULL)                                                                  \
			vgpu_capture_begins(p);                                                 \
		return capture_begun(p, real args);                                             \
	}

/* One that was broken ends with that error. Any other error may leave it as it was: counted too
 * often it costs a question, counted too seldom it would break the program. */
static CUresult capture_ended(struct vgpu_process *p, CUresult result, CUstream stream)
{
	if (p != NULL && (result == CUDA_SUCCESS || (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED &&
						     !vgpu_capture_of_stream(stream))))
		vgpu_capture_ended(p);
	return result;
}

#define WRAP_CAPTURE_END(symbol, params, args, stream)                                          \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		return capture_ended(p, real args, stream);                                     \
	}

#endif
