/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "charge.h"

#include "account.h"
#include "device.h"
#include "message.h"

#define SHARED_UP_TO (1ull << 20)
#define PIECE_BYTES 512ull
#define GRANULE_BYTES (2ull << 20)

uint64_t vgpu_charge_granules(uint64_t bytes)
{
	uint64_t to = bytes > SHARED_UP_TO ? GRANULE_BYTES : PIECE_BYTES;

	return bytes > UINT64_MAX - to ? bytes : (bytes + to - 1) / to * to;
}

static CUresult take(struct vgpu_charge *charge, int device, uint64_t bytes)
{
	struct vgpu_process *p = charge->process;

	charge->device = device;
	charge->bytes = bytes;
	if (device == VGPU_NO_DEVICE)
		return CUDA_SUCCESS; /* the driver will say so itself */
	if (device == VGPU_NOT_GRANTED) {
		vgpu_message_not_granted(p);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (vgpu_account_charge(p, (uint32_t)device, bytes))
		return CUDA_SUCCESS;
	vgpu_message_limit(p, (uint32_t)device, bytes);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult vgpu_charge_none(struct vgpu_charge *charge)
{
	struct vgpu_process *p = vgpu_attach();
	uint32_t stage = vgpu_stage(p);

	*charge = (struct vgpu_charge){.process = stage == VGPU_ATTACHED ? p : NULL, .device = VGPU_NO_DEVICE};
	if (stage != VGPU_REFUSED)
		return CUDA_SUCCESS;
	vgpu_message_refused(p);
	return CUDA_ERROR_NOT_PERMITTED;
}

CUresult vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes)
{
	CUresult result = vgpu_charge_none(charge);

	if (result != CUDA_SUCCESS || charge->process == NULL)
		return result;
	return take(charge, vgpu_device_of_current(charge->process), bytes);
}

CUresult vgpu_charge_device(struct vgpu_charge *charge, CUdevice ordinal, uint64_t bytes)
{
	CUresult result = vgpu_charge_none(charge);

	if (result != CUDA_SUCCESS || charge->process == NULL)
		return result;
	return take(charge, vgpu_device_of_ordinal(charge->process, ordinal), bytes);
}

CUresult vgpu_charge_adjust(struct vgpu_charge *charge, uint64_t bytes)
{
	if (charge->process == NULL || charge->device < 0)
		return CUDA_SUCCESS;
	if (bytes > charge->bytes) {
		uint64_t more = bytes - charge->bytes;

		if (!vgpu_account_charge(charge->process, (uint32_t)charge->device, more)) {
			vgpu_message_limit(charge->process, (uint32_t)charge->device, more);
			return CUDA_ERROR_OUT_OF_MEMORY;
		}
	} else {
		vgpu_account_give_back(charge->process, (uint32_t)charge->device, charge->bytes - bytes);
	}
	charge->bytes = bytes;
	return CUDA_SUCCESS;
}

void vgpu_charge_cancel(struct vgpu_charge *charge)
{
	if (charge->process != NULL && charge->device >= 0)
		vgpu_account_give_back(charge->process, (uint32_t)charge->device, charge->bytes);
	charge->bytes = 0;
}
