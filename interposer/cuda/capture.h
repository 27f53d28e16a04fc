/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CAPTURE_BEGIN and CAPTURE_END: counted, so that nobody has to ask when there is none. */
#ifndef VGPU_CUDA_CAPTURE_H
#define VGPU_CUDA_CAPTURE_H

#include "cuda/wrap.h"
#include "driver/capture.h"

#define WRAP_CAPTURE_BEGIN(symbol, params, args)                    \
	WRAP(symbol, params)                                        \
	{                                                           \
		REAL_OR_RETURN(symbol);                             \
		struct vgpu_process *p = attached();                \
		CUresult result;                                    \
                                                                    \
		if (p != NULL)                                      \
			vgpu_capture_begins(p);                     \
		result = real args;                                 \
		if (p != NULL && result != CUDA_SUCCESS)            \
			vgpu_capture_ended(p);                      \
		return result;                                      \
	}

/* One that was broken ends with that error. Any other error may leave it as it was: counted too
 * often it costs a question, counted too seldom it would break the program. */
#define WRAP_CAPTURE_END(symbol, params, args, stream)                                        \
	WRAP(symbol, params)                                                                  \
	{                                                                                     \
		REAL_OR_RETURN(symbol);                                                       \
		struct vgpu_process *p = attached();                                          \
		CUresult result = real args;                                                  \
                                                                                              \
		if (p != NULL && (result == CUDA_SUCCESS ||                                   \
				  (result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED &&         \
				   !vgpu_capture_of_stream(stream))))                         \
			vgpu_capture_ended(p);                                                \
		return result;                                                                \
	}

#endif
