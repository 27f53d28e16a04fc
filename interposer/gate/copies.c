/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/copies.h"

#include "api/symbols.h"
#include "driver/device.h"
#include "memory/array.h"

#define ON_HOST (-1)

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Where there is one device only, the driver need not be asked which it is. */
static int current_ordinal(struct vgpu_process *p)
{
	vgpu_fn_cuCtxGetDevice *get_device = VGPU_REAL(cuCtxGetDevice);
	CUdevice ordinal;

	return vgpu_device_several(p) && get_device != NULL && get_device(&ordinal) == CUDA_SUCCESS ? ordinal
												    : 0;
}

/* The CUDA ordinal of the device, or ON_HOST. Nobody tells where an array lies: it can be copied on its
 * own device only, but by the functions between contexts. */
static int device_of(struct vgpu_process *p, struct vgpu_end end)
{
	vgpu_fn_cuPointerGetAttribute *ask = VGPU_REAL(cuPointerGetAttribute);
	unsigned int type = 0;
	int ordinal;

	if (end.type == CU_MEMORYTYPE_ARRAY)
		return current_ordinal(p);
	if (end.type != CU_MEMORYTYPE_DEVICE && end.type != CU_MEMORYTYPE_UNIFIED)
		return ON_HOST;
	/* What the driver does not know is the program's own memory, unless it says otherwise. */
	if (ask == NULL || ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, end.at) != CUDA_SUCCESS)
		return end.type == CU_MEMORYTYPE_DEVICE ? current_ordinal(p) : ON_HOST;
	if (type != CU_MEMORYTYPE_DEVICE)
		return ON_HOST;
	if (!vgpu_device_several(p) ||
	    ask(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, end.at) != CUDA_SUCCESS)
		return current_ordinal(p);
	return ordinal;
}

static bool within_device(struct vgpu_process *p, struct vgpu_end to, struct vgpu_end from)
{
	int ordinal = device_of(p, to);

	return ordinal != ON_HOST && ordinal == device_of(p, from);
}

/* Many short rows take longer than one that is as large, and arrays lie in tiles. */
static uint64_t shape_of_rows(struct vgpu_end to, struct vgpu_end from, uint64_t row_bytes, uint64_t rows)
{
	uint64_t arrays = (to.type == CU_MEMORYTYPE_ARRAY) + (from.type == CU_MEMORYTYPE_ARRAY) * 2u;

	return arrays << 16 | (rows > 1 ? vgpu_size_class(row_bytes) : 0);
}

static void add_copy(struct vgpu_process *p, struct vgpu_copied *copied, struct vgpu_end to,
		     struct vgpu_end from, uint64_t bytes)
{
	if (!within_device(p, to, from)) {
		copied->beside_bytes = plus(copied->beside_bytes, bytes);
	} else {
		copied->bytes = plus(copied->bytes, bytes);
		copied->count++;
	}
}

struct vgpu_copied vgpu_copied_rows(struct vgpu_process *p, struct vgpu_end to, struct vgpu_end from,
				    uint64_t row_bytes, uint64_t rows, uint64_t layers)
{
	uint64_t bytes = times(times(row_bytes, rows), layers);
	struct vgpu_copied copied = {.shape = shape_of_rows(to, from, row_bytes, times(rows, layers))};

	if (bytes >= LONG_BYTES)
		add_copy(p, &copied, to, from, bytes);
	return copied;
}

/* A list takes about as long as its copies do on average, so many times. */
static struct vgpu_copied as_list(struct vgpu_copied copied)
{
	if (copied.count > 1)
		copied.shape = 1u << 18 | vgpu_size_class(copied.bytes / copied.count);
	return copied;
}

struct vgpu_copied vgpu_copied_list(struct vgpu_process *p, const CUdeviceptr *to, const CUdeviceptr *from,
				    const size_t *bytes, size_t count)
{
	struct vgpu_copied copied = {0};
	uint64_t all = 0;

	if (to == NULL || from == NULL || bytes == NULL)
		return copied;
	for (size_t i = 0; i < count; i++)
		all = plus(all, bytes[i]);
	for (size_t i = 0; all >= LONG_BYTES && i < count; i++)
		add_copy(p, &copied, VGPU_END_UNIFIED(to[i]), VGPU_END_UNIFIED(from[i]), bytes[i]);
	return as_list(copied);
}

static struct vgpu_end end_of_operand(const CUmemcpy3DOperand *operand)
{
	return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? VGPU_END_ARRAY
	       : operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? VGPU_END_UNIFIED(operand->op.ptr.ptr)
								 : (struct vgpu_end){CU_MEMORYTYPE_HOST, 0};
}

/* In elements of the array, where there is one. */
static uint64_t bytes_of(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	vgpu_fn_cuArray3DGetDescriptor_v2 *describe = VGPU_REAL(cuArray3DGetDescriptor_v2);
	const CUmemcpy3DOperand *array = op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? &op->src : &op->dst;
	uint64_t elements = times(times(op->extent.width, op->extent.height), op->extent.depth);
	CUDA_ARRAY3D_DESCRIPTOR shape;

	if (array->type != CU_MEMCPY_OPERAND_TYPE_ARRAY || describe == NULL ||
	    describe(&shape, array->op.array.array) != CUDA_SUCCESS)
		return elements;
	return times(elements, vgpu_array_element_bytes(&shape));
}

struct vgpu_copied vgpu_copied_boxes(struct vgpu_process *p, const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
	struct vgpu_copied copied = {0};
	uint64_t all = 0;

	for (size_t i = 0; list != NULL && i < count; i++)
		all = plus(all, bytes_of(&list[i]));
	for (size_t i = 0; all >= LONG_BYTES && i < count; i++) {
		struct vgpu_end to = end_of_operand(&list[i].dst), from = end_of_operand(&list[i].src);
		uint64_t bytes = bytes_of(&list[i]),
			 rows = times(list[i].extent.height, list[i].extent.depth);

		add_copy(p, &copied, to, from, bytes);
		copied.shape = shape_of_rows(to, from, rows != 0 ? bytes / rows : 0, rows);
	}
	return as_list(copied);
}
