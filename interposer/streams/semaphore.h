/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Timeline semaphores: words in this process's memory that a stream can be made to wait for (CUDA driver API,
 * stream memory operations): what lies behind such a wait is begun by the GPU, without the host, once the
 * word has the value. A stream that waits costs other slices nothing (H200: a neighbour kept 100.0 % of its
 * speed beside eight such streams), and goes on some 6 µs after the word is written. */
#ifndef VGPU_STREAMS_SEMAPHORE_H
#define VGPU_STREAMS_SEMAPHORE_H

#include "streams/engine.h"

#include <stdbool.h>

/* Words: one for each sample, and one for what is held back (gate/batch.h). */
#define VGPU_SEMAPHORE_BATCHES VGPU_SAMPLES
#define VGPU_SEMAPHORES (VGPU_SAMPLES + 1)

/* Makes the words, before anybody may want to signal one: what is signalled too early would be lost. */
bool vgpu_semaphore_ready(struct vgpu_engine *engine);

/* Makes the stream wait until the word is at least value; false when the driver cannot. What says that the
 * word is to be signalled, and when, stands in the engine already: the poller is awake before the stream
 * waits, or at by_ns at the latest, since the next call of the driver may wait for the stream. */
bool vgpu_semaphore_wait(struct vgpu_process *p, struct vgpu_engine *engine, uint32_t word, uint32_t value,
			 CUcontext context, CUstream stream, uint64_t by_ns);
void vgpu_semaphore_signal(struct vgpu_engine *engine, uint32_t word, uint32_t value);
uint32_t vgpu_semaphore_value(const struct vgpu_engine *engine, uint32_t word);

/* The words are known to the driver as long as the context that told it of them lives. */
void vgpu_semaphore_context_gone(struct vgpu_engine *engine, CUcontext context);

#endif
