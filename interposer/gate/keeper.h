/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The thread that looks, some thousand times a second while there is something in flight, at what
 * the GPU has done, settles the share and keeps the slice's turn. It sleeps when there is nothing.
 *
 * What it lets go, a call of the driver may be waiting for in the program's thread, or in this one. So it is awake
 * before anything is held back in a stream (streams/plugs.h), and before the driver is called with it; nothing that it lets go
 * needs the driver; and when a call of its own does not return, another thread that never calls the driver
 * does that in its stead (watchdog.h). */
#ifndef VGPU_GATE_KEEPER_H
#define VGPU_GATE_KEEPER_H

#include "process/process.h"

#include <stdbool.h>

/* Starts both threads. False when the system refuses one, to be tried again with the next launch: nothing may be held
 * back then, because nothing would let it go again. */
bool vgpu_keeper_starts(struct vgpu_process *p);

void vgpu_keeper_ring(struct vgpu_process *p);
/* There is something to do. */
static inline void vgpu_keeper_wake(struct vgpu_process *p)
{
	if (__atomic_load_n(&p->keeper_sleeps, __ATOMIC_SEQ_CST) != 0)
		vgpu_keeper_ring(p);
}

/* It looks by then, or soon after. Called with what there is to see then in place. */
static inline void vgpu_keeper_by(struct vgpu_process *p, uint64_t by_ns)
{
	if (__atomic_load_n(&p->keeper_sleeps, __ATOMIC_SEQ_CST) != 0 || __atomic_load_n(&p->keeper_until_ns, __ATOMIC_SEQ_CST) > by_ns)
		vgpu_keeper_ring(p);
}

/* Sleep until somebody rings there instead of here. */
struct vgpu_elsewhere {
	uint32_t *bell;
	uint32_t rung;
};

/* Lets go what may be on one device, without a call of the driver. changed: those who wait on the host look again, too.
 * Returns how soon to do it again: 0, nobody knows of anything. *batch_ns: the same for what is held back alone. */
uint64_t vgpu_keeper_let_go(struct vgpu_process *p, uint32_t device, bool changed, struct vgpu_elsewhere *elsewhere,
			    uint64_t *batch_ns);

#endif
