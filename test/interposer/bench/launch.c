/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches, in a process that is not gated and in one that is and stays below its cap, since it does other
 * things as well. Run under LD_PRELOAD. */
#include "bench.h"

#include <sys/wait.h>

#define KERNELS 20u
#define KERNEL_US 1u
#define WARM_UP 100000u
#define BETWEEN_BYTES (192u << 10) /* more than the nearest cache holds */

static CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
				 unsigned, CUstream, void **, void **);
static CUresult (*launch_ex)(const CUlaunchConfig *, CUfunction, void **, void **);
static CUfunction function[KERNELS];
static CUstream stream;
static unsigned turn;
static char between[BETWEEN_BYTES];
static unsigned sum;

static void other_things(void)
{
	for (unsigned i = 0; i < BETWEEN_BYTES; i += 64)
		sum += (unsigned)__atomic_load_n(&between[i], __ATOMIC_RELAXED);
}

static void kernel(void)
{
	unsigned us = KERNEL_US;
	void *params[] = {&us};

	turn++;
	launch_kernel(function[turn % KERNELS], 1 + turn % 3, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void ex(void)
{
	CUlaunchConfig config = {1 + turn % 3, 1, 1, 32, 1, 1, 0, stream, NULL, 0};
	unsigned us = KERNEL_US;
	void *params[] = {&us};

	turn++;
	launch_ex(&config, function[turn % KERNELS], params, NULL);
}

static void use(bench_lookup *lookup, void *library)
{
	if (lookup(library, "cuLaunchKernel", (void **)&launch_kernel) ||
	    lookup(library, "cuLaunchKernelEx", (void **)&launch_ex))
		exit(1);
}

/* A process of its own, as what it costs depends on the step. */
static bool measure(uint32_t job, bool gated, const struct bench_row *rows, size_t count)
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		struct step step = step_make(job, 0, 4000, 4000);
		void *library = dlopen("libcuda.so.1", RTLD_NOW);
		CUmodule module;

		step.limits->device[0].sm_percent = step.limits->device[0].job_sm_percent = 99;
		step.limits->device[0].gated = gated;
		step.limits->flags |= gated ? VGPU_GATED : 0;
		cuda_begin(0);
		if (bench_direct(library) == NULL || cuStreamCreate(&stream, 0) != CUDA_SUCCESS)
			exit(1);
		for (unsigned i = 0; i < KERNELS; i++) {
			if (cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)") !=
				    CUDA_SUCCESS ||
			    cuModuleGetFunction(&function[i], module, "simgpu_busy_us") != CUDA_SUCCESS)
				exit(1);
		}
		use(bench_ours, library);
		for (unsigned i = 0; i < WARM_UP; i++) {
			other_things();
			kernel();
		}
		for (size_t r = 0; r < count; r++)
			bench_print(&rows[r], use, library);
		exit(failures != 0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

int main(void)
{
	const struct bench_row none[] = {{"cuLaunchKernel", kernel, other_things},
					 {"cuLaunchKernelEx", ex, other_things}};
	const struct bench_row some[] = {{"cuLaunchKernel, gated", kernel, other_things},
					 {"cuLaunchKernelEx, gated", ex, other_things}};
	bool measured;

	gpus(0);
	setenv("CUDA_VISIBLE_DEVICES", UUID0, 1);
	bench_head("launches");
	measured = measure(1, false, none, sizeof(none) / sizeof(none[0])) &&
		   measure(2, true, some, sizeof(some) / sizeof(some[0]));
	remove_gpus();
	return measured ? 0 : 1;
}
