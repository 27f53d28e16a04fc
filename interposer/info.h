/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver says that the device has free, for cuMemGetInfo. That is less than what is left of
 * the slice only where somebody uses the GPU beyond all slices, so the driver's own figure need not
 * be of this very moment, and asking for it takes 3 µs (H200, driver 580). It is asked for once in a
 * millisecond, which is also how late an error shows that the driver would answer with; what this
 * process has allocated or freed since is counted in. What is left of the slice is never remembered. */
#ifndef VGPU_INFO_H
#define VGPU_INFO_H

#include "process.h"

/* False when the driver has to be asked. */
bool vgpu_info_recall(struct vgpu_process *p, CUcontext context, int *device, uint64_t *free_bytes,
		      uint64_t *total_bytes);
/* turn: as it was before the driver was asked. */
uint32_t vgpu_info_turn(struct vgpu_process *p);
void vgpu_info_remember(struct vgpu_process *p, uint32_t turn, CUcontext context, int device, uint64_t free_bytes,
			uint64_t total_bytes);
/* A context is gone. */
void vgpu_info_forget(struct vgpu_process *p);

#endif
