/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The thread that looks, some thousand times a second while there is something in flight, at what
 * the GPU has done, settles the share and keeps the slice's turn. It sleeps when there is nothing. */
#ifndef VGPU_KEEPER_H
#define VGPU_KEEPER_H

#include "process.h"

#include <stdbool.h>

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

#endif
