/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whether anything is being captured into a graph. What is allocated on a captured stream becomes a
 * node and takes nothing yet, and questions about pools can end a capture; but asking the driver at
 * every allocation takes longer than the charge. A capture spreads from stream to stream by events,
 * so all that can be said without asking is that there is none in the whole process. */
#ifndef VGPU_DRIVER_CAPTURE_H
#define VGPU_DRIVER_CAPTURE_H

#include "process/process.h"

/* Set when the program has got hold of a function that may begin a capture and has no row. */
extern uint32_t vgpu_captures_unseen __attribute__((visibility("hidden")));

/* The program looks up a name that has no wrapper. */
void vgpu_capture_unwrapped(const char *name);

static inline bool vgpu_capture_possible(const struct vgpu_process *p)
{
	return __atomic_load_n(&p->captures, __ATOMIC_RELAXED) != 0 ||
	       __atomic_load_n(&vgpu_captures_unseen, __ATOMIC_RELAXED) != 0;
}

/* Before a capture begins; and when it has ended, or has not begun after all. */
void vgpu_capture_begins(struct vgpu_process *p);
void vgpu_capture_ended(struct vgpu_process *p);

/* Whether the driver says that the stream is captured; also where it does not want to say. */
bool vgpu_capture_of_stream(CUstream stream);

#endif
