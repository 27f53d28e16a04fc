/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "nvml/smi_table.h"

#include "account/account.h"
#include "account/attach.h"
#include "api/symbols.h"
#include "driver/device.h"

#include <string.h>

#define LISTS 3
static const unsigned int list_entry[LISTS] = {NVML_SMI_COMPUTE_LIST, NVML_SMI_GRAPHICS_LIST,
					       NVML_SMI_MPS_LIST};

static void *copy[NVML_SMI_TABLE_ENTRIES];
static void *driver_list[LISTS];

static nvmlReturn_t own_list(unsigned int which, nvmlDevice_t device, unsigned int *count,
			     struct vgpu_smi_process *list)
{
	vgpu_smi_list *real = (vgpu_smi_list *)__atomic_load_n(&driver_list[which], __ATOMIC_ACQUIRE);
	struct vgpu_process *p = vgpu_attach();
	nvmlReturn_t result;
	unsigned int own = 0;
	int index;

	if (vgpu_stage(p) == VGPU_REFUSED)
		return NVML_ERROR_NO_PERMISSION;
	result = real(device, count, list);
	if (vgpu_stage(p) == VGPU_UNLIMITED || result != NVML_SUCCESS || count == NULL || list == NULL)
		return result;
	index = vgpu_device_of_nvml(device);
	vgpu_account_sweep(p, false);
	for (unsigned int i = 0; i < *count; i++) {
		uint64_t bytes;

		if (index < 0 || !vgpu_account_of_pid(p, (int32_t)list[i].pid, (uint32_t)index, &bytes))
			continue;
		if (own != i)
			list[own] = list[i];
		list[own++].used_bytes = bytes;
	}
	memset(&list[own], 0, (*count - own) * sizeof(*list));
	*count = own;
	return result;
}

#define OWN_LIST(which)                                                                                           \
	static nvmlReturn_t own_list_##which(nvmlDevice_t device, unsigned int *count, struct vgpu_smi_process *list) \
	{                                                                                                         \
		return own_list(which, device, count, list);                                                      \
	}
OWN_LIST(0)
OWN_LIST(1)
OWN_LIST(2)

/* An entry means nothing without the version that it was seen in. */
static bool is_known_table(void *const *table, const void *uuid)
{
	static const unsigned char known[16] = NVML_SMI_TABLE_UUID;
	vgpu_fn_nvmlSystemGetDriverVersion *get_version = VGPU_REAL(nvmlSystemGetDriverVersion);
	char version[80];

	return memcmp(uuid, known, sizeof(known)) == 0 && (uintptr_t)table[0] == sizeof(copy) &&
	       get_version != NULL && get_version(version, sizeof(version)) == NVML_SUCCESS &&
	       strncmp(version, "580.", 4) == 0;
}

const void *vgpu_nvml_table(const void *given, const void *uuid)
{
	static vgpu_smi_list *const own[LISTS] = {own_list_0, own_list_1, own_list_2};
	void *const *table = given;

	if (given == NULL || uuid == NULL || !is_known_table(table, uuid))
		return given;
	for (unsigned int i = 0; i < LISTS; i++) {
		if (table[list_entry[i]] == NULL)
			return given;
		__atomic_store_n(&driver_list[i], table[list_entry[i]], __ATOMIC_RELEASE);
	}
	/* The driver has one table, so every thread writes the same. */
	for (unsigned int i = 0; i < NVML_SMI_TABLE_ENTRIES; i++) {
		void *entry = table[i];

		for (unsigned int l = 0; l < LISTS; l++)
			entry = i == list_entry[l] ? (void *)own[l] : entry;
		__atomic_store_n(&copy[i], entry, __ATOMIC_RELEASE);
	}
	return copy;
}
