/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A GPU that exists only in virtual time: how long it was really busy is known to the nanosecond.
 * Processes have it in turns of 2 ms, as a GPU without MPS does it. Kernels of one process run one after
 * the other, as if each fills the GPU, or those of several streams at once. */
#ifndef VGPU_TEST_VIRTUAL_GPU_H
#define VGPU_TEST_VIRTUAL_GPU_H

#include <stdbool.h>
#include <stdint.h>

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define BEGIN (100000 * SECOND)

#define PROCESSES 8
#define STREAMS 4
#define QUEUE 4096
#define MOST_MS 61000

struct virtual_kernel {
	uint64_t ready_ns, left_ns, order;
};

struct virtual_stream {
	uint64_t launched, done; /* kernels */
	struct virtual_kernel queue[QUEUE];
};

struct virtual_gpu {
	uint64_t now;
	bool together;
	uint32_t turn; /* whose it is */
	uint64_t turn_ends_ns, order;
	struct virtual_stream stream[PROCESSES][STREAMS];
	uint32_t busy_ns[MOST_MS]; /* of each millisecond since BEGIN */
};

void virtual_gpu_begin(struct virtual_gpu *gpu, bool together);
/* Launches at gpu->now; false when the queue is full. */
bool virtual_gpu_launch(struct virtual_gpu *gpu, uint32_t process, uint32_t stream, uint64_t length_ns);
void virtual_gpu_advance(struct virtual_gpu *gpu, uint64_t to_ns);

uint64_t virtual_gpu_busy_ns(const struct virtual_gpu *gpu, uint64_t from_ms, uint64_t to_ms);
/* Of any second that begins before so many milliseconds have passed, less one. */
uint64_t virtual_gpu_busiest_second_ns(const struct virtual_gpu *gpu, uint64_t for_ms);

#endif
