/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Rings for the thread that looks at what is in flight (gate/poller.h), which sleeps while there is nothing
 * to see. */
#ifndef VGPU_STREAMS_BELL_H
#define VGPU_STREAMS_BELL_H

#include "streams/own.h"

void vgpu_poller_ring(struct vgpu_process *p);
/* There is something to do. */
static inline void vgpu_poller_wake(struct vgpu_process *p)
{
	if (__atomic_load_n(&vgpu_streams(p)->poller_sleeps, __ATOMIC_SEQ_CST) != 0)
		vgpu_poller_ring(p);
}

/* It looks by then, or soon after. Called with what there is to see then in place. */
static inline void vgpu_poller_by(struct vgpu_process *p, uint64_t by_ns)
{
	if (__atomic_load_n(&vgpu_streams(p)->poller_sleeps, __ATOMIC_SEQ_CST) != 0 ||
	    __atomic_load_n(&vgpu_streams(p)->poller_until_ns, __ATOMIC_SEQ_CST) > by_ns)
		vgpu_poller_ring(p);
}

#endif
