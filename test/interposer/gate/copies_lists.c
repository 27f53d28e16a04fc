/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What lists of copies are expected to take. copies.c tries them on the simulated driver. */
#include "harness.h"
#include "whole.h"

#include "api/symbols.h"
#include "driver/device.h"
#include "gate/copies.h"
#include "memory/array.h"

void *vgpu_real[VGPU_SYMBOLS];
static union whole_process whole;
static struct vgpu_process *const process = &whole.process;

/* Addresses below this are the host's, and all others the device's. */
#define DEVICE_FROM 0x1000000u

static CUresult attribute(void *data, int which, CUdeviceptr pointer)
{
	if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
		*(unsigned int *)data = pointer < DEVICE_FROM ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	return CUDA_SUCCESS;
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	return symbol == VGPU_SYMBOL_cuPointerGetAttribute ? (void *)attribute : NULL;
}

bool vgpu_device_ask_several(struct vgpu_process *p)
{
	(void)p;
	return false;
}

uint64_t vgpu_array_element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	return shape->NumChannels;
}

static struct vgpu_copied list(size_t count, size_t each, CUdeviceptr from)
{
	CUdeviceptr to[8], source[8];
	size_t bytes[8];

	for (size_t i = 0; i < count; i++) {
		to[i] = DEVICE_FROM + i * 64 * MIB;
		source[i] = from;
		bytes[i] = each;
	}
	return vgpu_copied_list(process, to, source, bytes, count);
}

static void a_list_of_copies_takes_as_long_as_they_do_on_average(void)
{
	struct vgpu_copied one = list(1, 8 * MIB, DEVICE_FROM), four = list(4, 8 * MIB, DEVICE_FROM);

	CHECK_IS(one.count, 1);
	CHECK_IS(one.bytes, 8 * MIB);
	CHECK_IS(one.shape, 0);
	CHECK_IS(four.count, 4);
	CHECK_IS(four.bytes, 32 * MIB);
	CHECK(four.shape != one.shape);
	CHECK_IS(four.shape, list(8, 8 * MIB, DEVICE_FROM).shape);
	CHECK(four.shape != list(8, 32 * MIB, DEVICE_FROM).shape);
}

static void a_short_list_and_one_of_the_host_take_none_of_the_gpu(void)
{
	struct vgpu_copied copied = list(3, 1000, DEVICE_FROM);

	CHECK_IS(copied.count, 0);
	CHECK_IS(copied.bytes, 0);
	copied = list(0, 0, DEVICE_FROM);
	CHECK_IS(copied.count, 0);
	copied = list(3, 8 * MIB, 4096);
	CHECK_IS(copied.count, 0);
	CHECK_IS(copied.bytes, 0);
	CHECK_IS(copied.beside_bytes, 24 * MIB);
	copied = vgpu_copied_list(process, NULL, NULL, NULL, 3);
	CHECK_IS(copied.count, 0);
}

int main(void)
{
	gpus(0);
	CASE(a_list_of_copies_takes_as_long_as_they_do_on_average);
	CASE(a_short_list_and_one_of_the_host_take_none_of_the_gpu);
	return summary();
}
