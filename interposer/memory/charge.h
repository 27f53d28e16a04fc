/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One allocation's way through the account: take before the driver is called, settle after it. */
#ifndef VGPU_MEMORY_CHARGE_H
#define VGPU_MEMORY_CHARGE_H

#include "memory/granules.h"
#include "process/process.h"

struct vgpu_charge {
	struct vgpu_process *process; /* NULL: nothing is counted */
	int device;
	uint64_t bytes;
};

/* The most that the driver takes for an allocation of so many bytes: whole granules of 2 MiB, which
 * those of up to 1 MiB share (measured on an H200, driver 580). */
uint64_t vgpu_charge_granules(uint64_t bytes);

/* The same of managed memory, of which larger blocks take pieces of 64 KiB, but for a last granule of
 * which they use more than half (measured there too). The driver keeps up to 128 MiB more of each GPU for
 * what all processes have together; that is charged to none of them. */
uint64_t vgpu_charge_managed(uint64_t bytes);

/* For what shares granules and has no address: its part of a granule that is full of the like. */
uint64_t vgpu_charge_share(uint64_t bytes);

/* Nothing yet: says for which process. Anything but CUDA_SUCCESS is the caller's answer. */
CUresult vgpu_charge_none(struct vgpu_charge *charge);

/* Charges what is about to be allocated on the device of the current context, or on a given one.
 * Anything but CUDA_SUCCESS is the caller's answer. */
CUresult vgpu_charge_current(struct vgpu_charge *charge, uint64_t bytes);
CUresult vgpu_charge_device(struct vgpu_charge *charge, CUdevice ordinal, uint64_t bytes);

/* Charges the difference when the driver took another amount than was foreseen. */
CUresult vgpu_charge_adjust(struct vgpu_charge *charge, uint64_t bytes);

/* The block shares granules: charges those that it has brought. */
void vgpu_charge_small(struct vgpu_charge *charge, CUdeviceptr pointer, uint64_t bytes, bool managed);

void vgpu_charge_cancel(struct vgpu_charge *charge);

#endif
