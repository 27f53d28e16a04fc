/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A job that this process is in and another job, both at work on the same GPU. A program that uses it hands
 * "work PERCENT" to work(). */
#ifndef VGPU_TEST_NEIGHBOURS_H
#define VGPU_TEST_NEIGHBOURS_H

#include "harness.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static struct step step;
static pid_t ours, theirs; /* processes of the job's own and of another job, at work */

CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
			unsigned bz, unsigned shared, CUstream stream, void **params, void **extra);

/* Holds 20 MiB and keeps the GPU busy for argument per cent of the time, for a minute. */
static int work(const char *percent)
{
	unsigned us = (unsigned)atoi(percent) * 1000;
	void *params[] = {&us};
	CUmodule module;
	CUfunction function;
	CUdeviceptr a;

	cuda_begin(0); /* on the GPUs of the case */
	if (cuMemAlloc_v2(&a, 20 * MIB) != CUDA_SUCCESS ||
	    cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)") != CUDA_SUCCESS ||
	    cuModuleGetFunction(&function, module, "simgpu_busy_us") != CUDA_SUCCESS || write(1, "x", 1) != 1)
		return 1;
	for (int tenths = 0; tenths < 600; tenths++) {
		if (us > 0 &&
		    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) != CUDA_SUCCESS)
			return 1;
		nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	}
	return 0;
}

static pid_t worker(const char *percent)
{
	int from[2];
	char byte;
	pid_t pid;

	if (pipe(from) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(from[1], 1);
		execl("/proc/self/exe", "worker", "work", percent, NULL);
		_exit(1);
	}
	close(from[1]);
	CHECK_IS(read(from[0], &byte, 1), 1);
	close(from[0]);
	return pid;
}

/* Another line of simgpu.conf, for programs that begin after this. */
static void add_to_conf(const char *line)
{
	char path[600];
	FILE *conf;

	snprintf(path, sizeof(path), "%s/simgpu.conf", getenv("SIMGPU_DIR"));
	conf = fopen(path, "a");
	CHECK(conf != NULL && fprintf(conf, "%s\n", line) > 0 && fclose(conf) == 0);
}

/* A job of 100 MiB on UUID0 that this process is in, and another job at work on the same GPU. */
static void two_jobs_here(const char *own_percent, const char *other_percent)
{
	static uint32_t job = 100;

	step_make(job++, 0, 1000, 1000);
	theirs = worker(other_percent);
	step = step_make(job++, 0, 100, 100);
	ours = worker(own_percent);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
}

static void two_jobs(const char *own_percent, const char *other_percent)
{
	gpus(0);
	two_jobs_here(own_percent, other_percent);
}

static void end_jobs(void)
{
	kill(ours, SIGKILL);
	kill(theirs, SIGKILL);
	while (wait(NULL) > 0)
		;
}

static nvmlDevice_t gpu0(void)
{
	nvmlDevice_t device = NULL;

	CHECK_IS(nvmlDeviceGetHandleByUUID(UUID0, &device), NVML_SUCCESS);
	return device;
}

/* Whether both are at work long enough that the driver has whole samples of it. */
static bool both_sampled(nvmlDevice_t device)
{
	for (int tries = 0; tries < 200; tries++) {
		nvmlUtilization_t rates = {0};

		if (nvmlDeviceGetUtilizationRates(device, &rates) == NVML_SUCCESS && rates.gpu >= 5)
			return true;
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	}
	return false;
}

#endif
