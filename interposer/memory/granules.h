/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The granules of 2 MiB that small blocks share. The driver takes a granule from the device for the
 * first block in it and gives it back with the last one (measured on an H200, driver 580), so it is
 * the granule that is charged: once, while a block of this process lies there. Which one a block
 * lies in tells its address; addresses of different contexts and devices are never the same.
 *
 * Whether the driver finds a place in a granule that it holds or takes another one is known only
 * afterwards. So a whole granule is charged before, and given back when it was not needed. Where
 * that much is not left, the block is refused, also if there was a place for it: asking the driver
 * would be a bet on the limit. What the last granules of a limit have free is lost by that, less
 * than 2 MiB for blocks of one size. */
#ifndef VGPU_MEMORY_GRANULES_H
#define VGPU_MEMORY_GRANULES_H

#include "process/process.h"

/* Counts a block in. Returns what of its granules was not held before. */
uint64_t vgpu_granules_hold(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes, uint32_t device,
			    bool managed);

/* Counts it out. Returns what of that is not held any more. */
uint64_t vgpu_granules_leave(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes);

#endif
