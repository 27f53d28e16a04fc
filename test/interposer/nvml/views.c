/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What NVML shows, and what contexts cost. */
#include "harness.h"

#include <signal.h>
#include <sys/wait.h>

static struct step step;

static nvmlDevice_t device_handle(unsigned int index)
{
	nvmlDevice_t device = NULL;

	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetHandleByIndex_v2(index, &device), NVML_SUCCESS);
	return device;
}

static void nvml_memory_is_the_slice(void)
{
	nvmlMemory_v2_t v2 = {.version = NVML_MEMORY_V2};
	nvmlMemory_t v1;
	CUdeviceptr a;

	gpus(0);
	step = step_make(1, 0, 100, 100);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(nvmlDeviceGetMemoryInfo(device_handle(0), &v1), NVML_SUCCESS);
	CHECK_IS(v1.total, 100 * MIB);
	CHECK_IS(v1.used, 30 * MIB);
	CHECK_IS(v1.free, 70 * MIB);
	CHECK_IS(nvmlDeviceGetMemoryInfo_v2(device_handle(0), &v2), NVML_SUCCESS);
	CHECK_IS(v2.total, 100 * MIB);
	CHECK_IS(v2.used, 30 * MIB);
	CHECK_IS(v2.free, 70 * MIB);
	CHECK_IS(v2.reserved, 0);
	v2.version = 1;
	CHECK(nvmlDeviceGetMemoryInfo_v2(device_handle(0), &v2) != NVML_SUCCESS);
}

/* Holds 20 MiB of the step in the environment until its standard input ends. */
static int hold(void)
{
	CUdeviceptr a;
	char byte;

	gpus(0);
	cuda_begin(0);
	if (cuMemAlloc_v2(&a, 20 * MIB) != CUDA_SUCCESS || write(1, "x", 1) != 1)
		return 1;
	return read(0, &byte, 1) == 0 ? 0 : 1;
}

static pid_t holder(int *keep_open)
{
	int to[2], from[2];
	char byte;
	pid_t pid;

	if (pipe(to) != 0 || pipe(from) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		execl("/proc/self/exe", "self", "hold", NULL);
		_exit(1);
	}
	close(to[0]);
	close(from[1]);
	CHECK_IS(read(from[0], &byte, 1), 1);
	*keep_open = to[1];
	return pid;
}

/* Both layouts of an entry, through every function that lists them. */
#define CHECK_LIST(function, type, expected)                                                              \
	do {                                                                                              \
		type list[16];                                                                            \
		unsigned int count = 0;                                                                   \
		nvmlReturn_t empty = function(device, &count, NULL);                                      \
                                                                                                          \
		CHECK_IS(empty, (expected) > 0 ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);            \
		CHECK_IS(count, expected);                                                                \
		count = 5;                                                                                \
		empty = function(device, &count, NULL);                                                   \
		CHECK_IS(empty, (expected) > 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS);             \
		CHECK_IS(count, expected);                                                                \
		count = 16;                                                                               \
		CHECK_IS(function(device, &count, list), NVML_SUCCESS);                                   \
		CHECK_IS(count, expected);                                                                \
		for (unsigned int i = 0; i < count; i++) {                                                \
			CHECK(list[i].pid == (unsigned int)getpid() || list[i].pid == (unsigned int)ours); \
			CHECK_IS(list[i].usedGpuMemory, list[i].pid == (unsigned int)getpid() ? 30 * MIB : 20 * MIB); \
		}                                                                                         \
		CHECK(function(device, NULL, NULL) != NVML_SUCCESS);                                      \
	} while (0)

static void lists_show_only_the_jobs_own_processes(void)
{
	struct step other;
	int keep_ours, keep_theirs;
	pid_t ours, theirs;
	nvmlDevice_t device;
	CUdeviceptr a;

	gpus(0);
	other = step_make(3, 0, 100, 100);
	theirs = holder(&keep_theirs);
	(void)other;
	step = step_make(2, 0, 100, 100);
	ours = holder(&keep_ours);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	device = device_handle(0);
	CHECK_LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, 2);
	CHECK_LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 2);
	CHECK_LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, 2);
	CHECK_LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, 0);
	CHECK_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, 0);
	CHECK_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, 0);
	CHECK_LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, 0);
	CHECK_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, 0);
	CHECK_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, 0);
	kill(ours, SIGKILL);
	kill(theirs, SIGKILL);
	while (wait(NULL) > 0)
		;
}

static void a_context_costs_what_the_driver_reports(void)
{
	size_t free_bytes, total_bytes;
	CUcontext primary, second;
	CUdeviceptr a;
	int active = 1;
	unsigned int flags;

	gpus(518);
	step = step_make(4, 0, 3000, 3000);
	cuda_begin(0);
	CHECK_IS(step.ledger->used_bytes[0], 518 * MIB);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, (3000 - 518) * MIB);
	CHECK_IS(total_bytes, 3000 * MIB);
	/* Retaining it again costs nothing. */
	CHECK_IS(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 518 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 618 * MIB);
	CHECK_IS(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	CHECK(step.ledger->used_bytes[0] >= 628 * MIB);
	CHECK_IS(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 618 * MIB);
	CHECK_IS(cuCtxSetCurrent(primary), CUDA_SUCCESS);
	CHECK_IS(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 618 * MIB);
	/* With the last reference go the context and all that was allocated in it. */
	CHECK_IS(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
	CHECK_IS(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
	CHECK_IS(active, 0);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

static void a_reset_gives_back_the_contexts_memory(void)
{
	CUcontext context;
	CUdeviceptr a;

	gpus(0);
	step = step_make(5, 0, 100, 100);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
	CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

static void every_way_to_make_a_context_is_noticed(void)
{
	CUcontext context;
	CUdeviceptr a;

	gpus(0);
	step = step_make(6, 0, 100, 100);
	cuda_begin(0);
#define CHECK_CONTEXT(create, destroy)                                \
	do {                                                          \
		CHECK_IS(create, CUDA_SUCCESS);                       \
		CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);  \
		CHECK_IS(step.ledger->used_bytes[0], 60 * MIB);       \
		CHECK_IS(destroy, CUDA_SUCCESS);                      \
		CHECK_IS(step.ledger->used_bytes[0], 0);              \
	} while (0)
	CHECK_CONTEXT(cuCtxCreate(&context, 0, 0), cuCtxDestroy(context));
	CHECK_CONTEXT(cuCtxCreate_v2(&context, 0, 0), cuCtxDestroy_v2(context));
	CHECK_CONTEXT(cuCtxCreate_v3(&context, NULL, 0, 0, 0), cuCtxDestroy_v2(context));
	CHECK_CONTEXT(cuCtxCreate_v4(&context, NULL, 0, 0), cuCtxDestroy_v2(context));
}

static void a_context_that_does_not_fit_is_refused(void)
{
	CUcontext context;
	unsigned int flags;
	int active = 1;

	gpus(518);
	step = step_make(7, 0, 300, 300);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	stderr_catch();
	CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(strstr(stderr_caught(), "518 MiB asked for, 0 of 300 MiB") != NULL);
	CHECK_IS(cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
	CHECK_IS(active, 0);
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "hold") == 0)
		return hold();
	gpus(0);
	CASE(nvml_memory_is_the_slice);
	CASE(lists_show_only_the_jobs_own_processes);
	CASE(a_context_costs_what_the_driver_reports);
	CASE(a_reset_gives_back_the_contexts_memory);
	CASE(every_way_to_make_a_context_is_noticed);
	CASE(a_context_that_does_not_fit_is_refused);
	return summary();
}
