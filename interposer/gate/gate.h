/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The way of a launch: it waits until the share of its slice covers it, and leaves a marker behind.
 * A process whose slices have no share to keep passes with a count of the thread's. */
#ifndef VGPU_GATE_GATE_H
#define VGPU_GATE_GATE_H

#include "base/ticks.h"
#include "gate/own.h"
#include "streams/lease.h"

#include <stdbool.h>

struct vgpu_launch {
	struct vgpu_engine *engine; /* NULL: nothing is to be done at its end */
	struct vgpu_stream *stream;
	struct vgpu_group *group;
	struct vgpu_sample *sample;
	CUcontext context;
	CUstream handle;
	uint64_t key; /* of its cost */
	uint64_t expected_ns, unseen_ns, reserved_ns;
	uint64_t begun_ns; /* when the driver was called, where it is not known how long it takes; else 0 */
	uint64_t batch; /* what it is held back with, or 0 */
	uint32_t places; /* that it may take in the driver's queue */
	bool mark;
	bool leased; /* with the thread's lease; then only engine and expected_ns are set */
};

/* What was found free of the gate stays so for some 2 ms: whether it still is cannot be known without looking
 * at pages that root writes, which are seldom in the nearest caches. To look at the clock costs some 20 ns
 * (H200's hosts), so that each thread does so only with every eighth launch, or with each if they are that
 * far apart. Where the clock is behind that of the thread that looked, the difference is huge, and the gate
 * is looked at. A forked child passes for as long, to a driver that it cannot use. cuda/free_launch.S has the
 * first lines of this. */
#define VGPU_FREE_LAUNCHES 7
extern uint64_t vgpu_free_since_ticks __attribute__((visibility("hidden"))); /* 0: it is not */

static inline bool vgpu_gate_is_free(void)
{
	uint64_t since;

	if (vgpu_lease.free > 0) {
		vgpu_lease.free--;
		return true;
	}
	since = __atomic_load_n(&vgpu_free_since_ticks, __ATOMIC_RELAXED);
	if (since == 0 || vgpu_ticks() - since >= vgpu_ticks_per_second() / 512)
		return false;
	vgpu_lease.free = VGPU_FREE_LAUNCHES;
	return true;
}

/* Whether launches of this process may have to wait. */
bool vgpu_gate_look(struct vgpu_process *p);
static inline bool vgpu_gate_is_shut(struct vgpu_process *p)
{
	return !vgpu_gate_is_free() && vgpu_gate_look(p);
}

/* This thread's next launch decides anew, which context/overhead.h sees. */
void vgpu_gate_forget(struct vgpu_process *p);

/* Places in the driver's queue: a graph has some nodes. */
#define VGPU_PLACES_GRAPH 16u
#define VGPU_PLACES_OTHER 1u
/* Before and after the driver is called. what and shape: the kernel or graph, and how large it is. False when
 * there is nobody to keep the share, since this process may start no thread: the driver is not to be called
 * then. */
bool vgpu_gate_enter(struct vgpu_process *p, struct vgpu_launch *launch, CUstream stream, const void *what,
		     uint64_t shape, uint32_t places);
#define VGPU_GATE_REFUSES CUDA_ERROR_NOT_PERMITTED
void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_launch *launch, CUresult result);

/* The program has waited for results. */
static inline void vgpu_gate_synchronised(struct vgpu_process *p)
{
	__atomic_store_n(&vgpu_gate(p)->synchronised, 1, __ATOMIC_RELAXED);
}

/* After a launch that the thread's lease covered (streams/lease.h), when that was closed meanwhile. */
void vgpu_gate_late(struct vgpu_process *p, uint64_t expected_ns);

/* Work that is not counted was put into the stream. */
void vgpu_gate_beside(struct vgpu_process *p, CUstream stream);

#endif
