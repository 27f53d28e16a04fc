/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies of rectangles and boxes, of arrays, between contexts, and lists of copies. */
#include "drv_copy.h"

/* What holds for all structs, whose fields have the same names. */
#define PITCH(c, side) ((c)->side##Pitch != 0 ? (c)->side##Pitch : (c)->WidthInBytes)
#define AT(c, side, y)                                                                                       \
	((c)->side##MemoryType == CU_MEMORYTYPE_HOST                                                         \
		 ? (CUdeviceptr)(uintptr_t)(c)->side##Host + (y) * PITCH(c, side) + (c)->side##XInBytes      \
		 : (c)->side##Device + (y) * PITCH(c, side) + (c)->side##XInBytes)
#define END(c, side, y, rows)                                                                                \
	((struct drv_end){(c)->side##MemoryType, AT(c, side, (CUdeviceptr)(y)), (c)->side##Array, PITCH(c, side), rows})

static bool is_type(unsigned type)
{
	return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
}

#define COPY_2D(c, stream, wait)                                                                             \
	do {                                                                                                 \
		struct drv_end to, from;                                                                     \
                                                                                                             \
		NEED(drv_ready());                                                                           \
		if ((c) == NULL || !is_type((c)->dstMemoryType) || !is_type((c)->srcMemoryType))             \
			return CUDA_ERROR_INVALID_VALUE;                                                     \
		to = END(c, dst, (c)->dstY, (c)->Height);                                                    \
		from = END(c, src, (c)->srcY, (c)->Height);                                                  \
		return drv_copy_box(&to, &from, &(struct drv_box){(c)->WidthInBytes, (c)->Height, 1}, stream, wait); \
	} while (0)

#define SLICE(c, side) ((c)->side##Height != 0 ? (c)->side##Height : (c)->Height)
#define COPY_3D(c, stream, wait)                                                                             \
	do {                                                                                                 \
		struct drv_end to, from;                                                                     \
                                                                                                             \
		NEED(drv_ready());                                                                           \
		if ((c) == NULL || !is_type((c)->dstMemoryType) || !is_type((c)->srcMemoryType) ||           \
		    (c)->srcLOD != 0 || (c)->dstLOD != 0)                                                    \
			return CUDA_ERROR_INVALID_VALUE;                                                     \
		to = END(c, dst, (c)->dstZ * SLICE(c, dst) + (c)->dstY, SLICE(c, dst));                      \
		from = END(c, src, (c)->srcZ * SLICE(c, src) + (c)->srcY, SLICE(c, src));                    \
		return drv_copy_box(&to, &from, &(struct drv_box){(c)->WidthInBytes, (c)->Height, (c)->Depth}, \
				    stream, wait);                                                           \
	} while (0)

/* NAME in its 32-bit form, its present one and the per-thread one. */
#define WAITING(NAME, STRUCT, COPY)                                     \
	CUresult sim_##NAME(const STRUCT##_v1 *copy)                    \
	{                                                               \
		COPY(copy, NULL, true);                                 \
	}                                                               \
	CUresult sim_##NAME##_v2(const STRUCT *copy)                    \
	{                                                               \
		COPY(copy, NULL, true);                                 \
	}                                                               \
	CUresult sim_##NAME##_v2_ptds(const STRUCT *copy)               \
	{                                                               \
		COPY(copy, CU_STREAM_PER_THREAD, true);                 \
	}
#define IN_STREAM(NAME, STRUCT, COPY)                                    \
	CUresult sim_##NAME(const STRUCT##_v1 *copy, CUstream stream)   \
	{                                                               \
		COPY(copy, stream, false);                              \
	}                                                               \
	CUresult sim_##NAME##_v2(const STRUCT *copy, CUstream stream)   \
	{                                                               \
		COPY(copy, stream, false);                              \
	}                                                               \
	CUresult sim_##NAME##_v2_ptsz(const STRUCT *copy, CUstream stream) \
	{                                                               \
		COPY(copy, drv_ptsz(stream), false);                    \
	}

WAITING(cuMemcpy2D, CUDA_MEMCPY2D, COPY_2D)
WAITING(cuMemcpy2DUnaligned, CUDA_MEMCPY2D, COPY_2D)
IN_STREAM(cuMemcpy2DAsync, CUDA_MEMCPY2D, COPY_2D)
WAITING(cuMemcpy3D, CUDA_MEMCPY3D, COPY_3D)
IN_STREAM(cuMemcpy3DAsync, CUDA_MEMCPY3D, COPY_3D)

CUresult sim_cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *copy)
{
	COPY_3D(copy, NULL, true);
}

CUresult sim_cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER *copy)
{
	COPY_3D(copy, CU_STREAM_PER_THREAD, true);
}

CUresult sim_cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
	COPY_3D(copy, stream, false);
}

CUresult sim_cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER *copy, CUstream stream)
{
	COPY_3D(copy, drv_ptsz(stream), false);
}

static CUresult between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			size_t bytes, CUstream stream, bool wait)
{
	NEED(drv_ready());
	drv_lock();
	NEED(drv_unlock(drv_context(to_context)));
	drv_lock();
	NEED(drv_unlock(drv_context(from_context)));
	return drv_copy(to, from, bytes, true, true, stream, wait);
}

CUresult sim_cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			  size_t bytes)
{
	return between(to, to_context, from, from_context, bytes, NULL, true);
}

CUresult sim_cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			       size_t bytes)
{
	return between(to, to_context, from, from_context, bytes, CU_STREAM_PER_THREAD, true);
}

CUresult sim_cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
			       size_t bytes, CUstream stream)
{
	return between(to, to_context, from, from_context, bytes, stream, false);
}

CUresult sim_cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
				    CUcontext from_context, size_t bytes, CUstream stream)
{
	return between(to, to_context, from, from_context, bytes, drv_ptsz(stream), false);
}

/* ---- arrays ---- */

static struct drv_end array_end(CUarray array)
{
	return (struct drv_end){.type = CU_MEMORYTYPE_ARRAY, .array = array};
}

static struct drv_end device_end(CUdeviceptr pointer)
{
	return (struct drv_end){.type = CU_MEMORYTYPE_DEVICE, .at = pointer};
}

static struct drv_end host_end(const void *pointer)
{
	return (struct drv_end){.type = CU_MEMORYTYPE_HOST, .at = (CUdeviceptr)(uintptr_t)pointer};
}

static CUresult line(struct drv_end to, struct drv_end from, uint64_t bytes, CUstream stream, bool wait)
{
	NEED(drv_ready());
	return drv_copy_box(&to, &from, &(struct drv_box){bytes, 1, 1}, stream, wait);
}

#define OFFSETS (void)to_offset, (void)from_offset
#define ARRAY_TO_ARRAY(NAME, SIZE, STREAM)                                                                     \
	CUresult sim_##NAME(CUarray to, SIZE to_offset, CUarray from, SIZE from_offset, SIZE bytes)            \
	{                                                                                                      \
		OFFSETS;                                                                                       \
		return line(array_end(to), array_end(from), bytes, STREAM, true);                              \
	}
#define ARRAY_TO_DEVICE(NAME, POINTER, SIZE, STREAM)                                                           \
	CUresult sim_##NAME(POINTER to, CUarray from, SIZE from_offset, SIZE bytes)                            \
	{                                                                                                      \
		(void)from_offset;                                                                             \
		return line(device_end(to), array_end(from), bytes, STREAM, true);                             \
	}
#define DEVICE_TO_ARRAY(NAME, POINTER, SIZE, STREAM)                                                           \
	CUresult sim_##NAME(CUarray to, SIZE to_offset, POINTER from, SIZE bytes)                              \
	{                                                                                                      \
		(void)to_offset;                                                                               \
		return line(array_end(to), device_end(from), bytes, STREAM, true);                             \
	}
#define HOST_TO_ARRAY(NAME, SIZE, STREAM)                                                                      \
	CUresult sim_##NAME(CUarray to, SIZE to_offset, const void *from, SIZE bytes, CUstream stream)         \
	{                                                                                                      \
		(void)to_offset;                                                                               \
		return line(array_end(to), host_end(from), bytes, STREAM, false);                              \
	}
#define ARRAY_TO_HOST(NAME, SIZE, STREAM)                                                                      \
	CUresult sim_##NAME(void *to, CUarray from, SIZE from_offset, SIZE bytes, CUstream stream)             \
	{                                                                                                      \
		(void)from_offset;                                                                             \
		return line(host_end(to), array_end(from), bytes, STREAM, false);                              \
	}

ARRAY_TO_ARRAY(cuMemcpyAtoA, unsigned int, NULL)
ARRAY_TO_ARRAY(cuMemcpyAtoA_v2, size_t, NULL)
ARRAY_TO_ARRAY(cuMemcpyAtoA_v2_ptds, size_t, CU_STREAM_PER_THREAD)
ARRAY_TO_DEVICE(cuMemcpyAtoD, CUdeviceptr_v1, unsigned int, NULL)
ARRAY_TO_DEVICE(cuMemcpyAtoD_v2, CUdeviceptr, size_t, NULL)
ARRAY_TO_DEVICE(cuMemcpyAtoD_v2_ptds, CUdeviceptr, size_t, CU_STREAM_PER_THREAD)
DEVICE_TO_ARRAY(cuMemcpyDtoA, CUdeviceptr_v1, unsigned int, NULL)
DEVICE_TO_ARRAY(cuMemcpyDtoA_v2, CUdeviceptr, size_t, NULL)
DEVICE_TO_ARRAY(cuMemcpyDtoA_v2_ptds, CUdeviceptr, size_t, CU_STREAM_PER_THREAD)
HOST_TO_ARRAY(cuMemcpyHtoAAsync, unsigned int, stream)
HOST_TO_ARRAY(cuMemcpyHtoAAsync_v2, size_t, stream)
HOST_TO_ARRAY(cuMemcpyHtoAAsync_v2_ptsz, size_t, drv_ptsz(stream))
ARRAY_TO_HOST(cuMemcpyAtoHAsync, unsigned int, stream)
ARRAY_TO_HOST(cuMemcpyAtoHAsync_v2, size_t, stream)
ARRAY_TO_HOST(cuMemcpyAtoHAsync_v2_ptsz, size_t, drv_ptsz(stream))

/* ---- lists ---- */

static CUresult list(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
		     CUmemcpyAttributes *attributes, size_t *from_entry, size_t kinds, CUstream stream)
{
	NEED(drv_ready());
	if (to == NULL || from == NULL || bytes == NULL || count == 0 || attributes == NULL ||
	    from_entry == NULL || kinds == 0 || kinds > count || from_entry[0] != 0 || stream == NULL ||
	    stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		NEED(drv_copy(to[i], from[i], bytes[i], false, false, stream, false));
	return CUDA_SUCCESS;
}

CUresult sim_cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
				   CUmemcpyAttributes *attributes, size_t *from_entry, size_t kinds,
				   CUstream stream)
{
	return list(to, from, bytes, count, attributes, from_entry, kinds, stream);
}

CUresult sim_cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
					CUmemcpyAttributes *attributes, size_t *from_entry, size_t kinds,
					CUstream stream)
{
	return list(to, from, bytes, count, attributes, from_entry, kinds, drv_ptsz(stream));
}

CUresult sim_cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
				CUmemcpyAttributes *attributes, size_t *from_entry, size_t kinds,
				size_t *failed, CUstream stream)
{
	(void)failed;
	return list(to, from, bytes, count, attributes, from_entry, kinds, stream);
}

CUresult sim_cuMemcpyBatchAsync_ptsz(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
				     CUmemcpyAttributes *attributes, size_t *from_entry, size_t kinds,
				     size_t *failed, CUstream stream)
{
	(void)failed;
	return list(to, from, bytes, count, attributes, from_entry, kinds, drv_ptsz(stream));
}

CUresult sim_cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
					 CUmemcpyAttributes *attributes, CUstream stream)
{
	NEED(drv_ready());
	if (attributes == NULL || to == 0 || from == 0 || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	return drv_copy(to, from, bytes, false, false, stream, false);
}

CUresult sim_cuMemcpyWithAttributesAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
					      CUmemcpyAttributes *attributes, CUstream stream)
{
	return sim_cuMemcpyWithAttributesAsync(to, from, bytes, attributes, drv_ptsz(stream));
}

/* Of an array's elements, which every format that is made here has 1, 2 or 4 bytes of for each channel. */
static uint64_t element_bytes(const CUmemcpy3DOperand *operand)
{
	CUDA_ARRAY3D_DESCRIPTOR shape;

	if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY ||
	    sim_cuArray3DGetDescriptor_v2(&shape, operand->op.array.array) != CUDA_SUCCESS)
		return 1;
	return shape.NumChannels *
	       (shape.Format == CU_AD_FORMAT_FLOAT ? 4u
		: shape.Format == CU_AD_FORMAT_UNSIGNED_INT8 || shape.Format == CU_AD_FORMAT_SIGNED_INT8
			? 1u
			: 2u);
}

static struct drv_end operand_end(const CUmemcpy3DOperand *operand, const CUDA_MEMCPY3D_BATCH_OP *op,
				  uint64_t element)
{
	size_t row = operand->op.ptr.rowLength != 0 ? operand->op.ptr.rowLength : op->extent.width;
	size_t rows = operand->op.ptr.layerHeight != 0 ? operand->op.ptr.layerHeight : op->extent.height;

	if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
		return array_end(operand->op.array.array);
	return (struct drv_end){CU_MEMORYTYPE_UNIFIED, operand->op.ptr.ptr, NULL, row * element, rows};
}

static CUresult boxes(CUDA_MEMCPY3D_BATCH_OP *list, size_t count, unsigned long long flags, CUstream stream)
{
	NEED(drv_ready());
	if (list == NULL || count == 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		const CUDA_MEMCPY3D_BATCH_OP *op = &list[i];
		uint64_t element = element_bytes(&op->src) * element_bytes(&op->dst);
		struct drv_end to, from;

		if (op->src.type - 1 > 1 || op->dst.type - 1 > 1 || op->extent.width == 0 ||
		    op->extent.height == 0 || op->extent.depth == 0 || op->srcAccessOrder < 1 ||
		    op->srcAccessOrder > 3)
			return CUDA_ERROR_INVALID_VALUE;
		if (op->src.type == op->dst.type && op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
			element = element_bytes(&op->src);
		to = operand_end(&op->dst, op, element);
		from = operand_end(&op->src, op, element);
		NEED(drv_copy_box(
			&to, &from,
			&(struct drv_box){op->extent.width * element, op->extent.height, op->extent.depth},
			stream, false));
	}
	return CUDA_SUCCESS;
}

CUresult sim_cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags,
				     CUstream stream)
{
	return stream == NULL || stream == CU_STREAM_LEGACY ? CUDA_ERROR_INVALID_VALUE
							    : boxes(list, count, flags, stream);
}

CUresult sim_cuMemcpy3DBatchAsync_v2_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
					  unsigned long long flags, CUstream stream)
{
	return sim_cuMemcpy3DBatchAsync_v2(count, list, flags, drv_ptsz(stream));
}

CUresult sim_cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
				  unsigned long long flags, CUstream stream)
{
	(void)failed;
	return sim_cuMemcpy3DBatchAsync_v2(count, list, flags, stream);
}

CUresult sim_cuMemcpy3DBatchAsync_ptsz(size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed,
				       unsigned long long flags, CUstream stream)
{
	return sim_cuMemcpy3DBatchAsync(count, list, failed, flags, drv_ptsz(stream));
}

CUresult sim_cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags,
					   CUstream stream)
{
	return boxes(copy, 1, flags, stream);
}

CUresult sim_cuMemcpy3DWithAttributesAsync_ptsz(CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags,
						CUstream stream)
{
	return boxes(copy, 1, flags, drv_ptsz(stream));
}
