/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What keeps a stream waiting and not the GPU busy: copies from and to the host, functions that run there,
 * words, semaphores and events that are waited for. What lies behind it counts as long as it takes itself. */
#include "gated.h"

#include <sched.h>

#define ROUNDS 12
#define LONG_US 2000u
#define SHORT_US 60u

static CUfunction kernel;
static CUstream other;
static CUevent event;
static CUarray array;
static CUdeviceptr managed;
static CUmemLocation on_device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
static void *pinned;
static uint64_t *word; /* which is there already */

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);

static uint64_t used_us(void)
{
	return step_busy_ns(&step) / 1000;
}

static uint64_t used_us_when_seen(uint64_t before_us, uint64_t at_least_us)
{
	return step_busy_ns_when_seen(&step, before_us * 1000, at_least_us * 1000, 200000000u) / 1000;
}

static void begin_waiting(uint32_t job)
{
	CUDA_ARRAY_DESCRIPTOR shape = {MIB, 0, CU_AD_FORMAT_FLOAT, 1};

	gated_step(job, 90, 1);
	gpus_also("host_gb_s=1"); /* each wait is for 4 ms */
	gpus_also("host_us=4000");
	gated_cuda();
	kernel = busy_kernel();
	CHECK(cuStreamCreate(&stream, 1) == CUDA_SUCCESS && cuStreamCreate(&other, 1) == CUDA_SUCCESS);
	CHECK(cuEventCreate(&event, 2) == CUDA_SUCCESS);
	CHECK(cuMemAllocHost_v2(&pinned, 8 * MIB) == CUDA_SUCCESS);
	CHECK(cuMemAllocManaged(&managed, 4 * MIB, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
	CHECK(cuArrayCreate_v2(&array, &shape) == CUDA_SUCCESS);
	word = pinned;
	/* What the kernels take is learnt. */
	for (int i = 0; i < 6; i++) {
		busy(kernel, LONG_US, stream);
		busy(kernel, SHORT_US, stream);
		CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	}
	used_us_when_seen(0, 6 * (LONG_US + SHORT_US) * 95 / 100);
}

/* Long kernels, each behind one wait of twice its length. On a busy machine it may be seen late where they
 * begin: then again. */
#define CHECK_COUNTS_ITSELF(wait, of)                                                                          \
	do {                                                                                                   \
		uint64_t before_, got_ = 0, want_ = ROUNDS * LONG_US;                                          \
		for (int try_ = 0; try_ < 20 && (got_ < want_ * 85 / 100 || got_ > want_ * 135 / 100); try_++) { \
			before_ = used_us();                                                                   \
			for (int i_ = 0; i_ < ROUNDS; i_++) {                                                  \
				CHECK_IS(wait, CUDA_SUCCESS);                                                  \
				busy(kernel, LONG_US, of);                                                     \
			}                                                                                      \
			got_ = used_us_when_seen(before_, want_ * 98 / 100);                                   \
		}                                                                                              \
		if (got_ < want_ * 85 / 100 || got_ > want_ * 135 / 100)                                       \
			fprintf(stderr, "%s:%d: kernels behind %s count %llu us, not %llu\n", __FILE__, __LINE__, #wait, \
				(unsigned long long)got_, (unsigned long long)want_), failures++;              \
	} while (0)

static void copies_from_and_to_the_host(void)
{
	begin_waiting(1);
	CHECK_COUNTS_ITSELF(cuMemcpyHtoDAsync(low_a, pinned, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyHtoDAsync_v2(a, pinned, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyHtoDAsync_v2_ptsz(a, pinned, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyDtoHAsync(pinned, low_a, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyDtoHAsync_v2(pinned, a, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyDtoHAsync_v2_ptsz(pinned, a, 4 * MIB, NULL), CU_STREAM_PER_THREAD);
	CHECK_COUNTS_ITSELF(cuMemcpyHtoAAsync(array, 0, pinned, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyHtoAAsync_v2(array, 0, pinned, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyHtoAAsync_v2_ptsz(array, 0, pinned, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyAtoHAsync(pinned, array, 0, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyAtoHAsync_v2(pinned, array, 0, 4 * MIB, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemcpyAtoHAsync_v2_ptsz(pinned, array, 0, 4 * MIB, NULL), CU_STREAM_PER_THREAD);
	CHECK_COUNTS_ITSELF(cuMemcpyAsync(a, (CUdeviceptr)(uintptr_t)pinned, 4 * MIB, stream), stream);
}

static void managed_memory_on_its_way(void)
{
	size_t bytes = 4 * MIB, first = 0;

	begin_waiting(2);
	CHECK_COUNTS_ITSELF(cuMemPrefetchAsync(managed, bytes, 0, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemPrefetchAsync_ptsz(managed, bytes, 0, NULL), CU_STREAM_PER_THREAD);
	CHECK_COUNTS_ITSELF(cuMemPrefetchAsync_v2(managed, bytes, on_device, 0, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemPrefetchAsync_v2_ptsz(managed, bytes, on_device, 0, stream), stream);
	CHECK_COUNTS_ITSELF(cuMemPrefetchBatchAsync(&managed, &bytes, 1, &on_device, &first, 1, 0, stream),
			    stream);
	CHECK_COUNTS_ITSELF(
		cuMemPrefetchBatchAsync_ptsz(&managed, &bytes, 1, &on_device, &first, 1, 0, stream), stream);
	CHECK_COUNTS_ITSELF(
		cuMemDiscardAndPrefetchBatchAsync(&managed, &bytes, 1, &on_device, &first, 1, 0, stream),
		stream);
	CHECK_COUNTS_ITSELF(
		cuMemDiscardAndPrefetchBatchAsync_ptsz(&managed, &bytes, 1, &on_device, &first, 1, 0, stream),
		stream);
}

#define DEEP 4
#define EVEN_US 1000u
#define EVEN_ROUNDS 300

/* Both are over before the poller looks again, which it seldom does where there is enough of the share. */
static void short_kernels_behind_short_copies(void)
{
	CUevent done[DEEP];
	uint64_t before, got = 0, want = EVEN_ROUNDS * EVEN_US;

	begin_waiting(8);
	for (int i = 0; i < DEEP; i++)
		CHECK(cuEventCreate(&done[i], 2) == CUDA_SUCCESS);
	for (int try = 0; try < 20 && (got < want * 95 / 100 || got > want * 104 / 100); try++) {
		before = used_us();
		for (int i = 0; i < EVEN_ROUNDS; i++) {
			if (i >= DEEP)
				CHECK_IS(cuEventSynchronize(done[i % DEEP]), CUDA_SUCCESS);
			CHECK_IS(cuMemcpyHtoDAsync_v2(a, pinned, MIB, stream), CUDA_SUCCESS);
			busy(kernel, EVEN_US, stream);
			CHECK_IS(cuEventRecord(done[i % DEEP], stream), CUDA_SUCCESS);
		}
		got = used_us_when_seen(before, want * 98 / 100);
	}
	if (got < want * 95 / 100 || got > want * 104 / 100)
		fprintf(stderr, "kernels behind copies as long count %llu us, not %llu\n",
			(unsigned long long)got, (unsigned long long)want),
			failures++;
}

static unsigned calls;

static void count_call(void *data)
{
	(*(unsigned *)data)++;
}

static void count_callback(CUstream of, CUresult status, void *data)
{
	(void)of;
	CHECK_IS(status, CUDA_SUCCESS);
	count_call(data);
}

static void functions_on_the_host(void)
{
	begin_waiting(3);
	CHECK_COUNTS_ITSELF(cuLaunchHostFunc(stream, count_call, &calls), stream);
	CHECK_COUNTS_ITSELF(cuLaunchHostFunc_ptsz(stream, count_call, &calls), stream);
	CHECK_COUNTS_ITSELF(cuLaunchHostFunc_v2(stream, count_call, &calls, 0), stream);
	CHECK_COUNTS_ITSELF(cuLaunchHostFunc_v2_ptsz(NULL, count_call, &calls, 0), CU_STREAM_PER_THREAD);
	CHECK_COUNTS_ITSELF(cuStreamAddCallback(stream, count_callback, &calls, 0), stream);
	CHECK_COUNTS_ITSELF(cuStreamAddCallback_ptsz(stream, count_callback, &calls, 0), stream);
	CHECK(calls >= 6 * ROUNDS);
}

static void words_and_semaphores(void)
{
	CUstreamBatchMemOpParams op[2] = {0};
	CUexternalSemaphore semaphore = NULL;
	uint64_t how[32] = {0}; /* nobody looks into it */
	const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params = (const void *)how;
	CUdeviceptr address;

	begin_waiting(4);
	address = (CUdeviceptr)(uintptr_t)word;
	*word = 7;
	op[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	op[0].waitValue.address = address;
	op[0].waitValue.value = 7;
	CHECK_COUNTS_ITSELF(cuStreamWaitValue32(stream, address, 7, CU_STREAM_WAIT_VALUE_GEQ), stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue32_ptsz(stream, address, 7, CU_STREAM_WAIT_VALUE_GEQ), stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue32_v2(stream, address, 7, CU_STREAM_WAIT_VALUE_EQ), stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue32_v2_ptsz(stream, address, 7, CU_STREAM_WAIT_VALUE_GEQ),
			    stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue64(stream, address, 7, CU_STREAM_WAIT_VALUE_GEQ), stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue64_ptsz(stream, address, 7, CU_STREAM_WAIT_VALUE_GEQ), stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue64_v2(stream, address, 7, CU_STREAM_WAIT_VALUE_GEQ), stream);
	CHECK_COUNTS_ITSELF(cuStreamWaitValue64_v2_ptsz(NULL, address, 7, CU_STREAM_WAIT_VALUE_EQ),
			    CU_STREAM_PER_THREAD);
	CHECK_COUNTS_ITSELF(cuStreamBatchMemOp(stream, 1, op, 0), stream);
	CHECK_COUNTS_ITSELF(cuStreamBatchMemOp_ptsz(stream, 1, op, 0), stream);
	CHECK_COUNTS_ITSELF(cuStreamBatchMemOp_v2(stream, 1, op, 0), stream);
	CHECK_COUNTS_ITSELF(cuStreamBatchMemOp_v2_ptsz(stream, 1, op, 0), stream);
	CHECK_COUNTS_ITSELF(cuWaitExternalSemaphoresAsync(&semaphore, params, 1, stream), stream);
	CHECK_COUNTS_ITSELF(cuWaitExternalSemaphoresAsync_ptsz(&semaphore, params, 1, stream), stream);
}

/* The event lies behind what the host does for another stream. */
static CUresult record_late(void)
{
	CUresult result = cuMemcpyHtoDAsync_v2(a, pinned, 4 * MIB, other);

	return result == CUDA_SUCCESS ? cuEventRecord(event, other) : result;
}

static void events_of_another_stream(void)
{
	begin_waiting(5);
	CHECK_COUNTS_ITSELF((record_late(), cuStreamWaitEvent(stream, event, 0)), stream);
	CHECK_COUNTS_ITSELF((record_late(), cuStreamWaitEvent_ptsz(NULL, event, 0)), CU_STREAM_PER_THREAD);
}

/* The first thing in a stream may be a wait. */
static CUresult new_stream_waits(CUstream *new)
{
	record_late();
	return cuStreamCreate(new, 1) == CUDA_SUCCESS ? cuStreamWaitEvent(*new, event, 0)
						      : CUDA_ERROR_UNKNOWN;
}

static void streams_that_begin_with_a_wait(void)
{
	CUstream new;

	begin_waiting(6);
	CHECK_COUNTS_ITSELF(new_stream_waits(&new), new);
}

/* Two streams by turns, each kernel behind the other's last one. What they count, in percent of what they
 * took. */
static uint64_t by_turns(unsigned us, unsigned rounds)
{
	uint64_t before = used_us(), want = 2ull * rounds * us;

	for (unsigned i = 0; i < rounds; i++) {
		CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_SUCCESS);
		busy(kernel, us, stream);
		CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS &&
		      cuStreamWaitEvent(other, event, 0) == CUDA_SUCCESS);
		busy(kernel, us, other);
		CHECK(cuEventRecord(event, other) == CUDA_SUCCESS);
	}
	return used_us_when_seen(before, want * 98 / 100) * 100 / want;
}

static void streams_that_wait_for_each_other_count_in_full(void)
{
	begin_waiting(7);
	for (int is_short = 0; is_short < 2; is_short++) {
		uint64_t percent = 0;

		/* Less where this machine's cores are busy, or more where they are very slow: then again. */
		for (int i = 0; i < 10 && (percent < 90 || percent > 108); i++)
			percent = is_short ? by_turns(SHORT_US, 400) : by_turns(LONG_US, 15);
		CHECK(percent <= 108);
		CHECK(percent >= 90);
	}
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(copies_from_and_to_the_host);
	CASE_OF_TIME(short_kernels_behind_short_copies);
	CASE_OF_TIME(managed_memory_on_its_way);
	CASE_OF_TIME(functions_on_the_host);
	CASE_OF_TIME(words_and_semaphores);
	CASE_OF_TIME(events_of_another_stream);
	CASE_OF_TIME(streams_that_begin_with_a_wait);
	CASE_OF_TIME(streams_that_wait_for_each_other_count_in_full);
	return summary();
}
