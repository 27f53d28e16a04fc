/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The way of a launch: it waits until the share of its slice covers it, and leaves a marker behind.
 * A process whose slices have no share to keep passes with two loads. */
#ifndef VGPU_GATE_H
#define VGPU_GATE_H

#include "process.h"

#include <stdbool.h>

struct vgpu_launch {
	struct vgpu_engine *engine; /* NULL: nothing is to be done at its end */
	struct vgpu_stream *stream;
	struct vgpu_group *group;
	struct vgpu_sample *sample;
	CUcontext context;
	CUstream handle;
	uint64_t key; /* of its cost */
	uint64_t expected_ns, reserved_ns;
	uint64_t begun_ns; /* when the driver was called, where it is not known how long it takes; else 0 */
	uint64_t batch; /* what it is held back with, or 0 */
	uint32_t places; /* that it may take in the driver's queue */
	bool mark;
	bool passes; /* with the thread's pass; then only engine and expected_ns are set */
};

/* Whether launches of this process had to wait when that was last looked at. */
static inline bool vgpu_gate_was_shut(const struct vgpu_process *p)
{
	return __atomic_load_n(&p->gated, __ATOMIC_RELAXED) != 0;
}

/* Whether launches of this process may have to wait. */
bool vgpu_gate_decide(struct vgpu_process *p);
static inline bool vgpu_gate_is_shut(struct vgpu_process *p)
{
	uint32_t boards = __atomic_load_n(&p->gate_boards, __ATOMIC_ACQUIRE);
	bool same = __atomic_load_n(&p->gate_generation, __ATOMIC_RELAXED) ==
		    __atomic_load_n(&vgpu_pages.limits->generation, __ATOMIC_RELAXED) + 1ull;

	/* It depends on the limits page, and on who else is on the boards of its GPUs. */
	for (uint32_t b = 0; b < boards; b++)
		same = same && __atomic_load_n(&p->gate_board[b]->sequence, __ATOMIC_RELAXED) ==
				       __atomic_load_n(&p->gate_sequence[b], __ATOMIC_RELAXED);
	return same ? __atomic_load_n(&p->gated, __ATOMIC_RELAXED) != 0 : vgpu_gate_decide(p);
}

/* The next launch decides anew, by which growth.h learns of it. */
static inline void vgpu_gate_forget(struct vgpu_process *p)
{
	__atomic_store_n(&p->gate_generation, 0, __ATOMIC_RELAXED);
}

/* Places in the driver's queue: a graph has some nodes. */
#define VGPU_PLACES_GRAPH 16u
#define VGPU_PLACES_OTHER 1u
/* Before and after the driver is called. what and shape: the kernel or graph, and how large it is. */
void vgpu_gate_enter(struct vgpu_process *p, struct vgpu_launch *launch, CUstream stream, const void *what, uint64_t shape,
		     uint32_t places);
void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_launch *launch, CUresult result);

/* After a launch that the thread's pass covered (pass.h), when that was closed meanwhile. */
void vgpu_gate_late(struct vgpu_process *p, uint64_t expected_ns);

/* Work that is not counted was put into the stream. */
void vgpu_gate_beside(struct vgpu_process *p, CUstream stream);

#endif
