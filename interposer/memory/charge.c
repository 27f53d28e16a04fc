/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/charge.h"

#include "account/account.h"
#include "account/attach.h"
#include "account/reclaim.h"
#include "base/arithmetic.h"
#include "driver/device.h"
#include "process/message.h"
#include "tuning.h"

uint64_t vgpu_charge_granules(uint64_t bytes)
{
	return vgpu_round_up(bytes, VGPU_GRANULE_BYTES);
}

uint64_t vgpu_charge_managed(uint64_t bytes)
{
	uint64_t rest = bytes % VGPU_GRANULE_BYTES;

	/* Of a granule that is used by more than half the driver fetches all. */
	if (bytes <= VGPU_SHARED_UP_TO_BYTES || rest > VGPU_GRANULE_BYTES / 2)
		return vgpu_charge_granules(bytes);
	return vgpu_round_up(bytes, VGPU_MANAGED_PIECE_BYTES);
}

uint64_t vgpu_charge_share(uint64_t bytes)
{
	uint64_t fit;

	if (bytes == 0 || bytes > VGPU_SHARED_UP_TO_BYTES)
		return vgpu_charge_granules(bytes);
	fit = VGPU_GRANULE_BYTES / vgpu_round_up(bytes, VGPU_SMALL_PIECE_BYTES);
	return (VGPU_GRANULE_BYTES + fit - 1) / fit;
}

static CUresult take_bytes(struct vgpu_charge *charge, int device, uint64_t bytes)
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

	*charge =
		(struct vgpu_charge){.process = stage == VGPU_ATTACHED ? p : NULL, .device = VGPU_NO_DEVICE};
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
	return take_bytes(charge, vgpu_device_of_current(charge->process), bytes);
}

CUresult vgpu_charge_device(struct vgpu_charge *charge, CUdevice ordinal, uint64_t bytes)
{
	CUresult result = vgpu_charge_none(charge);

	if (result != CUDA_SUCCESS || charge->process == NULL)
		return result;
	return take_bytes(charge, vgpu_device_of_ordinal(charge->process, ordinal), bytes);
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

void vgpu_charge_small(struct vgpu_charge *charge, CUdeviceptr pointer, uint64_t bytes, bool managed)
{
	uint64_t taken =
		vgpu_granules_hold(charge->process, pointer, bytes, (uint32_t)charge->device, managed);

	/* A block that lies in two new granules was not seen yet. */
	if (taken > charge->bytes)
		vgpu_account_force(charge->process, (uint32_t)charge->device, taken - charge->bytes);
	else
		vgpu_account_give_back(charge->process, (uint32_t)charge->device, charge->bytes - taken);
	charge->bytes = taken;
}

void vgpu_charge_cancel(struct vgpu_charge *charge)
{
	if (charge->process != NULL && charge->device >= 0)
		vgpu_account_give_back(charge->process, (uint32_t)charge->device, charge->bytes);
	charge->bytes = 0;
}
