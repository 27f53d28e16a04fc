/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which contexts this process has, and on which devices. */
#ifndef VGPU_DRIVER_CONTEXTS_H
#define VGPU_DRIVER_CONTEXTS_H

#include "process/process.h"

#include <stdbool.h>

struct vgpu_context {
	CUcontext handle; /* NULL: this entry is free */
	CUdevice ordinal;
	uint32_t device; /* index in vgpu_limits.device */
	bool primary;
	uint64_t promised_bytes; /* see context/overhead.h */
};

/* Whether the process has a context on the device, and a context's CUDA ordinal if it is known. */
bool vgpu_contexts_exist(struct vgpu_process *p, uint32_t device);
bool vgpu_contexts_ordinal(struct vgpu_process *p, CUcontext context, CUdevice *ordinal);
/* The primary context of the device, or one that was made of it by a green context; NULL when there is
 * none. */
CUcontext vgpu_contexts_primary(struct vgpu_process *p, CUdevice ordinal);

/* A context was made, unless it is known: the primary one is seen again each time that it is retained. */
void vgpu_contexts_count_made(struct vgpu_process *p, CUcontext context);
/* Notes the context unless it is known. False then, and when there is no room. */
bool vgpu_contexts_note(struct vgpu_process *p, CUcontext context, CUdevice ordinal, uint32_t device,
			bool primary);
/* Takes the note of the context away; puts it back. */
bool vgpu_contexts_take(struct vgpu_process *p, CUcontext context, struct vgpu_context *out);
void vgpu_contexts_put_back(struct vgpu_process *p, const struct vgpu_context *noted);

/* Changes what the context was promised, as far as it is known; the device then, or -1. */
int vgpu_contexts_promise_changed(struct vgpu_process *p, CUcontext context, uint64_t more, uint64_t less);

#endif
