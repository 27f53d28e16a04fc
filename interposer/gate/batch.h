/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches that may not begin yet and are held back on the GPU instead of on the host. They go into
 * their streams at once, behind a wait for a word (streams/semaphore.h), so that the program runs ahead of
 * the GPU as far as it would alone. They are let go in batches, in the order in which they came, each when
 * the slice has its turn and its share covers it. Then the GPU begins at once, with no host in between.
 *
 * A launch of which nobody knows how long it takes, or for which there is no place any more, waits on
 * the host. */
#ifndef VGPU_GATE_BATCH_H
#define VGPU_GATE_BATCH_H

#include "streams/engine.h"

#include <stdbool.h>

/* The batch that the launch will be let go with; 0: it must wait on the host. *reserved_ns is what will
 * be taken from the share for it: nothing when other streams have longer work in the same batch. *first:
 * nothing was held back before it, so that the poller does not know yet. places: how many the driver's
 * queue may need for it. */
uint64_t vgpu_batch_join(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
			 CUcontext context, uint64_t expected_ns, uint32_t places, uint64_t *reserved_ns,
			 bool *first);
/* Makes the stream wait for it, right before the launch. */
void vgpu_batch_wait(struct vgpu_process *p, struct vgpu_engine *engine, struct vgpu_stream *stream,
		     CUcontext context, CUstream handle, uint64_t batch);

/* Lets go what may begin now. Returns how long until it is worth to try again; 0: nothing is held back. */
uint64_t vgpu_batch_release(struct vgpu_process *p, uint32_t device);

/* Lets all of it go: a context ends. */
void vgpu_batch_release_all(struct vgpu_process *p, uint32_t device);

#endif
