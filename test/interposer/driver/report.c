/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What NVML reports of this process, with lists of the test's own. */
#include "harness.h"
#include "whole.h"

#include "api/symbols.h"
#include "base/thread.h"
#include "driver/report.h"
#include "process/process.h"

#include <sys/mman.h>

struct vgpu_pages vgpu_pages;
struct vgpu_process *vgpu_this_process;
void *vgpu_real[VGPU_SYMBOLS];
static struct vgpu_limits limits;
static union whole_process whole;
static struct vgpu_process *const process = &whole.process;
static bool no_memory;

/* The linker leads the table's calls here (--wrap). */
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	return no_memory ? MAP_FAILED : __real_mmap(address, length, protection, flags, fd, offset);
}

static nvmlReturn_t init(void)
{
	return NVML_SUCCESS;
}

static nvmlReturn_t handle_by_uuid(const char *uuid, nvmlDevice_t *device)
{
	*device = strcmp(uuid, UUID0) == 0 ? (nvmlDevice_t)(uintptr_t)7 : NULL;
	return *device != NULL ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlProcessInfo_v2_t running[4];
static unsigned int running_count;
static nvmlReturn_t list_result;

static nvmlReturn_t list_running(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *infos)
{
	CHECK_IS((uintptr_t)device, 7);
	CHECK(*count >= running_count);
	if (list_result == NVML_SUCCESS)
		memcpy(infos, running, running_count * sizeof(*infos));
	*count = running_count;
	return list_result;
}

void *vgpu_real_look_up(enum vgpu_symbol symbol)
{
	switch (symbol) {
	case VGPU_SYMBOL_nvmlInit_v2:
		return (void *)init;
	case VGPU_SYMBOL_nvmlDeviceGetHandleByUUID:
		return (void *)handle_by_uuid;
	case VGPU_SYMBOL_nvmlDeviceGetComputeRunningProcesses_v3:
		return (void *)list_running;
	default:
		return NULL;
	}
}

bool vgpu_real_load_nvml(void)
{
	return true;
}

bool vgpu_thread_start(void *(*run)(void *), void *argument)
{
	(void)run, (void)argument;
	return false;
}

static void what_nvml_reports_of_this_process_is_added_up(void)
{
	uint64_t bytes = 5;

	strcpy(limits.device[0].uuid, UUID0);
	process->pid = 42;
	running_count = 4;
	running[0] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = 3 * MIB};
	running[1] = (nvmlProcessInfo_v2_t){.pid = 43, .usedGpuMemory = 100 * MIB};
	running[2] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = NVML_VALUE_NOT_AVAILABLE};
	running[3] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = 4 * MIB};
	CHECK(vgpu_report_bytes(process, 0, &bytes));
	CHECK_IS(bytes, 7 * MIB);
	list_result = NVML_ERROR_UNKNOWN;
	CHECK(!vgpu_report_bytes(process, 0, &bytes));
	CHECK_IS(bytes, 0);
	list_result = NVML_SUCCESS;
	running_count = 2;
	running[0].pid = 41;
	CHECK(!vgpu_report_bytes(process, 0, &bytes));
	CHECK(!vgpu_report_bytes(process, 1, &bytes));
}

static void without_memory_for_the_list_nothing_is_reported(void)
{
	uint64_t bytes = 5;

	strcpy(limits.device[0].uuid, UUID0);
	process->pid = 42;
	running_count = 1;
	running[0] = (nvmlProcessInfo_v2_t){.pid = 42, .usedGpuMemory = 3 * MIB};
	no_memory = true;
	CHECK(!vgpu_report_bytes(process, 0, &bytes));
	CHECK_IS(bytes, 0);
	no_memory = false;
	CHECK(vgpu_report_bytes(process, 0, &bytes));
	CHECK_IS(bytes, 3 * MIB);
}

int main(void)
{
	vgpu_pages.limits = &limits;
	gpus(0);
	CASE(what_nvml_reports_of_this_process_is_added_up);
	CASE(without_memory_for_the_list_nothing_is_reported);
	return summary();
}
