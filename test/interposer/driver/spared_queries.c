/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver is not asked where the answer is known, and that it is known rightly. */
#include "harness.h"

#include <pthread.h>

#define KEEP_EVERYTHING UINT64_MAX
#define RELEASE_THRESHOLD 4
#define GLOBAL 0
#define RELAXED 2

static struct step step;
static CUstream stream;
static CUmemoryPool pool;

static uint64_t used(void)
{
	size_t own, all;

	CHECK_IS(cuSimHeld(0, &own, &all), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], all);
	return step.ledger->used_bytes[0];
}

static unsigned int times(const char *name)
{
	unsigned int asked = 0;

	CHECK_IS(cuSimAsked(name, &asked), CUDA_SUCCESS);
	return asked;
}

static void begin(uint64_t limit_mib)
{
	gpus(0);
	setenv("CUDA_VISIBLE_DEVICES", UUID0, 1);
	step = step_make(3000 + (uint32_t)getpid(), 0, limit_mib, limit_mib);
	cuda_begin(0);
	CHECK_IS(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
}

static void pair(CUstream on, uint64_t mib)
{
	CUdeviceptr a;

	CHECK_IS(cuMemAllocAsync(&a, mib * MIB, on), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, on), CUDA_SUCCESS);
}

/* ---- captures ---- */

/* What the call has begun is a capture: an allocation is not charged, and not broken by us. */
static void captures(CUresult begun, CUstream on)
{
	int status = 0;
	unsigned int before = times("cuStreamIsCapturing");

	CHECK_IS(begun, CUDA_SUCCESS);
	pair(on, 500);
	CHECK(times("cuStreamIsCapturing") > before);
	CHECK_IS(used(), 0);
	CHECK_IS(cuStreamIsCapturing(on, &status), CUDA_SUCCESS);
	CHECK_IS(status, 1);
}

/* None is left: nothing is asked, and an allocation is charged. */
static void none_is_left(void)
{
	unsigned int before = times("cuStreamIsCapturing");
	CUdeviceptr a;

	CHECK_IS(cuMemAllocAsync(&a, MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(times("cuStreamIsCapturing"), before);
}

static void every_capture_is_counted(void)
{
	const CUstream own = CU_STREAM_PER_THREAD; /* what the others mean by NULL */
	CUgraph graph = NULL, again;

	begin(100);
	none_is_left();
	captures(cuStreamBeginCapture(stream), stream);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	none_is_left();
	captures(cuStreamBeginCapture_v2(stream, RELAXED), stream);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	none_is_left();
	captures(cuStreamBeginCapture_ptsz(NULL), own);
	CHECK_IS(cuStreamEndCapture_ptsz(NULL, &graph), CUDA_SUCCESS);
	none_is_left();
	captures(cuStreamBeginCapture_v2_ptsz(NULL, GLOBAL), own);
	CHECK_IS(cuStreamEndCapture_ptsz(NULL, &graph), CUDA_SUCCESS);
	none_is_left();
	captures(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, GLOBAL), stream);
	CHECK_IS(cuStreamEndCapture(stream, &again), CUDA_SUCCESS);
	captures(cuStreamBeginCaptureToGraph_ptsz(NULL, graph, NULL, NULL, 0, GLOBAL), own);
	CHECK_IS(cuStreamEndCapture_ptsz(NULL, &again), CUDA_SUCCESS);
	captures(cuStreamBeginRecaptureToGraph(stream, GLOBAL, graph, NULL, NULL), stream);
	CHECK_IS(cuStreamEndCapture(stream, &again), CUDA_SUCCESS);
	captures(cuStreamBeginRecaptureToGraph_ptsz(NULL, GLOBAL, graph, NULL, NULL), own);
	CHECK_IS(cuStreamEndCapture_ptsz(NULL, &again), CUDA_SUCCESS);
	none_is_left();
}

static void a_capture_that_does_not_begin_is_none(void)
{
	CUgraph graph;

	begin(100);
	CHECK(cuStreamBeginCapture_v2(CU_STREAM_LEGACY, GLOBAL) != CUDA_SUCCESS);
	CHECK(cuStreamBeginCaptureToCig(stream, NULL) != CUDA_SUCCESS);
	CHECK(cuStreamBeginCaptureToCig_ptsz(NULL, NULL) != CUDA_SUCCESS);
	CHECK(cuStreamEndCaptureToCig(stream) != CUDA_SUCCESS);
	CHECK(cuStreamEndCaptureToCig_ptsz(NULL) != CUDA_SUCCESS);
	CHECK(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS);
	none_is_left();
	/* An end too many does not hide another capture. */
	CHECK_IS(cuStreamBeginCapture_v2(stream, GLOBAL), CUDA_SUCCESS);
	CHECK(cuStreamEndCapture_ptsz(NULL, &graph) != CUDA_SUCCESS);
	captures(CUDA_SUCCESS, stream);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	none_is_left();
}

static void a_broken_capture_ends_too(void)
{
	CUdeviceptr a;
	CUgraph graph;

	begin(100);
	CHECK_IS(cuStreamBeginCapture_v2(stream, GLOBAL), CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&a, MIB) != CUDA_SUCCESS); /* is not allowed meanwhile */
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	none_is_left();
}

static void several_captures_are_counted(void)
{
	CUgraph graph;
	CUstream other;

	begin(100);
	CHECK_IS(cuStreamCreate(&other, 1), CUDA_SUCCESS);
	CHECK_IS(cuStreamBeginCapture_v2(other, RELAXED), CUDA_SUCCESS);
	captures(cuStreamBeginCapture_v2(stream, RELAXED), stream);
	CHECK_IS(cuStreamEndCapture(other, &graph), CUDA_SUCCESS);
	captures(CUDA_SUCCESS, stream);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	none_is_left();
}

static void a_capture_by_a_function_without_a_row_is_expected(void)
{
	CUresult (*begin_unheard)(CUstream);
	CUdriverProcAddressQueryResult status;
	CUgraph graph;

	begin(100);
	none_is_left();
	CHECK_IS(cuGetProcAddress_v2("cuStreamBeginUnheard", (void **)&begin_unheard, 13000, 0, &status),
		 CUDA_SUCCESS);
	captures(begin_unheard(stream), stream);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

/* ---- pools ---- */

static void the_chosen_pool_is_asked_for_once(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
				.maxSize = 64 * MIB};
	CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	unsigned int before;
	CUmemoryPool own;
	CUdeviceptr a;

	begin(200);
	pair(stream, 1);
	before = times("cuDeviceGetMemPool");
	for (int i = 0; i < 10; i++)
		pair(stream, 1);
	CHECK_IS(times("cuDeviceGetMemPool"), before);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolCreate(&own, &props), CUDA_SUCCESS);
	CHECK_IS(cuMemSetMemPool(&location, CU_MEM_ALLOCATION_TYPE_PINNED, own), CUDA_SUCCESS);
	/* Its own maximum: it is this one, and what was charged for nothing is given back. */
	CHECK_IS(cuMemAllocAsync(&a, 60 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 60 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 60 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuDeviceSetMemPool(0, own), CUDA_SUCCESS);
	/* With the pool goes the choice. */
	CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 90 * MIB, stream), CUDA_SUCCESS);
	used();
}

static void synchronising_asks_only_when_a_pool_can_be_less(void)
{
	cuuint64_t bytes = KEEP_EVERYTHING;
	unsigned int before;

	begin(200);
	before = times("cuMemPoolGetAttribute");
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(times("cuMemPoolGetAttribute"), before);
	CHECK_IS(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
	pair(stream, 60);
	before = times("cuMemPoolGetAttribute");
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_IS(times("cuMemPoolGetAttribute"), before);
	CHECK_IS(used(), 64 * MIB);
	bytes = 40 * MIB;
	CHECK_IS(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(used(), 40 * MIB);
	bytes = 0;
	CHECK_IS(cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* ---- memory info ---- */

static uint64_t free_mib(void)
{
	size_t free_bytes = 0, total_bytes = 0;
	uint64_t limit = step.limits->device[0].step_mem_bytes;

	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(total_bytes, limit < 4096 * MIB ? limit : 4096 * MIB);
	return free_bytes / MIB;
}

static void memory_info_is_the_slice_at_once(void)
{
	unsigned int before;
	CUdeviceptr a;

	begin(1000);
	before = times("cuMemGetInfo");
	for (int i = 0; i < 1000; i++) {
		CHECK_IS(free_mib(), 1000);
		CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
		CHECK_IS(free_mib(), 900);
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	}
	CHECK(times("cuMemGetInfo") - before < 1000);
}

/* The GPU has less than the slice: the driver's figure it is, with what this process does. */
static void memory_info_is_the_devices_where_that_is_less(void)
{
	unsigned int narrow_free, narrow_total;
	CUdeviceptr a;

	begin(8192);
	for (int i = 0; i < 100; i++) {
		CHECK_IS(free_mib(), 4096);
		CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
		CHECK_IS(free_mib(), 3996);
		CHECK_IS(cuMemGetInfo(&narrow_free, &narrow_total), CUDA_SUCCESS);
		CHECK_IS(narrow_free, 3996 * MIB);
		CHECK_IS(narrow_total, UINT32_MAX);
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	}
}

#define THREADS 4
#define ROUNDS 1000

static CUcontext shared_context;

static void *allocating_and_asking(void *argument)
{
	(void)argument;
	CHECK_IS(cuCtxSetCurrent(shared_context), CUDA_SUCCESS);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t told;
		CUdeviceptr a;

		CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
		told = free_mib();
		/* What others do at the same moment may be told too early or too late. */
		CHECK(told <= 4096 && told >= 4096 - 2 * THREADS * 10);
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	}
	return NULL;
}

static void memory_info_of_many_threads(void)
{
	pthread_t thread[THREADS];

	begin(8192);
	CHECK_IS(cuCtxGetCurrent(&shared_context), CUDA_SUCCESS);
	for (int i = 0; i < THREADS; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, allocating_and_asking, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	CHECK_IS(free_mib(), 4096);
	CHECK_IS(used(), 0);
}

static CUcontext ended;
static pthread_barrier_t barrier;

static void *with_a_context_that_ends(void *argument)
{
	size_t free_bytes, total_bytes;

	(void)argument;
	CHECK_IS(cuCtxSetCurrent(ended), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	CHECK(cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS);
	return NULL;
}

static void memory_info_needs_a_context(void)
{
	size_t free_bytes, total_bytes;
	CUcontext primary;
	pthread_t thread;

	begin(100);
	CHECK_IS(cuCtxGetCurrent(&primary), CUDA_SUCCESS);
	CHECK_IS(free_mib(), 100);
	CHECK_IS(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_IS(cuCtxCreate_v2(&ended, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(primary), CUDA_SUCCESS);
	pthread_barrier_init(&barrier, NULL, 2);
	CHECK_IS(pthread_create(&thread, NULL, with_a_context_that_ends, NULL), 0);
	pthread_barrier_wait(&barrier);
	CHECK_IS(cuCtxDestroy_v2(ended), CUDA_SUCCESS);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	CHECK_IS(free_mib(), 100);
}

int main(void)
{
	gpus(0);
	CASE(every_capture_is_counted);
	CASE(a_capture_that_does_not_begin_is_none);
	CASE(a_broken_capture_ends_too);
	CASE(several_captures_are_counted);
	CASE(a_capture_by_a_function_without_a_row_is_expected);
	CASE(the_chosen_pool_is_asked_for_once);
	CASE(synchronising_asks_only_when_a_pool_can_be_less);
	CASE(memory_info_is_the_slice_at_once);
	CASE(memory_info_is_the_devices_where_that_is_less);
	CASE(memory_info_of_many_threads);
	CASE(memory_info_needs_a_context);
	return summary();
}
