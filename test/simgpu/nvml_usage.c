/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Utilisation over time, for the device and by process, and accounting, which is always on. Samples
 * are the whole buckets of the last 14 seconds. */
#define _GNU_SOURCE
#include "nvml.h"

#include <string.h>
#include <time.h>

#define SAMPLES 72u /* that much room a caller must have, however few processes there are */

/* The whole buckets that end after last (microseconds since 1970). */
struct window {
	uint64_t first, end; /* numbers of buckets */
	uint64_t to_real_ns; /* what to add to a monotonic time */
};

static struct window window_since(unsigned long long last)
{
	struct window window;
	struct timespec now;
	uint64_t mono = sim_now_ns();

	clock_gettime(CLOCK_REALTIME, &now);
	window.to_real_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec - mono;
	window.end = mono / SIM_BUCKET_NS;
	window.first = window.end > SAMPLES ? window.end - SAMPLES : 0;
	while (window.first < window.end &&
	       ((window.first + 1) * SIM_BUCKET_NS + window.to_real_ns) / 1000 <= last)
		window.first++;
	return window;
}

static unsigned long long stamp(const struct window *window, uint64_t number)
{
	return ((number + 1) * SIM_BUCKET_NS + window->to_real_ns) / 1000;
}

nvmlReturn_t sim_nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type, unsigned long long last,
				      int *value_type, unsigned int *count, nvmlSample_t *list)
{
	const struct sim_device_conf *conf;
	struct window window = window_since(last);
	unsigned n = 0;

	NEED(ml_device(device, &conf));
	if (count == NULL || value_type == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (type != NVML_GPU_UTILIZATION_SAMPLES && type != NVML_MEMORY_UTILIZATION_SAMPLES)
		return NVML_ERROR_NOT_SUPPORTED;
	*value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (list == NULL) {
		*count = SAMPLES;
		return NVML_SUCCESS;
	}
	if (window.first == window.end)
		return NVML_ERROR_NOT_FOUND;
	for (uint64_t b = window.first; b < window.end && n < *count; b++, n++) {
		memset(&list[n], 0, sizeof(list[n]));
		list[n].timeStamp = stamp(&window, b);
		if (type == NVML_GPU_UTILIZATION_SAMPLES)
			list[n].sampleValue.uiVal =
				(unsigned)(sim_time_bucket(device->device, b, 0) * 100 / SIM_BUCKET_NS);
	}
	*count = n;
	return NVML_SUCCESS;
}

static nvmlReturn_t usage(nvmlDevice_t device, unsigned long long last, unsigned *count,
			  nvmlProcessUtilizationInfo_v1_t list[SIM_MAX_PROCS])
{
	static __thread unsigned pid[SIM_MAX_PROCS];
	struct window window = window_since(last);
	unsigned users = ml_users(device, pid, SIM_MAX_PROCS);

	*count = 0;
	for (unsigned i = 0; i < users; i++) {
		nvmlProcessUtilizationInfo_v1_t one = { .pid = pid[i] };
		uint64_t busy = 0;

		for (uint64_t b = window.first; b < window.end; b++) {
			uint64_t part = sim_time_bucket(device->device, b, (int)pid[i]);

			busy += part;
			one.timeStamp = part != 0 ? stamp(&window, b) : one.timeStamp;
		}
		if (busy == 0)
			continue;
		one.smUtil = (unsigned)(busy * 100 / ((window.end - window.first) * SIM_BUCKET_NS));
		one.encUtil = one.decUtil = one.jpgUtil = one.ofaUtil = one.smUtil;
		list[(*count)++] = one;
	}
	return *count != 0 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* On whom of these a bucket is booked: who had more of it is it more often. NULL: none of them had any. */
static const unsigned *booked_on(nvmlDevice_t device, uint64_t bucket, const unsigned *pid, unsigned users)
{
	uint64_t part[SIM_MAX_PROCS], all = 0, at;

	for (unsigned i = 0; i < users; i++) {
		part[i] = sim_time_bucket(device->device, bucket, (int)pid[i]);
		all += part[i];
	}
	if (all == 0)
		return NULL;
	at = bucket * 0x9e3779b97f4a7c15ull % all; /* the same bucket is always the same process's */
	for (unsigned i = 0;; i++) {
		if (at < part[i])
			return &pid[i];
		at -= part[i];
	}
}

/* As an H100 has told it: an entry for each sample, which books all that the device was busy on one process,
 * in whole percent less a rest. Nothing is told of who has ended, nor of a time in which nobody was at
 * work. */
static unsigned each_sample(nvmlDevice_t device, const struct window *window,
			    nvmlProcessUtilizationSample_t list[SAMPLES])
{
	static __thread unsigned pid[SIM_MAX_PROCS];
	unsigned users = ml_users(device, pid, SIM_MAX_PROCS), n = 0;

	for (uint64_t b = window->first; b < window->end; b++) {
		const unsigned *who = booked_on(device, b, pid, users);
		unsigned percent = (unsigned)(sim_time_bucket(device->device, b, 0) * 100 / SIM_BUCKET_NS);

		if (who != NULL)
			list[n++] = (nvmlProcessUtilizationSample_t){ .pid = *who,
								      .timeStamp = stamp(window, b),
								      .smUtil = percent,
								      .encUtil = percent,
								      .decUtil = percent };
	}
	return n;
}

/* As an H200 tells it, and NVML's reference: of each process the mean of its samples, with the last one's
 * time. */
static unsigned means(const struct window *window, nvmlProcessUtilizationSample_t list[SAMPLES],
		      unsigned entries)
{
	unsigned processes = 0, all = (unsigned)(window->end - window->first);

	for (unsigned i = 0, k; i < entries; i++) {
		nvmlProcessUtilizationSample_t one = list[i];

		for (k = 0; k < processes && list[k].pid != one.pid; k++)
			;
		if (k == processes)
			list[processes++] = (nvmlProcessUtilizationSample_t){ .pid = one.pid };
		list[k].smUtil += one.smUtil;
		list[k].timeStamp = one.timeStamp;
	}
	for (unsigned k = 0; k < processes; k++)
		list[k].smUtil = list[k].encUtil = list[k].decUtil = list[k].smUtil / all;
	return processes;
}

nvmlReturn_t sim_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *list,
						 unsigned int *count, unsigned long long last)
{
	const struct sim_device_conf *conf;
	struct window window = window_since(last);
	unsigned n;

	NEED(ml_device(device, &conf));
	if (count == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sim_conf.no_usage_by_process)
		return NVML_ERROR_NOT_SUPPORTED;
	if (list == NULL || *count < SAMPLES) {
		*count = SAMPLES;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	n = each_sample(device, &window, list);
	if (n == 0)
		return NVML_ERROR_NOT_FOUND;
	*count = sim_conf.only_samples_by_process ? n : means(&window, list, n);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
						       nvmlProcessesUtilizationInfo_v1_t *info)
{
	static __thread nvmlProcessUtilizationInfo_v1_t all[SIM_MAX_PROCS];
	const struct sim_device_conf *conf;
	unsigned n;

	NEED(ml_device(device, &conf));
	if (info == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != NVML_STRUCT_V1(*info))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (sim_conf.no_usage_by_process || sim_conf.only_samples_by_process)
		return NVML_ERROR_NOT_SUPPORTED;
	if (info->procUtilArray == NULL || info->processSamplesCount < SAMPLES) {
		info->processSamplesCount = SAMPLES;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	NEED(usage(device, info->lastSeenTimeStamp, &n, all));
	n = n < info->processSamplesCount ? n : info->processSamplesCount;
	memcpy(info->procUtilArray, all, n * sizeof(*all));
	info->processSamplesCount = n;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *list)
{
	static __thread unsigned pid[SIM_MAX_PROCS];
	const struct sim_device_conf *conf;
	unsigned users, room;

	NEED(ml_device(device, &conf));
	if (count == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	users = ml_users(device, pid, SIM_MAX_PROCS);
	room = *count;
	*count = users;
	if (room < users)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	if (users > 0 && list == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (users > 0)
		memcpy(list, pid, users * sizeof(*pid));
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
					      nvmlAccountingStats_t *stats)
{
	static __thread nvmlProcessInfo_v2_t list[SIM_MAX_PROCS];
	unsigned count = SIM_MAX_PROCS;

	NEED(sim_nvmlDeviceGetComputeRunningProcesses_v3(device, &count, list));
	if (stats == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < count; i++)
		if (list[i].pid == pid) {
			*stats = (nvmlAccountingStats_t){.isRunning = 1,
							 .maxMemoryUsage = list[i].usedGpuMemory};
			return NVML_SUCCESS;
		}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t sim_nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
	nvmlAccountingStats_t one;

	if (stats == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	NEED(sim_nvmlDeviceGetAccountingStats(device, stats->pid, &one));
	*stats = (nvmlAccountingStats_v2_t){
		.pid = stats->pid, .isRunning = 1, .maxMemoryUsage = one.maxMemoryUsage};
	return NVML_SUCCESS;
}
