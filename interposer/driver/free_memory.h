/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver says that the device has free, for cuMemGetInfo. That is less than what is left of
 * the slice only where somebody uses the GPU beyond all slices, or the driver keeps the last of it for
 * managed memory (memory/charge.h), so its own figure need not be of this very moment, and asking for it
 * takes 3 µs (H200, driver 580). It is asked for once in a millisecond, which is also how late an error shows
 * that the driver would answer with; what this process has allocated since is counted in. What is left
 * of the slice is never remembered. */
#ifndef VGPU_DRIVER_FREE_MEMORY_H
#define VGPU_DRIVER_FREE_MEMORY_H

#include "process/process.h"

struct vgpu_recalled {
	int device;
	uint64_t free_bytes, total_bytes;
	bool more_since; /* this process has freed something: there is more than free_bytes now */
};
/* False when the driver has to be asked. */
bool vgpu_free_memory_recall(struct vgpu_process *p, CUcontext context, struct vgpu_recalled *recalled);
/* Before the driver is asked, and with what it has answered. */
struct vgpu_free_memory_query {
	uint32_t sequence;
	int device;
	uint64_t held_bytes;
};
struct vgpu_free_memory_query vgpu_free_memory_query(struct vgpu_process *p, int device);
void vgpu_free_memory_remember(struct vgpu_process *p, const struct vgpu_free_memory_query *query,
			       CUcontext context, uint64_t free_bytes, uint64_t total_bytes);
/* A context is gone. */
void vgpu_free_memory_forget(struct vgpu_process *p);

#endif
