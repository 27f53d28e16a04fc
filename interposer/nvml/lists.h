/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds PROCESSES, DETAILS, RATES, ENGINE, SAMPLES, USAGE, USAGE_V and PIDS: who uses a device, and how much
 * of it. The driver fills a list of our own, so that nothing of others is ever in the caller's memory. */
#ifndef VGPU_NVML_LISTS_H
#define VGPU_NVML_LISTS_H

#include "tuning.h"

/* An entry of a list of processes: how large it is, and where in it are the pid and what it uses. */
struct vgpu_entries {
	size_t bytes, pid_at, used_at;
};

#define ENTRIES(list) {sizeof(*(list)), offsetof(__typeof__(*(list)), pid), offsetof(__typeof__(*(list)), usedGpuMemory)}

static unsigned int word_of(const char *entry, size_t at)
{
	unsigned int word;

	memcpy(&word, entry + at, sizeof(word));
	return word;
}

/* Leaves the job's own processes of the list, with what the ledger says; how many these are. */
static unsigned int keep_processes(struct vgpu_process *p, nvmlDevice_t device, void *list,
				   unsigned int count, struct vgpu_entries of)
{
	int index = vgpu_device_of_nvml(device);
	char *entry = list, *own = list;
	uint64_t bytes;

	vgpu_account_sweep(p, false);
	for (unsigned int i = 0; i < count && i < VGPU_LISTED_ENTRIES && index >= 0; i++, entry += of.bytes) {
		if (!vgpu_account_of_pid(p, (int32_t)word_of(entry, of.pid_at), (uint32_t)index, &bytes))
			continue;
		memmove(own, entry, of.bytes);
		memcpy(own + of.used_at, &bytes, sizeof(bytes));
		own += of.bytes;
	}
	return (unsigned int)((size_t)(own - (char *)list) / of.bytes);
}

#define KEEP_PROCESSES(p, device, list, count) keep_processes(p, device, list, count, (struct vgpu_entries)ENTRIES(list))

/* Leaves the entries of a list that are the job's. */
static unsigned int keep_by_pid(struct vgpu_process *p, void *list, unsigned int count, size_t entry_bytes,
				size_t pid_at)
{
	char *entry = list, *own = list;

	for (unsigned int i = 0; i < count && i < VGPU_LISTED_ENTRIES; i++, entry += entry_bytes) {
		if (!vgpu_usage_own(p, word_of(entry, pid_at)))
			continue;
		memmove(own, entry, entry_bytes);
		own += entry_bytes;
	}
	return (unsigned int)((size_t)(own - (char *)list) / entry_bytes);
}

#define KEEP_PIDS(p, device, list, count) keep_by_pid(p, list, count, sizeof(*(list)), 0)

/* Puts own entries of all into the caller's list with room for *count of them, as the driver does it. */
static nvmlReturn_t hand_out(nvmlReturn_t result, void *list, unsigned int *count, const void *all,
			     unsigned int own, size_t entry_bytes)
{
	if (result != NVML_SUCCESS)
		return result;
	if (own > 0 && list == NULL && *count > 0)
		result = NVML_ERROR_INVALID_ARGUMENT;
	else if (*count < own)
		result = NVML_ERROR_INSUFFICIENT_SIZE;
	else if (own > 0)
		memcpy(list, all, own * entry_bytes);
	*count = own;
	return result;
}

/* The same, and the list of our own goes. */
static nvmlReturn_t hand_out_all(nvmlReturn_t result, void *list, unsigned int *count, void *all,
				 unsigned int own, size_t entry_bytes)
{
	result = hand_out(result, list, count, all, own, entry_bytes);
	if (all != NULL)
		vgpu_listed_drop(all, entry_bytes);
	return result;
}

/* keep leaves the job's own entries, hand_out gives them to the caller. */
#define WRAP_LIST(symbol, params, args, count, list, type, keep, hand_out)                      \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		unsigned int listed = VGPU_LISTED_ENTRIES;                                              \
		type *all = (count) != NULL ? vgpu_listed_take(sizeof(*all)) : NULL;            \
		nvmlReturn_t result = all != NULL ? real(device, &listed, all) : NVML_ERROR_UNKNOWN; \
		unsigned int own = result == NVML_SUCCESS ? keep(p, device, all, listed) : 0;   \
                                                                                                \
		return (count) == NULL ? real args : hand_out(result, list, count, all, own, sizeof(*all)); \
	}

#define WRAP_PROCESSES(symbol, params, args, device, count, list, type) \
	WRAP_LIST(symbol, params, args, count, list, type, KEEP_PROCESSES, hand_out_all)
#define WRAP_PIDS(symbol, params, args, device, count, list) \
	WRAP_LIST(symbol, params, args, count, list, unsigned int, KEEP_PIDS, hand_out_all)

/* A version that is not known may hold what nobody has hidden: to us the driver is too old for it. */
static nvmlReturn_t details_of(struct vgpu_process *p, vgpu_fn_nvmlDeviceGetRunningProcessDetailList *real,
			       nvmlDevice_t device, nvmlProcessDetailList_v1_t *details)
{
	nvmlProcessDetailList_v1_t all;
	nvmlReturn_t result;
	unsigned int own = 0;

	if (details->version != NVML_STRUCT_V1(all))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	all = *details;
	all.numProcArrayEntries = VGPU_LISTED_ENTRIES;
	all.procArray = vgpu_listed_take(sizeof(*all.procArray));
	if (all.procArray == NULL)
		return NVML_ERROR_UNKNOWN;
	result = real(device, &all);
	if (result == NVML_SUCCESS)
		own = KEEP_PROCESSES(p, device, all.procArray, all.numProcArrayEntries);
	return hand_out_all(result, details->procArray, &details->numProcArrayEntries, all.procArray, own,
			    sizeof(*all.procArray));
}

#define WRAP_DETAILS(symbol, params, args, device, details)                                     \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		return (details) == NULL ? real args : details_of(p, real, device, details);    \
	}

/* Utilisation of the slice where it is known, else the driver's of the whole GPU. */
static unsigned int known_or(unsigned int percent, unsigned int of_all)
{
	return percent <= 100 ? percent : of_all;
}

static void tell_rates(struct vgpu_process *p, nvmlDevice_t device, nvmlUtilization_t *rates)
{
	struct vgpu_usage usage;

	if (vgpu_usage_now(p, device, &usage))
		*rates = (nvmlUtilization_t){known_or(usage.sm, rates->gpu),
					     known_or(usage.memory, rates->memory)};
}

#define WRAP_RATES(symbol, params, args, device, rates) \
	WRAP_TELL(symbol, params, args, rates, tell_rates(p, device, rates))

/* Of another engine than the multiprocessors; the sampling period stays the driver's. */
#define WRAP_ENGINE(symbol, params, args, device, percent, engine)                              \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		nvmlReturn_t result = real args;                                                \
		struct vgpu_usage usage;                                                        \
                                                                                                \
		if (result == NVML_SUCCESS && (percent) != NULL && vgpu_usage_now(p, device, &usage)) \
			*(percent) = known_or(usage.engine, *(percent));                        \
		return result;                                                                  \
	}

/* Only the mean over the whole time is known by process. */
static void tell_samples(struct vgpu_process *p, nvmlDevice_t device, nvmlSamplingType_t type,
			 unsigned long long last, unsigned int count, nvmlSample_t *list)
{
	struct vgpu_usage usage;
	unsigned int percent;

	if (!vgpu_usage_since(p, device, last, &usage))
		return;
	percent = vgpu_usage_of_type(&usage, type);
	for (unsigned int i = 0; percent <= 100 && i < count; i++)
		list[i].sampleValue.uiVal = percent;
}

#define WRAP_SAMPLES(symbol, params, args, device, type, last, value_type, count, list)         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		nvmlReturn_t result = real args;                                                \
                                                                                                \
		if (result == NVML_SUCCESS && (list) != NULL && *(value_type) == NVML_VALUE_TYPE_UNSIGNED_INT) \
			tell_samples(p, device, type, last, *(count), list);                    \
		return result;                                                                  \
	}

/* Without a list the driver says how many samples it remembers at most, which is no secret. */
static nvmlReturn_t own_samples(struct vgpu_process *p, vgpu_fn_nvmlDeviceGetProcessUtilization *real,
				nvmlDevice_t device, nvmlProcessUtilizationSample_t *list,
				unsigned int *count, unsigned long long last)
{
	nvmlProcessUtilizationSample_t *all = vgpu_listed_take(sizeof(*all));
	unsigned int listed = VGPU_LISTED_ENTRIES, own = 0;
	nvmlReturn_t result;

	if (all == NULL)
		return NVML_ERROR_UNKNOWN;
	result = real(device, all, &listed, last);
	if (result == NVML_SUCCESS) {
		own = vgpu_usage_keep_samples(p, all, listed);
		result = own == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
	}
	return hand_out_all(result, list, count, all, own, sizeof(*all));
}

#define WRAP_USAGE(symbol, params, args, device, list, count, last)                             \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		return (count) == NULL || (list) == NULL ? real args : own_samples(p, real, device, list, count, last); \
	}

static nvmlReturn_t own_usage(struct vgpu_process *p, vgpu_fn_nvmlDeviceGetProcessesUtilizationInfo *real,
			      nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *usage)
{
	nvmlProcessesUtilizationInfo_v1_t all = *usage;
	unsigned int own = 0;
	nvmlReturn_t result;

	all.processSamplesCount = VGPU_LISTED_ENTRIES;
	all.procUtilArray = vgpu_listed_take(sizeof(*all.procUtilArray));
	if (all.procUtilArray == NULL)
		return NVML_ERROR_UNKNOWN;
	result = real(device, &all);
	usage->lastSeenTimeStamp = all.lastSeenTimeStamp;
	if (result == NVML_SUCCESS) {
		own = vgpu_usage_keep_infos(p, all.procUtilArray, all.processSamplesCount);
		result = own == 0 ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
	}
	return hand_out_all(result, usage->procUtilArray, &usage->processSamplesCount, all.procUtilArray, own,
			    sizeof(*all.procUtilArray));
}

#define WRAP_USAGE_V(symbol, params, args, device, usage)                                       \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		if ((usage) != NULL && (usage)->version != NVML_STRUCT_V1(*(usage)))            \
			return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                            \
		return (usage) == NULL || (usage)->procUtilArray == NULL ? real args : own_usage(p, real, device, usage); \
	}

#endif
