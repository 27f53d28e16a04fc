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
#define TIMED 64
#define MOST_MS 61000

struct virtual_kernel {
	uint64_t ready_ns, left_ns, order;
	uint64_t key; /* of one that is timed, or 0 */
	bool beside;  /* when it was launched other streams had work */
};

struct virtual_stream {
	uint64_t launched, done; /* kernels */
	uint64_t done_ns;	 /* when the last one was done */
	struct virtual_kernel queue[QUEUE];
};

/* What two events around a kernel tell: from when it could have begun until it was done. */
struct virtual_timed {
	uint64_t key, took_ns;
	bool beside;
};

struct virtual_gpu {
	uint64_t now;
	bool together;
	uint32_t turn; /* whose it is */
	uint64_t turn_ends_ns, order;
	struct virtual_stream stream[PROCESSES][STREAMS];
	uint32_t timed_count[PROCESSES];
	struct virtual_timed timed[PROCESSES][TIMED];
	uint32_t busy_ns[MOST_MS]; /* of each millisecond since BEGIN */
};

void virtual_gpu_begin(struct virtual_gpu *gpu, bool together);
/* Launches at gpu->now; false when the queue is full. With a key it is timed. */
bool virtual_gpu_launch(struct virtual_gpu *gpu, uint32_t process, uint32_t stream, uint64_t length_ns,
			uint64_t key);
/* Whether any other stream than this one has work. */
bool virtual_gpu_beside(const struct virtual_gpu *gpu, uint32_t process, uint32_t stream);
void virtual_gpu_advance(struct virtual_gpu *gpu, uint64_t to_ns);

uint64_t virtual_gpu_busy_ns(const struct virtual_gpu *gpu, uint64_t from_ms, uint64_t to_ms);
/* Of any second that begins before so many milliseconds have passed, less one. */
uint64_t virtual_gpu_busiest_second_ns(const struct virtual_gpu *gpu, uint64_t for_ms);

#endif
