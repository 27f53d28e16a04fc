/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One body per kind of row in api/nvml.def. */
#include "account/account.h"
#include "account/attach.h"
#include "base/arithmetic.h"
#include "driver/device.h"
#include "nvml/devices.h"
#include "nvml/smi_table.h"
#include "nvml/usage.h"
#include "api/symbols.h"

#include <stddef.h>
#include <string.h>

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

/* Corrects the driver's answer by tell, if there is one. */
#define WRAP_TELL(symbol, params, args, out, tell)                                              \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		nvmlReturn_t result = real args;                                                \
                                                                                                \
		if (result == NVML_SUCCESS && (out) != NULL)                                    \
			tell;                                                                   \
		return result;                                                                  \
	}

/* A device that the step has no slice of has no memory for it. */
static struct vgpu_view view_of_handle(struct vgpu_process *p, nvmlDevice_t device)
{
	int index = vgpu_device_of_nvml(device);

	return index < 0 ? (struct vgpu_view){0} : vgpu_account_view(p, (uint32_t)index);
}

static void show(struct vgpu_view view, unsigned long long *total, unsigned long long *used,
		 unsigned long long *unused)
{
	*total = vgpu_smaller(*total, view.total_bytes);
	*used = *total - vgpu_smaller(*total, view.free_bytes);
	*unused = vgpu_smaller(*unused, view.free_bytes);
}

#define SHOW(view, memory) show(view, &(memory)->total, &(memory)->used, &(memory)->free)
#define WRAP_MEMORY(symbol, params, args, device, memory) \
	WRAP_TELL(symbol, params, args, memory, SHOW(view_of_handle(p, device), memory))
#define WRAP_MEMORY_V2(symbol, params, args, device, memory) \
	WRAP_TELL(symbol, params, args, memory, (SHOW(view_of_handle(p, device), memory), (memory)->reserved = 0))

/* It is mostly the CPU's window to the memory, so it is no larger than that, and what the step uses is
 * the most that its processes can have in it. */
static void show_bar1(struct vgpu_view view, nvmlBAR1Memory_t *memory)
{
	unsigned long long used = view.total_bytes - view.free_bytes;

	memory->bar1Total = vgpu_smaller(memory->bar1Total, view.total_bytes);
	memory->bar1Used = vgpu_smaller(vgpu_smaller(memory->bar1Used, used), memory->bar1Total);
	memory->bar1Free = memory->bar1Total - memory->bar1Used;
}

#define WRAP_BAR1(symbol, params, args, device, memory) \
	WRAP_TELL(symbol, params, args, memory, show_bar1(view_of_handle(p, device), memory))

/* Only MIG devices have attributes. */
static void show_attributes(struct vgpu_view view, nvmlDeviceAttributes_t *attributes)
{
	attributes->memorySizeMB = vgpu_smaller(attributes->memorySizeMB, view.total_bytes >> 20);
}

#define WRAP_ATTRIBUTES(symbol, params, args, device, attributes) \
	WRAP_TELL(symbol, params, args, attributes, show_attributes(view_of_handle(p, device), attributes))

#include "nvml/lists.h"
#include "nvml/engines.h"

#define WRAP_STATS(symbol, params, args, stats, pid)                     \
	WRAP(symbol, params)                                             \
	{                                                                \
		BEGIN(symbol, args);                                     \
		if ((stats) != NULL && !vgpu_usage_own(p, pid))          \
			return NVML_ERROR_NOT_FOUND;                     \
		return real args;                                        \
	}

#define WRAP_NAME(symbol, params, args, pid)                             \
	WRAP(symbol, params)                                             \
	{                                                                \
		BEGIN(symbol, args);                                     \
		return vgpu_usage_own(p, pid) ? real args : NVML_ERROR_NOT_FOUND; \
	}

#define WRAP_COUNT(symbol, params, args, count)                          \
	WRAP(symbol, params)                                             \
	{                                                                \
		BEGIN(symbol, args);                                     \
		nvmlReturn_t result = real args;                         \
                                                                         \
		return result == NVML_SUCCESS ? vgpu_nvml_count(count) : result; \
	}

#define WRAP_BY_INDEX(symbol, params, args, index, device)               \
	WRAP(symbol, params)                                             \
	{                                                                \
		BEGIN(symbol, args);                                     \
		return (device) == NULL ? real args : vgpu_nvml_by_index(index, device); \
	}

/* The driver's answer for a GPU that is not there. */
static nvmlReturn_t not_there(nvmlDevice_t *device, nvmlDevice_t before)
{
	*device = before;
	return NVML_ERROR_NOT_FOUND;
}

#define WRAP_BY_KEY(symbol, params, args, device)                                               \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		nvmlDevice_t before = (device) != NULL ? *(device) : NULL;                      \
		nvmlReturn_t result = real args;                                                \
                                                                                                \
		return result != NVML_SUCCESS || vgpu_nvml_granted(*(device)) ? result : not_there(device, before); \
	}

#define WRAP_INDEX(symbol, params, args, device, index)                                      \
	WRAP(symbol, params)                                                                 \
	{                                                                                    \
		BEGIN(symbol, args);                                                         \
		nvmlReturn_t result = real args;                                             \
                                                                                             \
		return result == NVML_SUCCESS ? vgpu_nvml_index_of(device, index) : result;  \
	}

/* The driver has said how many it lists: room for as many. */
static nvmlDevice_t *room_for(nvmlReturn_t *result, unsigned int *listed)
{
	nvmlDevice_t *all = *result == NVML_SUCCESS ? vgpu_listed_take(sizeof(*all)) : NULL;

	if (*result == NVML_SUCCESS && all == NULL)
		*result = NVML_ERROR_UNKNOWN;
	*listed = *listed < VGPU_LISTED_ENTRIES ? *listed : VGPU_LISTED_ENTRIES;
	return all;
}

static nvmlReturn_t hand_out_granted(nvmlReturn_t result, nvmlDevice_t *all, unsigned int listed,
				     unsigned int *count, nvmlDevice_t *list)
{
	unsigned int own = 0;

	for (unsigned int i = 0; result == NVML_SUCCESS && i < listed; i++) {
		if (vgpu_nvml_granted(all[i]))
			all[own++] = all[i];
	}
	if (result == NVML_SUCCESS) {
		own = *count > 0 && *count < own ? *count : own;
		if (*count > 0)
			memcpy(list, all, own * sizeof(*all));
		*count = own;
	}
	if (all != NULL)
		vgpu_listed_drop(all, sizeof(*all));
	return result;
}

#define WRAP_HANDLES(symbol, params, args, asked, count, list)                                  \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		return (count) == NULL || ((list) == NULL && *(count) > 0) ? real args : GRANTED(asked, count, list); \
	}
#define GRANTED(asked, count, list)                                                             \
	({                                                                                      \
		unsigned int listed = 0;                                                        \
		nvmlDevice_t *all = NULL;                                                       \
		nvmlReturn_t result = real asked;                                               \
                                                                                                \
		all = room_for(&result, &listed);                                               \
		if (result == NVML_SUCCESS && listed > 0)                                       \
			result = real asked;                                                    \
		hand_out_granted(result, all, listed, count, list);                             \
	})

/* nvidia-smi takes any answer but success for a wrong installation, so it gets one also where NVML
 * then refuses everything. */
#define WRAP_TABLE(symbol, params, args, table, uuid)                                           \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		vgpu_fn_##symbol *const real = VGPU_REAL(symbol);                               \
		nvmlReturn_t result = real != NULL ? real args : NVML_ERROR_FUNCTION_NOT_FOUND; \
                                                                                                \
		if (result == NVML_SUCCESS && (table) != NULL)                                  \
			*(table) = vgpu_nvml_table(*(table), uuid);                             \
		return result;                                                                  \
	}

#define WRAP_USE(symbol, params, args)

#define VGPU_NVML(kind, symbol, params, args, ...) WRAP_##kind(symbol, params, args __VA_OPT__(,) __VA_ARGS__)
#include "api/nvml.def"
#include "tuning.h"
