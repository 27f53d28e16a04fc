/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "control.h"
#include "sim.h"

#include <time.h>

uint64_t sim_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void share(struct sim_bucket *bucket, int pid, uint64_t part, bool add)
{
	for (int i = 0; i < SIM_SHARES; i++) {
		struct sim_share *one = &bucket->share[i];

		if (one->pid != pid && (one->pid != 0 || !add))
			continue;
		one->pid = pid;
		one->busy_ns += add ? (uint32_t)part : -(part < one->busy_ns ? (uint32_t)part : one->busy_ns);
		return;
	}
}

/* Adds (or takes back) busy time over [from, to), bucket by bucket. What lies further ahead than
 * the ring reaches is not counted in utilisation; it still takes its time. */
static void count(struct sim_gpu *gpu, int pid, uint64_t from, uint64_t to, bool add)
{
	uint64_t limit = sim_now_ns() + (SIM_BUCKETS / 2) * SIM_BUCKET_NS;

	if (to > limit)
		to = limit;
	while (from < to) {
		uint64_t number = from / SIM_BUCKET_NS;
		uint64_t end = (number + 1) * SIM_BUCKET_NS;
		struct sim_bucket *bucket = &gpu->bucket[number % SIM_BUCKETS];
		uint64_t part = (end < to ? end : to) - from;

		if (bucket->number != number && add) {
			*bucket = (struct sim_bucket){ .number = number };
		}
		if (add)
			bucket->busy_ns += part;
		else if (bucket->number == number)
			bucket->busy_ns -= part < bucket->busy_ns ? part : bucket->busy_ns;
		if (bucket->number == number)
			share(bucket, pid, part, add);
		from += part;
	}
}

uint64_t sim_time_book(int device, uint64_t ready_ns, uint64_t len_ns)
{
	uint64_t now = sim_now_ns(), start = ready_ns > now ? ready_ns : now;
	unsigned slot = sim_own_slot();
	struct sim_gpu *gpu;

	if (len_ns == 0 || slot >= SIM_MAX_PROCS || !sim_lock())
		return start;
	gpu = &sim_state()->gpu[device];
	/* Far behind someone else's work: is that someone still there? */
	if (gpu->busy_until_ns > start + SIM_BUCKET_NS && gpu->tail_proc != slot + 1)
		sim_sweep();
	if (gpu->busy_until_ns > start)
		start = gpu->busy_until_ns;
	if (gpu->tail_proc != slot + 1 || start > gpu->busy_until_ns) {
		gpu->tail_proc = slot + 1;
		gpu->tail_start_ns = start;
	}
	gpu->busy_until_ns = start + len_ns;
	sim_state()->proc[slot].device[device].busy_ns += len_ns;
	count(gpu, sim_state()->proc[slot].pid, start, start + len_ns, true);
	sim_unlock();
	return start + len_ns;
}

void sim_time_put_in(int device, uint64_t ns)
{
	unsigned slot = sim_own_slot();

	if (slot >= SIM_MAX_PROCS || !sim_lock())
		return;
	sim_state()->proc[slot].device[device].busy_ns += ns;
	sim_unlock();
}

static uint64_t bucket_of_runlist(int device, uint64_t number, int pid)
{
	struct sim_bucket_use use = {.device = (uint32_t)device, .pid = pid, .number = number};

	return ioctl(sim_control(), SIM_BUCKET, &use) == 0 ? use.busy_ns : 0;
}

/* A bucket that the window's beginning cuts counts in proportion; of the last one all has been. */
static uint64_t busy_on_runlist(int device, uint64_t from, uint64_t now)
{
	uint64_t first = from / SIM_BUCKET_NS, left = (first + 1) * SIM_BUCKET_NS - from;
	uint64_t busy = bucket_of_runlist(device, first, 0) * left / SIM_BUCKET_NS;

	for (uint64_t n = first + 1; n <= now / SIM_BUCKET_NS; n++)
		busy += bucket_of_runlist(device, n, 0);
	return busy < now - from ? busy : now - from;
}

uint64_t sim_time_busy(int device, uint64_t window_ns)
{
	uint64_t now = sim_now_ns(), from = now > window_ns ? now - window_ns : 0, busy = 0;
	uint64_t last = now / SIM_BUCKET_NS;
	struct sim_gpu *gpu;

	if (sim_control() >= 0)
		return busy_on_runlist(device, from, now);
	if (!sim_lock())
		return 0;
	gpu = &sim_state()->gpu[device];
	sim_sweep();
	for (uint64_t n = from / SIM_BUCKET_NS; n <= last; n++) {
		struct sim_bucket *bucket = &gpu->bucket[n % SIM_BUCKETS];
		uint64_t begin = n * SIM_BUCKET_NS, end = begin + SIM_BUCKET_NS, inside;

		if (bucket->number != n)
			continue;
		/* A bucket that is cut by the window counts in proportion. */
		inside = (end < now ? end : now) - (begin > from ? begin : from);
		busy += inside == SIM_BUCKET_NS ? bucket->busy_ns
						: bucket->busy_ns * inside / SIM_BUCKET_NS;
	}
	sim_unlock();
	return busy < window_ns ? busy : window_ns;
}

uint64_t sim_time_bucket(int device, uint64_t number, int pid)
{
	const struct sim_bucket *bucket = &sim_state()->gpu[device].bucket[number % SIM_BUCKETS];
	uint64_t busy = 0;

	if (sim_control() >= 0)
		return bucket_of_runlist(device, number, pid);
	if (!sim_lock())
		return 0;
	if (bucket->number == number && pid == 0)
		busy = bucket->busy_ns;
	for (int i = 0; bucket->number == number && pid != 0 && i < SIM_SHARES; i++)
		busy += bucket->share[i].pid == pid ? bucket->share[i].busy_ns : 0;
	sim_unlock();
	return busy;
}

void sim_time_cancel(int device, unsigned slot)
{
	struct sim_gpu *gpu = &sim_state()->gpu[device];
	uint64_t now = sim_now_ns();
	uint64_t from = gpu->tail_start_ns > now ? gpu->tail_start_ns : now;

	if (gpu->tail_proc != slot + 1 || gpu->busy_until_ns <= from)
		return;
	count(gpu, sim_state()->proc[slot].pid, from, gpu->busy_until_ns, false);
	gpu->busy_until_ns = from;
	gpu->tail_proc = 0;
}
