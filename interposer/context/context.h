/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How the contexts of this process begin and end. Which there are is in driver/contexts.h, what they cost in
 * overhead.h. */
#ifndef VGPU_CONTEXT_CONTEXT_H
#define VGPU_CONTEXT_CONTEXT_H

#include "driver/contexts.h"
#include "process/process.h"

/* A context that is about to be made, and what was charged for it. */
struct vgpu_coming {
	int device; /* negative: nothing is charged */
	uint64_t bytes;
	uint64_t cost_bytes; /* what it was found to cost */
};
/* False when it does not fit. primary: only if that is not there already. p may be NULL. */
bool vgpu_context_begin(struct vgpu_process *p, CUdevice ordinal, bool primary, struct vgpu_coming *coming);
/* The driver did not make it. */
void vgpu_context_failed(struct vgpu_process *p, const struct vgpu_coming *coming);

/* A context exists now. False when what it costs does not fit; the caller then destroys it, and calls
 * vgpu_context_undone. coming may be NULL when it was not begun. */
bool vgpu_context_made(struct vgpu_process *p, CUcontext context, CUdevice ordinal, bool primary,
		       struct vgpu_coming *coming);
void vgpu_context_undone(struct vgpu_process *p, CUdevice ordinal, const struct vgpu_coming *coming);

/* A green context holds the primary one, in which its memory lies. It is noted like a context of
 * that device, and so is the context that is made of it, which may have the same handle. */
bool vgpu_context_of_green(struct vgpu_process *p, CUcontext context, CUgreenCtx green);

/* A context is about to be destroyed; then it was, with all memory that was allocated in it, or it was
 * not. Its handle may be another context's as soon as the driver has taken it. noted: what the first
 * call has filled in, NULL if it returned false. */
bool vgpu_context_leaves(struct vgpu_process *p, CUcontext context, struct vgpu_context *noted);
void vgpu_context_left(struct vgpu_process *p, CUcontext context, const struct vgpu_context *noted);
void vgpu_context_stays(struct vgpu_process *p, CUcontext context, const struct vgpu_context *noted);

/* The context is gone: both at once. */
void vgpu_context_gone(struct vgpu_process *p, CUcontext context);

/* The context was detached from, which ends it when it has been attached to no more often than that. */
void vgpu_context_detached(struct vgpu_process *p, CUcontext context);

/* A heap of so many bytes will be made in the context (see overhead.h); and not any more. */
bool vgpu_context_promise(struct vgpu_process *p, CUcontext context, uint64_t bytes);
void vgpu_context_unpromise(struct vgpu_process *p, CUcontext context, uint64_t bytes);

/* The green context is gone. Its memory is the primary context's, if that lives. */
void vgpu_context_green_gone(struct vgpu_process *p, CUcontext green, CUdevice ordinal);

/* The primary context of the device may be gone: the driver says. */
void vgpu_context_primary_released(struct vgpu_process *p, CUdevice ordinal);

#endif
