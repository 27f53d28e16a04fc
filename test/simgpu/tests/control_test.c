/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events where a control device says when kernels end. */
#define _GNU_SOURCE
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t device;

static void be_device(void)
{
	char program[512];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 64);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (n <= 0)
		_exit(1);
	program[n] = '\0';
	strcpy(strrchr(program, '/'), "/../sim/simgpu-control");
	execl(program, program, node_dir(), NULL);
	_exit(1);
}

static void start_device(void)
{
	char said[8] = "", path[512];
	int pipes[2];

	if (geteuid() != 0)
		test_skip("mounting takes root");
	OK(pipe(pipes));
	device = fork();
	if (device == 0) {
		dup2(pipes[1], 1);
		be_device();
	}
	close(pipes[1]);
	if (read(pipes[0], said, 6) != 6)
		test_skip("no FUSE file system can be mounted here");
	snprintf(path, sizeof(path), "%s/control/nvidiactl", node_dir());
	OK(access(path, R_OK));
}

static void stop_device(void)
{
	int status;

	kill(device, SIGTERM);
	waitpid(device, &status, 0);
	EQ(status, 0);
}

static CUfunction kernel(void)
{
	CUmodule module;
	CUfunction function;

	OK(cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)"));
	OK(cuModuleGetFunction(&function, module, "simgpu_busy_us"));
	return function;
}

static void launch(CUfunction function, CUstream stream, unsigned us)
{
	void *params[] = {&us};

	OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static long us_between(CUevent first, CUevent last)
{
	float ms = 0;

	OK(cuEventElapsedTime_v2(&ms, first, last));
	return (long)(ms * 1000 + 0.5f);
}

TEST(events_have_the_times_of_the_runlist)
{
	CUevent first, middle, last;
	CUfunction function;

	start_device();
	start_cuda();
	function = kernel();
	OK(cuEventCreate(&first, 0));
	OK(cuEventCreate(&middle, 0));
	OK(cuEventCreate(&last, 0));
	launch(function, NULL, 200000);
	OK(cuEventRecord(first, NULL));
	launch(function, NULL, 300000);
	OK(cuEventRecord(middle, NULL));
	launch(function, NULL, 5000);
	OK(cuEventRecord(last, NULL));
	EQ(cuEventQuery(middle), SIM_CUDA_ERROR_NOT_READY);
	EQ(cuStreamQuery(NULL), SIM_CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(middle));
	EQ(us_between(first, middle), 300000);
	OK(cuStreamSynchronize(NULL));
	OK(cuEventQuery(last));
	EQ(us_between(middle, last), 5000);
	stop_device();
}

TEST(a_word_behind_a_kernel_is_looked_at)
{
	CUfunction function;
	uint32_t *word;
	CUevent event;

	start_device();
	start_cuda();
	function = kernel();
	OK(cuMemHostAlloc((void **)&word, 4096, 2));
	OK(cuEventCreate(&event, 0));
	launch(function, NULL, 1000);
	OK(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_EQ));
	launch(function, NULL, 1000);
	OK(cuEventRecord(event, NULL));
	usleep(50000);
	EQ(cuEventQuery(event), SIM_CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(cuEventSynchronize(event));
	stop_device();
}

TEST(streams_wait_for_each_other)
{
	CUstream one, two;
	CUfunction function;
	CUevent begin, end;

	start_device();
	start_cuda();
	function = kernel();
	OK(cuStreamCreate(&one, SIM_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&two, SIM_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&begin, 0));
	OK(cuEventCreate(&end, 0));
	launch(function, one, 200000);
	OK(cuEventRecord(begin, one));
	OK(cuStreamWaitEvent(two, begin, 0));
	launch(function, two, 2000);
	OK(cuEventRecord(end, two));
	EQ(cuStreamQuery(two), SIM_CUDA_ERROR_NOT_READY);
	OK(cuStreamDestroy_v2(one));
	OK(cuCtxSynchronize());
	TRUE(us_between(begin, end) >= 2000);
	stop_device();
}

TEST(a_context_takes_its_kernels_along)
{
	CUcontext other;
	CUfunction function;

	start_device();
	start_cuda();
	OK(cuCtxCreate_v2(&other, 0, 0));
	launch(kernel(), NULL, 60000000);
	OK(cuCtxDestroy_v2(other));
	function = kernel();
	launch(function, NULL, 1000); /* it does not wait for a minute */
	OK(cuCtxSynchronize());
	stop_device();
}

TEST(nothing_waits_for_a_device_that_is_gone)
{
	CUfunction function;

	start_device();
	start_cuda();
	function = kernel();
	launch(function, NULL, 60000000);
	stop_device();
	OK(cuCtxSynchronize());
}
