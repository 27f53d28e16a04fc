/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Simulated GPU time is compared with itself, and with the host's clock around a call where the
 * host may have stood still between two of them. */
#include "harness.h"

#include <stdio.h>
#include <time.h>

static CUfunction busy_kernel(void)
{
	CUfunction function;
	CUmodule module;

	OK(cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)"));
	OK(cuModuleGetFunction(&function, module, "simgpu_busy_us"));
	EQ(cuModuleGetFunction(&function, module, "other"), CUDA_ERROR_NOT_FOUND);
	OK(cuModuleGetFunction(&function, module, "simgpu_busy_us"));
	return function;
}

static void launch(CUfunction function, unsigned us, CUstream stream)
{
	OK(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, (void *[]){ &us }, NULL));
}

static double host_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* What was begun at that time is at work, unless it had the time to end. */
#define AT_WORK(QUERY, BEGUN_MS, TAKES_MS) \
	TRUE((QUERY) == (CUresult)SIM_CUDA_ERROR_NOT_READY || host_ms() - (BEGUN_MS) >= (TAKES_MS))

TEST(work_runs_in_order_and_one_piece_at_a_time)
{
	CUevent begin, middle, end;
	CUfunction function;
	CUstream a, b;
	double begun_ms;
	float ms;

	start_cuda();
	function = busy_kernel();
	OK(cuStreamCreate(&a, SIM_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, SIM_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&middle, 0));
	OK(cuEventCreate(&end, 0));
	OK(cuEventQuery(end)); /* never recorded: done */
	begun_ms = host_ms();
	OK(cuEventRecord(begin, a));
	launch(function, 300000, a);
	OK(cuEventRecord(middle, a));
	launch(function, 20000, b);
	OK(cuEventRecord(end, b));
	AT_WORK(cuStreamQuery(b), begun_ms, 320);
	AT_WORK(cuEventQuery(middle), begun_ms, 300);
	AT_WORK(cuEventElapsedTime(&ms, begin, end), begun_ms, 320);
	OK(cuStreamSynchronize(b));
	OK(cuStreamQuery(a));
	OK(cuEventQuery(end));
	OK(cuEventElapsedTime(&ms, begin, middle));
	TRUE(ms >= 300);
	OK(cuEventElapsedTime(&ms, begin, end));
	TRUE(ms >= 320);
}

TEST(busy_time_shows_in_utilisation)
{
	nvmlUtilization_t rates;
	nvmlDevice_t device;

	start_cuda();
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	OK(nvmlDeviceGetUtilizationRates(device, &rates));
	EQ(rates.gpu, 0);
	launch(busy_kernel(), 3600u * 1000000u, NULL);
	while (rates.gpu == 0) /* or the test's time is up */
		OK(nvmlDeviceGetUtilizationRates(device, &rates));
	TRUE(rates.gpu <= 100);
	OK(nvmlDeviceGetHandleByIndex_v2(1, &device));
	OK(nvmlDeviceGetUtilizationRates(device, &rates));
	EQ(rates.gpu, 0);
}

TEST(launches_need_a_context_a_function_and_a_grid)
{
	CUfunction function;
	unsigned us = 1;
	void *params[] = { &us };

	start_cuda();
	function = busy_kernel();
	EQ(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_HANDLE);
	EQ(cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)77, params, NULL),
	   CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxSetCurrent(NULL));
	EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL), CUDA_ERROR_INVALID_CONTEXT);
}

static void queue_an_hour(struct peer *peer)
{
	start_cuda();
	launch(busy_kernel(), 3600u * 1000000u, NULL);
	peer_say(peer, 0);
	peer_hear(peer);
}

TEST(the_work_of_a_killed_process_ends_with_it)
{
	struct peer peer = peer_start(queue_an_hour);

	peer_hear(&peer);
	start_cuda();
	peer_kill(&peer);
	launch(busy_kernel(), 1000, NULL);
	OK(cuCtxSynchronize()); /* or the test's time is up */
	EQ(peer_wait(&peer), 128 + 9);
}

/* A word that is not there yet, and what lies behind it: work, events, and streams that wait for those. */
TEST(a_stream_waits_until_the_word_is_there)
{
	CUstream first, second;
	CUevent begin, end;
	uint32_t *word;
	CUdeviceptr address;
	double there_ms;
	float ms;

	configure("mem_mib=1000\n");
	start_cuda();
	OK(cuMemAllocHost_v2((void **)&word, 4096));
	address = (CUdeviceptr)(uintptr_t)word;
	OK(cuStreamCreate(&first, SIM_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&second, SIM_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	*word = UINT32_MAX; /* counters may wrap */
	OK(cuStreamWaitValue32(first, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
	OK(cuEventRecord(begin, first));
	OK(cuLaunchKernel(busy_kernel(), 1, 1, 1, 1, 1, 1, 0, first, (void *[]){&(unsigned){3000}}, NULL));
	OK(cuEventRecord(end, first));
	OK(cuStreamWaitEvent(second, end, 0));
	EQ(cuStreamQuery(first), SIM_CUDA_ERROR_NOT_READY);
	EQ(cuStreamQuery(second), SIM_CUDA_ERROR_NOT_READY);
	EQ(cuEventQuery(begin), SIM_CUDA_ERROR_NOT_READY);
	EQ(cuEventElapsedTime(&ms, begin, end), SIM_CUDA_ERROR_NOT_READY);
	there_ms = host_ms();
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuEventSynchronize(begin));
	OK(cuStreamSynchronize(second));
	OK(cuEventQuery(end));
	OK(cuEventElapsedTime(&ms, begin, end));
	/* The event before it is of the time when the word was there, not of its record. */
	TRUE(ms > 2.99f && ms < host_ms() - there_ms + 0.01);
	EQ(cuStreamWaitValue32(first, address + 1, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_ERROR_INVALID_VALUE);
	EQ(cuStreamWaitValue32(first, 4096, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_ERROR_INVALID_VALUE);
	/* What waits when it is destroyed ends first. */
	OK(cuStreamWaitValue32(first, address, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuEventDestroy_v2(end));
	OK(cuStreamDestroy_v2(first));
	OK(cuCtxSynchronize());
}
