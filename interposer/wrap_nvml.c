/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One body per kind of row in api/nvml.def. */
#include "account.h"
#include "device.h"
#include "symbols.h"

#include <string.h>
#include <sys/mman.h>

#define WRAP(symbol, params)                                                                                \
	vgpu_fn_##symbol vgpu_wrap_##symbol;                                                                \
	extern vgpu_fn_##symbol symbol __attribute__((alias("vgpu_wrap_" #symbol), visibility("default"))); \
	nvmlReturn_t vgpu_wrap_##symbol params

/* real is the driver's function, p this process when its account is to be shown. */
#define BEGIN(symbol, args)                                   \
	vgpu_fn_##symbol *const real = VGPU_REAL(symbol);     \
	struct vgpu_process *p = vgpu_attach();               \
	if (real == NULL)                                     \
		return NVML_ERROR_FUNCTION_NOT_FOUND;         \
	if (vgpu_stage(p) == VGPU_REFUSED)                    \
		return NVML_ERROR_NO_PERMISSION;              \
	if (vgpu_stage(p) == VGPU_UNLIMITED)                  \
	return real args

/* More than a device has at any time. */
#define LISTED_PROCESSES 4096u

/* A device that the step has no slice of has no memory for it. */
static struct vgpu_view view_of(struct vgpu_process *p, int device)
{
	return device < 0 ? (struct vgpu_view){0} : vgpu_account_view(p, (uint32_t)device);
}

static unsigned long long least(unsigned long long a, unsigned long long b)
{
	return a < b ? a : b;
}

#define SHOW(memory, view)                                                          \
	do {                                                                        \
		(memory)->total = least((memory)->total, (view).total_bytes);       \
		(memory)->used = (memory)->total - least((memory)->total, (view).free_bytes); \
		(memory)->free = least((memory)->free, (view).free_bytes);          \
	} while (0)

#define WRAP_MEMORY(symbol, params, args, device, memory)                                 \
	WRAP(symbol, params)                                                              \
	{                                                                                 \
		BEGIN(symbol, args);                                                      \
		nvmlReturn_t result = real args;                                          \
                                                                                          \
		if (result == NVML_SUCCESS && (memory) != NULL) {                         \
			struct vgpu_view view = view_of(p, vgpu_device_of_nvml(device));  \
			SHOW(memory, view);                                               \
		}                                                                         \
		return result;                                                            \
	}

#define WRAP_MEMORY_V2(symbol, params, args, device, memory)                              \
	WRAP(symbol, params)                                                              \
	{                                                                                 \
		BEGIN(symbol, args);                                                      \
		nvmlReturn_t result = real args;                                          \
                                                                                          \
		if (result == NVML_SUCCESS && (memory) != NULL) {                         \
			struct vgpu_view view = view_of(p, vgpu_device_of_nvml(device));  \
			SHOW(memory, view);                                               \
			(memory)->reserved = 0;                                           \
		}                                                                         \
		return result;                                                            \
	}

#define WRAP_PROCESSES(symbol, params, args, device, count, list, type)                                      \
	WRAP(symbol, params)                                                                                 \
	{                                                                                                    \
		BEGIN(symbol, args);                                                                         \
		int index = vgpu_device_of_nvml(device);                                                     \
		unsigned int listed = LISTED_PROCESSES;                                                      \
		unsigned int own = 0;                                                                        \
		nvmlReturn_t result;                                                                         \
		type *all;                                                                                   \
                                                                                                             \
		if ((count) == NULL)                                                                         \
			return real args;                                                                    \
		all = mmap(NULL, LISTED_PROCESSES * sizeof(*all), PROT_READ | PROT_WRITE,                    \
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);                                              \
		if (all == MAP_FAILED)                                                                       \
			return NVML_ERROR_UNKNOWN;                                                           \
		result = real(device, &listed, all);                                                         \
		vgpu_account_sweep(p, false);                                                                \
		for (unsigned int i = 0; result == NVML_SUCCESS && i < listed && i < LISTED_PROCESSES; i++) { \
			uint64_t bytes;                                                                      \
                                                                                                             \
			if (index >= 0 && vgpu_account_of_pid(p, (int32_t)all[i].pid, (uint32_t)index, &bytes)) { \
				all[own] = all[i];                                                           \
				all[own++].usedGpuMemory = bytes;                                            \
			}                                                                                    \
		}                                                                                            \
		if (result == NVML_SUCCESS && own > 0 && (*(count) < own || (list) == NULL))                 \
			result = NVML_ERROR_INSUFFICIENT_SIZE;                                               \
		else if (result == NVML_SUCCESS && own > 0)                                                  \
			memcpy(list, all, own * sizeof(*all));                                               \
		if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE)                        \
			*(count) = own;                                                                      \
		munmap(all, LISTED_PROCESSES * sizeof(*all));                                                \
		return result;                                                                               \
	}

#define WRAP_USE(symbol, params, args)

#define VGPU_NVML(kind, symbol, params, args, ...) WRAP_##kind(symbol, params, args __VA_OPT__(,) __VA_ARGS__)
#include "api/nvml.def"
