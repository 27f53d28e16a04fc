/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One allocation's way through the account: take before the driver is called, settle after it. */
#ifndef VGPU_CHARGE_H
#define VGPU_CHARGE_H

#include "process.h"

struct vgpu_charge {
	struct vgpu_process *process; /* NULL: nothing is counted */
	int device;
	uint64_t bytes;
};

/* What the driver takes for an allocation of so many bytes: up to 1 MiB several share a granule of
 * 2 MiB, in pieces of 512 bytes; above it whole granules are taken (measured on an H200, driver 580). */
uint64_t vgpu_charge_granules(uint64_t bytes);

/* Nothing yet: says for which process. Anything but CUDA_SUCCESS is the caller's answer. */
CUresult vgpu_charge_none(struct vgpu_charge *charge);

/* Charges what is about to be allocated on the device of the current context, or on a given one.
 * Anything but CUDA_SUCCESS is the caller's answer. */
CUresult vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes);
CUresult vgpu_charge_device(struct vgpu_charge *charge, CUdevice ordinal, uint64_t bytes);

/* Charges the difference when the driver took another amount than was foreseen. */
CUresult vgpu_charge_adjust(struct vgpu_charge *charge, uint64_t bytes);

void vgpu_charge_cancel(struct vgpu_charge *charge);

#endif
