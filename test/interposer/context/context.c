/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts that are made and ended in other ways than most: for drawing, detached, green. */
#include "charged.h"

#include <pthread.h>

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *resources, void *list, unsigned int count);
CUresult cuCtxAttach(CUcontext *context, unsigned int flags);

static void contexts_for_drawing_are_contexts(void)
{
	CUcontext context;
	CUdeviceptr a;

	begin(100, 0);
#define CHECK_CONTEXT(create, destroy)                                        \
	do {                                                                  \
		CHECK_IS(create, CUDA_SUCCESS);                               \
		CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);          \
		CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY); \
		CHECK_IS(used(), 60 * MIB);                                   \
		CHECK_IS(destroy, CUDA_SUCCESS);                              \
		CHECK_IS(used(), 0);                                          \
	} while (0)
	CHECK_CONTEXT(cuGLCtxCreate(&context, 0, 0), cuCtxDestroy_v2(context));
	CHECK_CONTEXT(cuGLCtxCreate_v2(&context, 0, 0), cuCtxDestroy_v2(context));
	CHECK_CONTEXT(cuVDPAUCtxCreate(&context, 0, 0, 0, NULL), cuCtxDestroy_v2(context));
	CHECK_CONTEXT(cuVDPAUCtxCreate_v2(&context, 0, 0, 0, NULL), cuCtxDestroy_v2(context));
	CHECK_CONTEXT(cuCtxCreate_v2(&context, 0, 0), cuCtxDetach(context));
}

static void detaching_ends_a_context_at_the_last_time(void)
{
	CUcontext context, same;
	CUdeviceptr a;

	begin(100, 0);
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuCtxAttach(&same, 0), CUDA_SUCCESS);
	CHECK_IS(cuCtxDetach(context), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuCtxDetach(context), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK(cuCtxDetach(context) != CUDA_SUCCESS);
}

static void a_green_context_is_counted_on_its_device(void)
{
	CUdevResourceDesc resources;
	CUcontext context;
	CUgreenCtx green;
	CUdeviceptr a, b;
	int all = 0;

	gpus(100);
	step = step_make(100 + (uint32_t)getpid(), 0, 300, 300);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(cuDevResourceGenerateDesc(&resources, &all, 1), CUDA_SUCCESS);
	CHECK_IS(cuGreenCtxCreate(&green, resources, 0, 1), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 150 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 250 * MIB);
	/* It was the last that held the primary context, and with that goes its memory. */
	CHECK_IS(cuGreenCtxDestroy(green), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(driver_used_bytes(0), 0);
	step.limits->device[0].step_mem_bytes = 50 * MIB;
	CHECK_IS(cuGreenCtxCreate(&green, resources, 0, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
	CHECK_IS(driver_used_bytes(0), 0);
}

static void memory_of_a_green_context_stays_with_the_primary_one(void)
{
	CUdevResourceDesc resources;
	CUcontext context, primary;
	CUgreenCtx green;
	CUdeviceptr a;
	int all = 0;

	begin(300, 100);
	CHECK_IS(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	CHECK_IS(cuDevResourceGenerateDesc(&resources, &all, 1), CUDA_SUCCESS);
	CHECK_IS(cuGreenCtxCreate(&green, resources, 0, 1), CUDA_SUCCESS);
	CHECK_IS(cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 150 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 250 * MIB);
	CHECK_IS(cuCtxSetCurrent(primary), CUDA_SUCCESS);
	CHECK_IS(cuGreenCtxDestroy(green), CUDA_SUCCESS);
	CHECK_IS(used(), 250 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(driver_used_bytes(0), 100 * MIB);
	CHECK_IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_destroy_that_the_driver_refuses_changes_nothing(void)
{
	CUcontext primary;
	CUdeviceptr a;

	begin(300, 100);
	CHECK_IS(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK(cuCtxDestroy_v2(primary) != CUDA_SUCCESS);
	CHECK(cuCtxDestroy_v2(NULL) != CUDA_SUCCESS);
	CHECK_IS(used(), 160 * MIB);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void *make_and_destroy(void *unused)
{
	(void)unused;
	for (int i = 0; i < 100; i++) {
		CUcontext context;
		CUdeviceptr a;

		if (cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
			continue;
		CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
		CHECK(step.ledger->used_bytes[0] >= 10 * MIB);
		CHECK_IS(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	}
	return NULL;
}

static void threads_that_make_and_destroy_contexts_leave_nothing(void)
{
	pthread_t thread[4];

	begin(300, 0);
	for (int i = 0; i < 4; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, make_and_destroy, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK_IS(pthread_join(thread[i], NULL), 0);
	CHECK_IS(driver_used_bytes(0), 0);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

int main(void)
{
	gpus(0);
	CASE(contexts_for_drawing_are_contexts);
	CASE(detaching_ends_a_context_at_the_last_time);
	CASE(a_green_context_is_counted_on_its_device);
	CASE(memory_of_a_green_context_stays_with_the_primary_one);
	CASE(a_destroy_that_the_driver_refuses_changes_nothing);
	CASE(threads_that_make_and_destroy_contexts_leave_nothing);
	return summary();
}
