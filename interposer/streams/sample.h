/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Timing one launch on the GPU, for time/cost.h. A pair of timed events around a kernel would also time
 * how long the program takes to launch it, when the GPU has nothing else to do; so the stream is
 * made to wait in front of the first event until kernel and second event are queued. On an H200 that
 * gives what NVML counts within 0.2 µs, for kernels from 1.5 to 200 µs. */
#ifndef VGPU_STREAMS_SAMPLE_H
#define VGPU_STREAMS_SAMPLE_H

#include "streams/engine.h"

/* Whether it does not matter much just now what launches take: what is held back the GPU times as a whole. */
static inline bool vgpu_sample_roughly(const struct vgpu_engine *engine)
{
	return __atomic_load_n(&engine->load.ample, __ATOMIC_RELAXED) != 0 ||
	       vgpu_batch_pending(&engine->load);
}

/* Before a launch that is to be timed; NULL when it cannot be just now, or a better moment may come. at_work:
 * the stream is, and two events are then further apart (H200: by 0.5 to 1 µs). */
struct vgpu_sample *vgpu_sample_begin(struct vgpu_process *p, struct vgpu_engine *engine, CUcontext context,
				      CUstream stream, uint64_t key, const void *what, uint64_t expected_ns,
				      bool at_work);
/* batch: what the launch is held back with, or 0. */
void vgpu_sample_end(struct vgpu_engine *engine, struct vgpu_sample *sample, CUstream stream, uint64_t batch,
		     bool launched);

/* Lets go who was made to wait for too long, without a call of the driver: whoever should have done it may be
 * waiting there for just that. Returns how long until the next one, 0: none is made to wait. */
uint64_t vgpu_samples_let_go(struct vgpu_engine *engine, uint64_t now_ns);

/* Whether a stream is made to wait for one, and so for its thread, which may have lost its core. */
static inline bool vgpu_samples_wait(const struct vgpu_engine *engine)
{
	uint32_t taken = __atomic_load_n(&engine->samples_taken, __ATOMIC_RELAXED);

	for (uint32_t i = 0; taken != 0 && i < VGPU_SAMPLES; i++) {
		if ((taken & 1u << i) != 0 &&
		    __atomic_load_n(&engine->sample[i].semaphore_value, __ATOMIC_RELAXED) != 0)
			return true;
	}
	return false;
}

/* Learns from those that are done. True while there are any. */
bool vgpu_samples_look(struct vgpu_engine *engine);

void vgpu_samples_context_gone(struct vgpu_engine *engine, CUcontext context);

#endif
