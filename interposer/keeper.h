/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The thread that looks, some thousand times a second while there is something in flight, at what
 * the GPU has done, settles the share and keeps the slice's turn. It sleeps when there is nothing. */
#ifndef VGPU_KEEPER_H
#define VGPU_KEEPER_H

#include "process.h"

#include <stdbool.h>

/* The shares of the step and of the whole job on a device; 0: no cap. */
struct vgpu_percent {
	uint32_t step, job;
};
struct vgpu_percent vgpu_keeper_percent(uint32_t device);

/* Starts the thread. False when there can be none: then nothing is held back, because nothing would
 * let it go again. */
bool vgpu_keeper_starts(struct vgpu_process *p);

void vgpu_keeper_ring(struct vgpu_process *p);
/* There is something to do. */
static inline void vgpu_keeper_wake(struct vgpu_process *p)
{
	if (__atomic_load_n(&p->keeper_sleeps, __ATOMIC_SEQ_CST) != 0)
		vgpu_keeper_ring(p);
}

/* Takes from the share of step and job: see vgpu_share_take. */
uint64_t vgpu_keeper_take(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint64_t need_ns, uint64_t want_ns,
			  uint64_t *from_ns);

/* A thread was held back for so long. */
void vgpu_keeper_waited(struct vgpu_process *p, uint32_t device, uint64_t ns);

#endif
