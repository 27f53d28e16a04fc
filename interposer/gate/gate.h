/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where the driver refuses vgpud its calls, launches wait here for the cap of their slice. It holds programs
 * that use the library: a program can go around it.
 *
 * Kernels and graphs are held and charged; copies and fills are not, nor what a graph does while it is
 * captured. */
#ifndef VGPU_GATE_GATE_H
#define VGPU_GATE_GATE_H

#include "gate/own.h"

#include <stdbool.h>

/* One launch on its way. */
struct vgpu_pass {
	struct vgpu_gate_device *device; /* NULL: nothing is to be done at its end */
	struct vgpu_gate_group *group;	 /* NULL: it is in none */
	CUstream stream;
	uint64_t begun_ns;
	bool synchronises; /* the driver makes no events: it is waited for */
};

/* Whether root has the library hold the cap of any device of the step. Of an attached process. */
static inline bool vgpu_gate_is_armed(void)
{
	return (__atomic_load_n(&vgpu_pages.limits->flags, __ATOMIC_RELAXED) & VGPU_GATED) != 0;
}

/* Before and after the driver is called. May wait. */
void vgpu_gate_enter(struct vgpu_process *p, struct vgpu_pass *pass, CUstream stream);
void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_pass *pass, CUresult result);

/* The program has waited for the GPU, or ends the context (NULL: the current one): what is done is charged
 * now, since it may be the last that this process launched. */
void vgpu_gate_settle(struct vgpu_process *p, CUcontext context);

/* The context (NULL: any) is about to end, or has: its events are not touched any more. */
void vgpu_gate_context_gone(struct vgpu_process *p, CUcontext context);

#endif
