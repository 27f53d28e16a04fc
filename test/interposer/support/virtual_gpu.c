/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "virtual_gpu.h"

#include "time/meter.h"

#include <string.h>

#define TURN_NS (2 * MS)

void virtual_gpu_begin(struct virtual_gpu *gpu, bool together)
{
	memset(gpu, 0, sizeof(*gpu));
	gpu->now = BEGIN;
	gpu->together = together;
}

static struct virtual_kernel *first(struct virtual_stream *stream)
{
	return stream->done == stream->launched ? NULL : &stream->queue[stream->done % QUEUE];
}

bool virtual_gpu_beside(const struct virtual_gpu *gpu, uint32_t process, uint32_t stream)
{
	for (uint32_t p = 0; p < PROCESSES; p++) {
		for (uint32_t s = 0; s < STREAMS; s++) {
			if ((p != process || s != stream) &&
			    gpu->stream[p][s].launched != gpu->stream[p][s].done)
				return true;
		}
	}
	return false;
}

bool virtual_gpu_launch(struct virtual_gpu *gpu, uint32_t process, uint32_t stream, uint64_t length_ns,
			uint64_t key)
{
	struct virtual_stream *s = &gpu->stream[process][stream];

	if (s->launched - s->done == QUEUE)
		return false;
	s->queue[s->launched++ % QUEUE] =
		(struct virtual_kernel){gpu->now + VGPU_LAUNCH_NS, length_ns, gpu->order++, key,
					key != 0 && virtual_gpu_beside(gpu, process, stream)};
	return true;
}

/* The stream's first kernel is done at gpu->now. */
static void finish(struct virtual_gpu *gpu, uint32_t process, struct virtual_stream *s)
{
	struct virtual_kernel *kernel = first(s);

	if (kernel->key != 0 && gpu->timed_count[process] < TIMED)
		gpu->timed[process][gpu->timed_count[process]++] = (struct virtual_timed){
			kernel->key,
			gpu->now - (kernel->ready_ns > s->done_ns ? kernel->ready_ns : s->done_ns),
			kernel->beside};
	s->done_ns = gpu->now;
	s->done++;
}

static bool has_work(struct virtual_gpu *gpu, uint32_t process, uint64_t *ready_ns)
{
	bool any = false;

	for (uint32_t s = 0; s < STREAMS; s++) {
		struct virtual_kernel *kernel = first(&gpu->stream[process][s]);

		if (kernel != NULL && kernel->ready_ns <= gpu->now)
			any = true;
		else if (kernel != NULL && kernel->ready_ns < *ready_ns)
			*ready_ns = kernel->ready_ns;
	}
	return any;
}

/* Whose turn it is; false when nobody has work, and none before *until_ns. */
static bool whose_turn(struct virtual_gpu *gpu, uint64_t *until_ns)
{
	uint64_t never = UINT64_MAX;

	for (uint32_t i = gpu->now < gpu->turn_ends_ns ? 0 : 1; i <= PROCESSES; i++) {
		uint32_t process = (gpu->turn + i) % PROCESSES;

		if (!has_work(gpu, process, i == PROCESSES ? &never : until_ns))
			continue;
		if (i != 0)
			gpu->turn_ends_ns = gpu->now + TURN_NS;
		gpu->turn = process;
		return true;
	}
	return false;
}

static void note(struct virtual_gpu *gpu, uint64_t until_ns)
{
	for (uint64_t from = gpu->now; from < until_ns; ) {
		uint64_t ms = (from - BEGIN) / MS, end = BEGIN + (ms + 1) * MS;

		end = end < until_ns ? end : until_ns;
		if (ms < MOST_MS)
			gpu->busy_ns[ms] += (uint32_t)(end - from);
		from = end;
	}
}

/* Which of the process's kernels run; the earliest end of one of them is *until_ns at most. */
static uint32_t running(struct virtual_gpu *gpu, struct virtual_stream *run[STREAMS], uint64_t *until_ns)
{
	uint32_t count = 0;

	for (uint32_t s = 0; s < STREAMS; s++) {
		struct virtual_stream *stream = &gpu->stream[gpu->turn][s];
		struct virtual_kernel *kernel = first(stream);

		if (kernel == NULL)
			continue;
		if (kernel->ready_ns > gpu->now) {
			*until_ns = kernel->ready_ns < *until_ns ? kernel->ready_ns : *until_ns;
			continue;
		}
		if (gpu->together || count == 0)
			run[count++] = stream;
		else if (kernel->order < first(run[0])->order)
			run[0] = stream;
	}
	for (uint32_t i = 0; i < count; i++)
		*until_ns = gpu->now + first(run[i])->left_ns < *until_ns ? gpu->now + first(run[i])->left_ns
									  : *until_ns;
	return count;
}

void virtual_gpu_advance(struct virtual_gpu *gpu, uint64_t to_ns)
{
	while (gpu->now < to_ns) {
		struct virtual_stream *run[STREAMS];
		uint64_t until = to_ns;
		uint32_t count;

		if (!whose_turn(gpu, &until)) {
			gpu->now = until;
			continue;
		}
		until = gpu->turn_ends_ns < to_ns ? gpu->turn_ends_ns : to_ns;
		count = running(gpu, run, &until);
		note(gpu, until);
		for (uint32_t i = 0; i < count; i++)
			first(run[i])->left_ns -= until - gpu->now;
		gpu->now = until;
		for (uint32_t i = 0; i < count; i++) {
			if (first(run[i])->left_ns == 0)
				finish(gpu, gpu->turn, run[i]);
		}
	}
}

uint64_t virtual_gpu_busy_ns(const struct virtual_gpu *gpu, uint64_t from_ms, uint64_t to_ms)
{
	uint64_t sum = 0;

	for (uint64_t ms = from_ms; ms < to_ms; ms++)
		sum += gpu->busy_ns[ms];
	return sum;
}

uint64_t virtual_gpu_busiest_second_ns(const struct virtual_gpu *gpu, uint64_t for_ms)
{
	uint64_t sum = virtual_gpu_busy_ns(gpu, 0, 1000), most = sum;

	for (uint64_t ms = 1000; ms < for_ms; ms++) {
		sum = sum + gpu->busy_ns[ms] - gpu->busy_ns[ms - 1000];
		most = sum > most ? sum : most;
	}
	return most;
}
