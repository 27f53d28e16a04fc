/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_CONTEXT_OWN_H
#define VGPU_CONTEXT_OWN_H

#include "process/process.h"

/* The driver's own memory on a device: contexts, modules, stacks and heaps of kernels. */
struct vgpu_overhead {
	uint64_t bytes; /* charged */
	uint64_t promised_bytes; /* of these: heaps that the driver may not have made yet */
	uint64_t coming_bytes; /* and contexts that are being made */
	uint32_t contexts_coming;
	uint32_t is_guess; /* the driver could not be asked yet what the contexts take */
	uint64_t read_ns; /* when the driver was asked last */
	uint64_t measured_bytes; /* what it had taken then; UINT64_MAX: it did not say */
	uint64_t free_bytes; /* the device's free memory then */
	uint64_t allocated_bytes; /* and what this process had allocated */
	uint64_t managed_bytes; /* of that: managed memory */
};

struct vgpu_overheads {
	uint32_t mutex;
	uint32_t launched; /* as the process's when the driver was asked last */
	uint64_t every_ns; /* how often it is asked now */
	struct vgpu_overhead of[VGPU_MAX_DEVICES];
};
_Static_assert(sizeof(struct vgpu_overheads) <= VGPU_GATE_AT - VGPU_CONTEXT_AT, "it has room");

static inline struct vgpu_overheads *vgpu_overheads(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_CONTEXT_AT);
}

#endif
