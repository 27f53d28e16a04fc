/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds PROCESSES, DETAILS, RATES, ENGINE, SAMPLES, USAGE, USAGE_V and PIDS: who uses a device, and how much of
 * it. The driver fills a list of our own, so that nothing of others is ever in the caller's memory. */
#ifndef VGPU_NVML_LISTS_H
#define VGPU_NVML_LISTS_H

/* Leaves the job's own processes of the list, with what the ledger says; how many these are. */
#define KEEP_PROCESSES(p, device, list, count)                                           \
	({                                                                               \
		int index_ = vgpu_device_of_nvml(device);                                \
		unsigned int own_ = 0;                                                   \
		uint64_t bytes_;                                                         \
                                                                                         \
		vgpu_account_sweep(p, false);                                            \
		for (unsigned int i_ = 0; i_ < (count) && i_ < VGPU_LISTED && index_ >= 0; i_++) { \
			if (!vgpu_account_of_pid(p, (int32_t)(list)[i_].pid, (uint32_t)index_, &bytes_)) \
				continue;                                                \
			(list)[own_] = (list)[i_];                                       \
			(list)[own_++].usedGpuMemory = bytes_;                           \
		}                                                                        \
		own_;                                                                    \
	})

/* Leaves the entries of a list that are the job's; member is where in them the pid is. */
#define KEEP_BY_PID(p, list, count, member)                                              \
	({                                                                               \
		unsigned int own_ = 0;                                                   \
                                                                                         \
		for (unsigned int i_ = 0; i_ < (count) && i_ < VGPU_LISTED; i_++) {      \
			if (vgpu_usage_own(p, (list)[i_] member))                        \
				(list)[own_++] = (list)[i_];                             \
		}                                                                        \
		own_;                                                                    \
	})

#define KEEP_PIDS(p, device, list, count) KEEP_BY_PID(p, list, count, )

/* Puts own entries of all into the caller's list with room for count of them, as the driver does it. */
#define HAND_OUT(result, list, count, all, own)                                                     \
	do {                                                                                        \
		if ((result) == NVML_SUCCESS && (own) > 0 && (list) == NULL && (count) > 0)         \
			(result) = NVML_ERROR_INVALID_ARGUMENT;                                     \
		else if ((result) == NVML_SUCCESS && (count) < (own))                               \
			(result) = NVML_ERROR_INSUFFICIENT_SIZE;                                    \
		else if ((result) == NVML_SUCCESS && (own) > 0)                                     \
			memcpy(list, all, (own) * sizeof(*(all)));                                  \
		(count) = (own);                                                                    \
	} while (0)

/* keep leaves the job's own entries, hand_out gives them to the caller. */
#define WRAP_LIST(symbol, params, args, device, count, list, type, keep, hand_out)       \
	WRAP(symbol, params)                                                             \
	{                                                                                \
		BEGIN(symbol, args);                                                     \
		unsigned int listed = VGPU_LISTED;                                       \
		unsigned int own = 0;                                                    \
		nvmlReturn_t result;                                                     \
		type *all;                                                               \
                                                                                         \
		if ((count) == NULL)                                                     \
			return real args;                                                \
		all = vgpu_listed_take(sizeof(*all));                                    \
		if (all == NULL)                                                         \
			return NVML_ERROR_UNKNOWN;                                       \
		result = real(device, &listed, all);                                     \
		if (result == NVML_SUCCESS) {                                            \
			own = keep(p, device, all, listed);                              \
			hand_out(result, list, *(count), all, own);                      \
		}                                                                        \
		vgpu_listed_drop(all, sizeof(*all));                                     \
		return result;                                                           \
	}

#define WRAP_PROCESSES(symbol, params, args, device, count, list, type) \
	WRAP_LIST(symbol, params, args, device, count, list, type, KEEP_PROCESSES, HAND_OUT)
#define WRAP_PIDS(symbol, params, args, device, count, list) \
	WRAP_LIST(symbol, params, args, device, count, list, unsigned int, KEEP_PIDS, HAND_OUT)

/* A version that is not known may hold what nobody has hidden: to us the driver is too old for it. */
#define WRAP_DETAILS(symbol, params, args, device, details)                                             \
	WRAP(symbol, params)                                                                            \
	{                                                                                               \
		BEGIN(symbol, args);                                                                    \
		nvmlProcessDetailList_v1_t all;                                                         \
		unsigned int own = 0;                                                                   \
		nvmlReturn_t result;                                                                    \
                                                                                                        \
		if ((details) == NULL)                                                                  \
			return real args;                                                               \
		if ((details)->version != NVML_STRUCT_V1(all))                                          \
			return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                                    \
		all = *(details);                                                                       \
		all.numProcArrayEntries = VGPU_LISTED;                                                  \
		all.procArray = vgpu_listed_take(sizeof(*all.procArray));                               \
		if (all.procArray == NULL)                                                              \
			return NVML_ERROR_UNKNOWN;                                                      \
		result = real(device, &all);                                                            \
		if (result == NVML_SUCCESS) {                                                           \
			own = KEEP_PROCESSES(p, device, all.procArray, all.numProcArrayEntries);        \
			HAND_OUT(result, (details)->procArray, (details)->numProcArrayEntries, all.procArray, own); \
		}                                                                                       \
		vgpu_listed_drop(all.procArray, sizeof(*all.procArray));                                \
		return result;                                                                          \
	}

/* Utilisation of the slice where it is known, else the driver's of the whole GPU. */
static unsigned int known_or(unsigned int percent, unsigned int of_all)
{
	return percent <= 100 ? percent : of_all;
}

#define WRAP_RATES(symbol, params, args, device, rates)                                             \
	WRAP(symbol, params)                                                                        \
	{                                                                                           \
		BEGIN(symbol, args);                                                                \
		nvmlReturn_t result = real args;                                                    \
		struct vgpu_usage usage;                                                            \
                                                                                                    \
		if (result == NVML_SUCCESS && (rates) != NULL && vgpu_usage_now(p, device, &usage)) \
			*(rates) = (nvmlUtilization_t){known_or(usage.sm, (rates)->gpu),            \
						       known_or(usage.memory, (rates)->memory)};    \
		return result;                                                                      \
	}

/* Of another engine than the multiprocessors; the sampling period stays the driver's. */
#define WRAP_ENGINE(symbol, params, args, device, percent, engine)                                  \
	WRAP(symbol, params)                                                                        \
	{                                                                                           \
		BEGIN(symbol, args);                                                                \
		nvmlReturn_t result = real args;                                                    \
		struct vgpu_usage usage;                                                            \
                                                                                                    \
		if (result == NVML_SUCCESS && (percent) != NULL && vgpu_usage_now(p, device, &usage) && \
		    usage.engine <= 100)                                                            \
			*(percent) = usage.engine;                                                  \
		return result;                                                                      \
	}

/* Only the mean over the whole time is known by process. */
#define WRAP_SAMPLES(symbol, params, args, device, type, last, value_type, count, list)                    \
	WRAP(symbol, params)                                                                               \
	{                                                                                                  \
		BEGIN(symbol, args);                                                                       \
		nvmlReturn_t result = real args;                                                           \
		struct vgpu_usage usage;                                                                   \
		unsigned int percent;                                                                      \
                                                                                                           \
		if (result != NVML_SUCCESS || (list) == NULL || *(value_type) != NVML_VALUE_TYPE_UNSIGNED_INT || \
		    !vgpu_usage_since(p, device, last, &usage))                                            \
			return result;                                                                     \
		percent = vgpu_usage_of_type(&usage, type);                                                \
		for (unsigned int i = 0; percent <= 100 && i < *(count); i++)                              \
			(list)[i].sampleValue.uiVal = percent;                                             \
		return result;                                                                             \
	}

/* Without a list the driver says how many samples it remembers at most, which is no secret. */
#define WRAP_USAGE(symbol, params, args, device, list, count, last)                  \
	WRAP(symbol, params)                                                         \
	{                                                                            \
		BEGIN(symbol, args);                                                 \
		nvmlProcessUtilizationSample_t *all;                                 \
		unsigned int listed = VGPU_LISTED;                                   \
		unsigned int own = 0;                                                \
		nvmlReturn_t result;                                                 \
                                                                                     \
		if ((count) == NULL || (list) == NULL)                               \
			return real args;                                            \
		all = vgpu_listed_take(sizeof(*all));                                \
		if (all == NULL)                                                     \
			return NVML_ERROR_UNKNOWN;                                   \
		result = real(device, all, &listed, last);                           \
		if (result == NVML_SUCCESS) {                                        \
			own = vgpu_usage_keep_samples(p, all, listed);               \
			if (own == 0)                                                \
				result = NVML_ERROR_NOT_FOUND;                       \
			else                                                         \
				HAND_OUT(result, list, *(count), all, own);          \
		}                                                                    \
		vgpu_listed_drop(all, sizeof(*all));                                 \
		return result;                                                       \
	}

#define WRAP_USAGE_V(symbol, params, args, device, usage)                                               \
	WRAP(symbol, params)                                                                            \
	{                                                                                               \
		BEGIN(symbol, args);                                                                    \
		nvmlProcessesUtilizationInfo_v1_t all;                                                  \
		unsigned int own = 0;                                                                   \
		nvmlReturn_t result;                                                                    \
                                                                                                        \
		if ((usage) == NULL)                                                                    \
			return real args;                                                               \
		if ((usage)->version != NVML_STRUCT_V1(all))                                            \
			return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                                    \
		if ((usage)->procUtilArray == NULL)                                                     \
			return real args;                                                               \
		all = *(usage);                                                                         \
		all.processSamplesCount = VGPU_LISTED;                                                  \
		all.procUtilArray = vgpu_listed_take(sizeof(*all.procUtilArray));                       \
		if (all.procUtilArray == NULL)                                                          \
			return NVML_ERROR_UNKNOWN;                                                      \
		result = real(device, &all);                                                            \
		(usage)->lastSeenTimeStamp = all.lastSeenTimeStamp;                                     \
		if (result == NVML_SUCCESS) {                                                           \
			own = vgpu_usage_keep_infos(p, all.procUtilArray, all.processSamplesCount);     \
			if (own == 0)                                                                   \
				result = NVML_ERROR_NOT_FOUND;                                          \
			else                                                                            \
				HAND_OUT(result, (usage)->procUtilArray, (usage)->processSamplesCount, all.procUtilArray, own); \
		}                                                                                       \
		vgpu_listed_drop(all.procUtilArray, sizeof(*all.procUtilArray));                        \
		return result;                                                                          \
	}

#endif
