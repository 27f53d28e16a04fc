/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Timing one launch on the GPU, for cost.h. A pair of timed events around a kernel would also time
 * how long the program takes to launch it, when the GPU has nothing else to do; so the stream is
 * made to wait in front of the first event until kernel and second event are queued. On an H200 that
 * gives what NVML counts within 0.2 µs, for kernels from 1.5 to 200 µs. */
#ifndef VGPU_SAMPLE_H
#define VGPU_SAMPLE_H

#include "process.h"

/* Before a launch that is to be timed; NULL when it cannot be just now, or a better moment may come. at_work: the stream is, and
 * two events are then further apart (H200: by 0.5 to 1 µs). */
struct vgpu_sample *vgpu_sample_begin(struct vgpu_engine *engine, CUcontext context, CUstream stream, uint64_t key,
				      const void *what, uint64_t expected_ns, bool at_work);
/* batch: what the launch is held back with, or 0. */
void vgpu_sample_end(struct vgpu_engine *engine, struct vgpu_sample *sample, CUstream stream, uint64_t batch, bool launched);

/* Learns from those that are done, and lets go who was made to wait for too long: whoever should
 * have done it may be stuck in the driver. True while there are any. */
bool vgpu_samples_look(struct vgpu_engine *engine, uint64_t now_ns);

void vgpu_samples_context_gone(struct vgpu_engine *engine, CUcontext context);

#endif
