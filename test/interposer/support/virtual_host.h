/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A process that launches, the library's thread beside it, and the driver with a GPU below them, all in one
 * thread and in virtual time: whoever waits gives way to the other, and the same happens every time. What the
 * library asks of the driver is counted. The program is linked with the parts of the library that keep the
 * share, without the wrappers (interposer.mk). */
#ifndef VGPU_TEST_VIRTUAL_HOST_H
#define VGPU_TEST_VIRTUAL_HOST_H

#include "gate/gate.h"
#include "whole.h"

#include <stdbool.h>
#include <stdint.h>

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define HOST_BEGIN (1000 * SECOND)
#define HOST_MS 20000

/* What the driver was asked and told. */
struct virtual_asked {
	uint32_t event_queries, stream_queries, elapsed, records, events_made, events_gone, contexts;
	uint32_t poller_sleeps, program_sleeps; /* and how often either waited */
};

extern struct virtual_asked virtual_asked;
extern union whole_process virtual_whole;
#define virtual_process (virtual_whole.process)
extern struct vgpu_ledger virtual_ledger;
extern struct vgpu_limits virtual_limits;

/* A step of a job with these shares of one GPU. Everything before is forgotten. */
void virtual_host_begin(uint32_t step_percent, uint32_t job_percent);
uint64_t virtual_host_now(void);

/* The program does something else for so long. */
void virtual_host_works(uint64_t ns);
/* Somebody else does something then. One at a time; NULL: nobody. */
void virtual_host_at(uint64_t ns, void (*what)(void));
/* It launches a kernel, of a shape, into a stream, 1 and up, that will take so long. */
extern uint64_t virtual_host_call_ns; /* how long the call takes */
#define SHAPED(kernel, shape) ((kernel) | (uint64_t)(shape) << 32)
void virtual_host_launch(uint32_t stream, uint64_t kernel, uint64_t ns);
/* It puts a copy of the host's there, which takes so long and is no work of the GPU. */
void virtual_host_copy(uint32_t stream, uint64_t ns);
/* It waits until all that is in the stream is done. */
void virtual_host_waits(uint32_t stream);

CUstream virtual_host_stream(uint32_t stream);
/* How long the GPU was busy in these milliseconds since the beginning. */
uint64_t virtual_host_busy_ns(uint64_t from_ms, uint64_t to_ms);

/* Other slices of the GPU, which say what the test has them say; 0: none. After virtual_host_begin. */
#define VIRTUAL_SLICES 4
struct virtual_slice {
	uint32_t percent;
	struct vgpu_claim claim;
	void (*says)(struct virtual_slice *slice, uint64_t now_ns); /* called before it is read; or NULL */
};
extern struct virtual_slice virtual_slice[VIRTUAL_SLICES];
extern struct vgpu_claim virtual_claim; /* of this process's job */
void virtual_slices_begin(uint32_t count, const uint32_t percent[]);

#endif
