/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_LIMIT 0xffffffffffffffffull

static char top[64], job[80], step[96];

/* A job's folder with a step's in it. False where this machine has no cgroup v2 that one may write. */
static bool make_folders(void)
{
	static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

	for (int i = 0; i < 2; i++) {
		char test[64];

		snprintf(test, sizeof(test), "%s/cgroup.procs", mounts[i]);
		snprintf(top, sizeof(top), "%s/simgpu-%d", mounts[i], (int)getpid());
		if (access(test, W_OK) != 0 || mkdir(top, 0755) != 0)
			continue;
		snprintf(job, sizeof(job), "%s/job_7", top);
		snprintf(step, sizeof(step), "%s/step_0", job);
		return mkdir(job, 0755) == 0 && mkdir(step, 0755) == 0;
	}
	return false;
}

static void enter(const char *folder)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/cgroup.procs", folder);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	TRUE(fd >= 0 && write(fd, "0", 1) == 1);
	close(fd);
}

static void remove_folders(void)
{
	char *slash = strrchr(top, '/');

	*slash = '\0';
	enter(top);
	*slash = '/';
	rmdir(step);
	rmdir(job);
	rmdir(top);
}

static nvmlReturn_t set(nvmlDevice_t device, const char *folder, unsigned long long hard)
{
	nvmlSetMemoryLimits_v1_t limits = {.nameSpace = folder, .hardLimit = hard};

	return nvmlDeviceSetMemoryLimits_v1(device, &limits);
}

static void expect(nvmlDevice_t device, const char *folder, unsigned long long hard, unsigned long long used)
{
	nvmlGetMemoryLimits_v1_t limits = {.nameSpace = folder};

	OK(nvmlDeviceGetMemoryLimits_v1(device, &limits));
	EQ(limits.hardLimit, hard);
	EQ(limits.currentUsed, used);
}

static void expect_none(nvmlDevice_t device, const char *folder)
{
	nvmlGetMemoryLimits_v1_t limits = {.nameSpace = folder};

	EQ(nvmlDeviceGetMemoryLimits_v1(device, &limits), NVML_ERROR_NOT_FOUND);
}

TEST(a_cgroup_has_what_its_limit_says)
{
	nvmlDevice_t device;
	CUdeviceptr p, q;

	configure("context_mib=100\nmemory_limits=1\n");
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	EQ(set(device, "/tmp", 1), NVML_ERROR_INVALID_ARGUMENT);
	EQ(set(device, "/no/such", 1), SIM_NVML_ERROR_OPERATING_SYSTEM);
	if (geteuid() != 0 || !make_folders())
		return;
	OK(set(device, job, 1000 * SIM_MIB));
	enter(step);
	start_cuda();
	OK(cuMemAlloc_v2(&p, 800 * SIM_MIB));
	expect(device, job, 1000 * SIM_MIB, 900 * SIM_MIB);
	EQ(cuMemAlloc_v2(&q, 200 * SIM_MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc_v2(&q, 100 * SIM_MIB));
	OK(cuMemFree_v2(q));
	/* The nearest limit counts, and no other. */
	OK(set(device, step, 2000 * SIM_MIB));
	OK(cuMemAlloc_v2(&q, 1000 * SIM_MIB));
	OK(cuMemFree_v2(q));
	OK(set(device, step, NO_LIMIT));
	EQ(cuMemAlloc_v2(&q, 200 * SIM_MIB), CUDA_ERROR_OUT_OF_MEMORY);
	OK(set(device, job, NO_LIMIT));
	OK(cuMemAlloc_v2(&q, 200 * SIM_MIB));
	expect_none(device, job);
	remove_folders();
}

TEST(a_limit_goes_with_its_folder)
{
	nvmlDevice_t device;

	configure("memory_limits=1\n");
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	if (geteuid() != 0 || !make_folders())
		return;
	OK(set(device, step, 1000 * SIM_MIB));
	TRUE(rmdir(step) == 0 && mkdir(step, 0755) == 0);
	expect_none(device, step);
	remove_folders();
}

TEST(an_older_driver_keeps_no_limits)
{
	nvmlGetMemoryLimits_v1_t limits = {.nameSpace = "/sys/fs/cgroup"};
	nvmlDevice_t device;

	configure("");
	OK(nvmlInit_v2());
	OK(nvmlDeviceGetHandleByIndex_v2(0, &device));
	EQ(set(device, "/sys/fs/cgroup", 1), NVML_ERROR_NOT_SUPPORTED);
	EQ(nvmlDeviceGetMemoryLimits_v1(device, &limits), NVML_ERROR_NOT_SUPPORTED);
}
