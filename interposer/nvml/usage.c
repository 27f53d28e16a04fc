/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "nvml/usage.h"

#include "account/account.h"
#include "api/symbols.h"
#include "base/futex.h"
#include "driver/device.h"
#include "nvml/samples.h"
#include "process/counted.h"
#include "tuning.h"

#include <sys/mman.h>
#include <time.h>

void *vgpu_listed_take(size_t entry_bytes)
{
	void *list = mmap(NULL, VGPU_LISTED_ENTRIES * entry_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return list == MAP_FAILED ? NULL : list;
}

void vgpu_listed_drop(void *list, size_t entry_bytes)
{
	munmap(list, VGPU_LISTED_ENTRIES * entry_bytes);
}

bool vgpu_usage_own(struct vgpu_process *p, unsigned int pid)
{
	uint64_t bytes;

	return vgpu_account_of_pid(p, (int32_t)pid, 0, &bytes);
}

#define KEEP(p, list, count)                                                        \
	do {                                                                        \
		unsigned int own = 0;                                               \
                                                                                    \
		for (unsigned int i = 0; i < (count) && i < VGPU_LISTED_ENTRIES; i++) {     \
			if (vgpu_usage_own(p, (list)[i].pid))                       \
				(list)[own++] = (list)[i];                          \
		}                                                                   \
		return own;                                                         \
	} while (0)

unsigned int vgpu_usage_keep_samples(struct vgpu_process *p, nvmlProcessUtilizationSample_t *list,
				     unsigned int count)
{
	KEEP(p, list, count);
}

unsigned int vgpu_usage_keep_infos(struct vgpu_process *p, nvmlProcessUtilizationInfo_v1_t *list,
				   unsigned int count)
{
	KEEP(p, list, count);
}

/* Drivers have been seen to answer with numbers that are no percentages. */
static void add_percent(unsigned int *sum, unsigned int percent)
{
	if (percent <= 100)
		*sum += percent; /* of VGPU_LISTED_ENTRIES at most */
}

static unsigned int mean_of_samples(unsigned int sum, unsigned int samples)
{
	unsigned int percent = (sum + samples / 2) / samples;

	return percent < 100 ? percent : 100;
}

/* Makes means of sums. */
static void divide(struct vgpu_usage *usage, unsigned int samples)
{
	unsigned int *const sums[] = {&usage->sm,      &usage->memory, &usage->encoder,
				      &usage->decoder, &usage->jpeg,   &usage->optical_flow};

	for (unsigned int i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		*sums[i] = mean_of_samples(*sums[i], samples);
}

/* The figures in the answers of both functions. */
#define SUM(usage, one)                                  \
	do {                                             \
		add_percent(&(usage)->sm, (one).smUtil);         \
		add_percent(&(usage)->memory, (one).memUtil);    \
		add_percent(&(usage)->encoder, (one).encUtil);   \
		add_percent(&(usage)->decoder, (one).decUtil);   \
	} while (0)

static unsigned long long real_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (unsigned long long)now.tv_sec * 1000000u + (unsigned long long)now.tv_nsec / 1000u;
}

/* Both: the driver's result, and what the job's processes had together when it is a success. */
static nvmlReturn_t ask_infos(struct vgpu_process *p, nvmlDevice_t device, unsigned long long last,
			      struct vgpu_usage *usage)
{
	vgpu_fn_nvmlDeviceGetProcessesUtilizationInfo *ask = VGPU_REAL(nvmlDeviceGetProcessesUtilizationInfo);
	nvmlProcessesUtilizationInfo_v1_t all = {.version = NVML_STRUCT_V1(nvmlProcessesUtilizationInfo_v1_t),
						 .processSamplesCount = VGPU_LISTED_ENTRIES,
						 .lastSeenTimeStamp = last};
	nvmlReturn_t result;
	unsigned int own = 0;

	if (ask == NULL)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	all.procUtilArray = vgpu_listed_take(sizeof(*all.procUtilArray));
	if (all.procUtilArray == NULL)
		return NVML_ERROR_UNKNOWN;
	result = ask(device, &all);
	if (result == NVML_SUCCESS)
		own = vgpu_usage_keep_infos(p, all.procUtilArray, all.processSamplesCount);
	for (unsigned int i = 0; i < own; i++) {
		SUM(usage, all.procUtilArray[i]);
		add_percent(&usage->jpeg, all.procUtilArray[i].jpgUtil);
		add_percent(&usage->optical_flow, all.procUtilArray[i].ofaUtil);
	}
	divide(usage, 1);
	vgpu_listed_drop(all.procUtilArray, sizeof(*all.procUtilArray));
	return result;
}

/* Whether some process has several entries: then each entry is a sample, and otherwise a process's mean. */
static bool has_single_samples(const nvmlProcessUtilizationSample_t *list, unsigned int count)
{
	for (unsigned int i = 1; i < count; i++) {
		for (unsigned int k = 0; k < i; k++) {
			if (list[i].pid == list[k].pid)
				return true;
		}
	}
	return false;
}

/* Over how many samples the percents of a list are to be spread. */
static unsigned int samples_of(const nvmlProcessUtilizationSample_t *list, unsigned int count,
			       unsigned long long last)
{
	unsigned int samples = 1;
	uint64_t *ends;

	if (!has_single_samples(list, count))
		return samples;
	ends = vgpu_listed_take(sizeof(*ends));
	if (ends == NULL)
		return count;
	for (unsigned int i = 0; i < count; i++)
		ends[i] = list[i].timeStamp;
	samples = vgpu_samples_taken(ends, count, last, real_us());
	vgpu_listed_drop(ends, sizeof(*ends));
	return samples;
}

static nvmlReturn_t ask_samples(struct vgpu_process *p, nvmlDevice_t device, unsigned long long last,
				struct vgpu_usage *usage)
{
	vgpu_fn_nvmlDeviceGetProcessUtilization *ask = VGPU_REAL(nvmlDeviceGetProcessUtilization);
	unsigned int count = VGPU_LISTED_ENTRIES;
	unsigned int own = 0, samples = 1;
	nvmlProcessUtilizationSample_t *list;
	nvmlReturn_t result;

	if (ask == NULL)
		return NVML_ERROR_FUNCTION_NOT_FOUND;
	list = vgpu_listed_take(sizeof(*list));
	if (list == NULL)
		return NVML_ERROR_UNKNOWN;
	result = ask(device, list, &count, last);
	if (result == NVML_SUCCESS) {
		count = count < VGPU_LISTED_ENTRIES ? count : VGPU_LISTED_ENTRIES;
		samples = samples_of(list, count, last);
		own = vgpu_usage_keep_samples(p, list, count);
	}
	for (unsigned int i = 0; i < own; i++)
		SUM(usage, list[i]);
	divide(usage, samples);
	usage->jpeg = usage->optical_flow = UINT32_MAX;
	vgpu_listed_drop(list, sizeof(*list));
	return result;
}

/* vgpud counts what the slice takes of the multiprocessors over half a second, whatever since. */
static bool counted(nvmlDevice_t device, unsigned int *percent)
{
	int index = vgpu_device_of_nvml(device);
	struct vgpu_time_device time;

	if (index < 0 || !vgpu_counted((uint32_t)index, vgpu_now_ns(), &time))
		return false;
	*percent = time.percent < 10000 ? (time.percent + 50) / 100 : 100;
	return true;
}

bool vgpu_usage_since(struct vgpu_process *p, nvmlDevice_t device, unsigned long long last,
		      struct vgpu_usage *usage)
{
	nvmlReturn_t result;
	bool answered;

	*usage = (struct vgpu_usage){0};
	vgpu_account_sweep(p, false);
	/* On newer GPUs the older function knows every process and no utilisation. */
	result = ask_infos(p, device, last, usage);
	if (result != NVML_SUCCESS && result != NVML_ERROR_NOT_FOUND)
		result = ask_samples(p, device, last, usage);
	/* Not found: nobody has used it. */
	answered = result == NVML_SUCCESS || result == NVML_ERROR_NOT_FOUND;
	if (!answered)
		*usage = (struct vgpu_usage){UINT32_MAX, UINT32_MAX, UINT32_MAX,
					     UINT32_MAX, UINT32_MAX, UINT32_MAX};
	return counted(device, &usage->sm) || answered;
}

bool vgpu_usage_now(struct vgpu_process *p, nvmlDevice_t device, struct vgpu_usage *usage)
{
	return vgpu_usage_since(p, device, real_us() - VGPU_USAGE_WINDOW_US, usage);
}

unsigned int vgpu_usage_of_type(const struct vgpu_usage *usage, nvmlSamplingType_t type)
{
	switch (type) {
	case NVML_GPU_UTILIZATION_SAMPLES:
		return usage->sm;
	case NVML_MEMORY_UTILIZATION_SAMPLES:
		return usage->memory;
	case NVML_ENC_UTILIZATION_SAMPLES:
		return usage->encoder;
	case NVML_DEC_UTILIZATION_SAMPLES:
		return usage->decoder;
	case NVML_JPG_UTILIZATION_SAMPLES:
		return usage->jpeg;
	case NVML_OFA_UTILIZATION_SAMPLES:
		return usage->optical_flow;
	default:
		return UINT32_MAX;
	}
}
