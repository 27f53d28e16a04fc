/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The many names of copying and filling. */
#include "drv_copy.h"

#define DEV(pointer) ((CUdeviceptr)(pointer))
#define HOST(pointer) ((CUdeviceptr)(uintptr_t)(pointer))

/* NAME in its 32-bit form, its present one and the per-thread one, and the asynchronous two. */
#define COPY(NAME, TO, TO_V1, TO_CAST, TO_DEVICE, FROM, FROM_V1, FROM_CAST, FROM_DEVICE)           \
	CUresult sim_##NAME(TO_V1 to, FROM_V1 from, unsigned int bytes)                            \
	{                                                                                          \
		return drv_copy(TO_CAST(to), FROM_CAST(from), bytes, TO_DEVICE, FROM_DEVICE, NULL, \
				true);                                                             \
	}                                                                                          \
	CUresult sim_##NAME##_v2(TO to, FROM from, size_t bytes)                                   \
	{                                                                                          \
		return drv_copy(TO_CAST(to), FROM_CAST(from), bytes, TO_DEVICE, FROM_DEVICE, NULL, \
				true);                                                             \
	}                                                                                          \
	CUresult sim_##NAME##_v2_ptds(TO to, FROM from, size_t bytes)                              \
	{                                                                                          \
		return drv_copy(TO_CAST(to), FROM_CAST(from), bytes, TO_DEVICE, FROM_DEVICE,       \
				CU_STREAM_PER_THREAD, true);                                       \
	}                                                                                          \
	CUresult sim_##NAME##Async_v2(TO to, FROM from, size_t bytes, CUstream stream)             \
	{                                                                                          \
		return drv_copy(TO_CAST(to), FROM_CAST(from), bytes, TO_DEVICE, FROM_DEVICE,       \
				stream, false);                                                    \
	}                                                                                          \
	CUresult sim_##NAME##Async_v2_ptsz(TO to, FROM from, size_t bytes, CUstream stream)        \
	{                                                                                          \
		return drv_copy(TO_CAST(to), FROM_CAST(from), bytes, TO_DEVICE, FROM_DEVICE,       \
				drv_ptsz(stream), false);                                          \
	}

COPY(cuMemcpyHtoD, CUdeviceptr, CUdeviceptr_v1, DEV, true, const void *, const void *, HOST, false)
COPY(cuMemcpyDtoH, void *, void *, HOST, false, CUdeviceptr, CUdeviceptr_v1, DEV, true)
COPY(cuMemcpyDtoD, CUdeviceptr, CUdeviceptr_v1, DEV, true, CUdeviceptr, CUdeviceptr_v1, DEV, true)

CUresult sim_cuMemcpyDtoDAsync(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream)
{
	return sim_cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}

CUresult sim_cuMemcpyHtoDAsync(CUdeviceptr_v1 to, const void *from, unsigned int bytes, CUstream stream)
{
	return sim_cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}

CUresult sim_cuMemcpyDtoHAsync(void *to, CUdeviceptr_v1 from, unsigned int bytes, CUstream stream)
{
	return sim_cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}

CUresult sim_cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return drv_copy(to, from, bytes, false, false, NULL, true);
}

CUresult sim_cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
	return drv_copy(to, from, bytes, false, false, CU_STREAM_PER_THREAD, true);
}

CUresult sim_cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return drv_copy(to, from, bytes, false, false, stream, false);
}

CUresult sim_cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	return drv_copy(to, from, bytes, false, false, drv_ptsz(stream), false);
}

#define FILL(NAME, TYPE)                                                                          \
	CUresult sim_##NAME(CUdeviceptr_v1 to, TYPE value, unsigned int count)                    \
	{                                                                                         \
		return drv_fill(to, &value, sizeof(value), count, NULL);                          \
	}                                                                                         \
	CUresult sim_##NAME##_v2(CUdeviceptr to, TYPE value, size_t count)                        \
	{                                                                                         \
		return drv_fill(to, &value, sizeof(value), count, NULL);                          \
	}                                                                                         \
	CUresult sim_##NAME##_v2_ptds(CUdeviceptr to, TYPE value, size_t count)                   \
	{                                                                                         \
		return drv_fill(to, &value, sizeof(value), count, CU_STREAM_PER_THREAD);          \
	}                                                                                         \
	CUresult sim_##NAME##Async(CUdeviceptr to, TYPE value, size_t count, CUstream stream)     \
	{                                                                                         \
		return drv_fill(to, &value, sizeof(value), count, stream);                        \
	}                                                                                         \
	CUresult sim_##NAME##Async_ptsz(CUdeviceptr to, TYPE value, size_t count, CUstream stream) \
	{                                                                                         \
		return drv_fill(to, &value, sizeof(value), count, drv_ptsz(stream));              \
	}

FILL(cuMemsetD8, unsigned char)
FILL(cuMemsetD16, unsigned short)
FILL(cuMemsetD32, unsigned int)

#define FILL_ROWS(NAME, TYPE)                                                                             \
	CUresult sim_##NAME(CUdeviceptr_v1 to, unsigned int pitch, TYPE value, unsigned int width,        \
			    unsigned int height)                                                          \
	{                                                                                                 \
		return drv_fill_rows(to, pitch, &value, sizeof(value), width, height, NULL);              \
	}                                                                                                 \
	CUresult sim_##NAME##_v2(CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height)   \
	{                                                                                                 \
		return drv_fill_rows(to, pitch, &value, sizeof(value), width, height, NULL);              \
	}                                                                                                 \
	CUresult sim_##NAME##_v2_ptds(CUdeviceptr to, size_t pitch, TYPE value, size_t width,             \
				      size_t height)                                                      \
	{                                                                                                 \
		return drv_fill_rows(to, pitch, &value, sizeof(value), width, height, CU_STREAM_PER_THREAD); \
	}                                                                                                 \
	CUresult sim_##NAME##Async(CUdeviceptr to, size_t pitch, TYPE value, size_t width, size_t height, \
				   CUstream stream)                                                       \
	{                                                                                                 \
		return drv_fill_rows(to, pitch, &value, sizeof(value), width, height, stream);            \
	}                                                                                                 \
	CUresult sim_##NAME##Async_ptsz(CUdeviceptr to, size_t pitch, TYPE value, size_t width,           \
					size_t height, CUstream stream)                                   \
	{                                                                                                 \
		return drv_fill_rows(to, pitch, &value, sizeof(value), width, height, drv_ptsz(stream));  \
	}

FILL_ROWS(cuMemsetD2D8, unsigned char)
FILL_ROWS(cuMemsetD2D16, unsigned short)
FILL_ROWS(cuMemsetD2D32, unsigned int)
