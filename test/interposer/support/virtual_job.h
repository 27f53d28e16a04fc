/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A job on a GPU in virtual time: its programs launch, and credit, meter and averages work together as
 * gate.c, groups.c, watch.c and poller.c use them. */
#ifndef VGPU_TEST_VIRTUAL_JOB_H
#define VGPU_TEST_VIRTUAL_JOB_H

#include "fuzz.h"
#include "time/cost.h"
#include "time/meter.h"
#include "time/buckets.h"
#include "virtual_gpu.h"

#define GROUPS 64
#define KINDS 6
#define THREADS 4

/* What one thread of a program does. */
struct virtual_thread {
	uint32_t stream, streams; /* any of so many, from the first on */
	uint32_t kinds;
	uint64_t length_ns[KINDS];
	bool varies;	    /* from half to one and a half of it, as the data are */
	uint64_t rarely_ns; /* one in 50 takes this, but not one that is timed */
	bool waits;	    /* for what it has launched, before it launches again */
	uint64_t pause_ns;  /* after a launch, or after what it has waited for; at most, on average half of it
			     */
	bool below;	    /* it pauses so long that it uses half of the share */
};

struct virtual_plan {
	uint32_t percent;
	uint32_t processes,
		threads; /* of each process; all processes do the same where there is none of its own */
	struct virtual_thread thread[PROCESSES][THREADS];
	bool together;	 /* kernels of several streams run at once */
	uint32_t late;	 /* one look in so many is late, by up to 30 ms */
	uint64_t for_ns;
};

struct virtual_group {
	uint64_t first_ns, last_ns, pending_ns, reached_ns, expected_ns, unseen_ns, reserved_ns, paid_ns,
		last_kernel, key;
	uint32_t launches;
	bool closed;
};

struct virtual_process {
	struct vgpu_meter_device device;
	struct vgpu_cost cost[VGPU_COSTS];
	int64_t credit_ns;
	uint32_t in_flight, unknown;
	uint64_t expected_ns, progress_ns, look_ns;
	bool stalled;
	struct {
		struct vgpu_meter meter;
		uint32_t head, tail;
		struct virtual_group group[GROUPS];
	} stream[STREAMS];
	struct {
		uint64_t next_ns, took_ns, done; /* waits until so many kernels of its stream are done */
		uint32_t stream;
		bool waiting;
	} thread[THREADS];
};

struct virtual_job {
	struct fuzz *f;
	const struct virtual_plan *plan;
	struct virtual_gpu gpu;
	uint64_t share_word, counted_ns, longest_ns, latest_ns, held_ns, launched_ns[PROCESSES];
	struct vgpu_buckets pieces;
	struct virtual_process process[PROCESSES];
};

/* What it returns is there until the next one. */
struct virtual_job *virtual_job_run(struct fuzz *f, const struct virtual_plan *plan);

void virtual_job_say(const struct virtual_job *job);

#endif
