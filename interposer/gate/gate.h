/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where the driver refuses vgpud its calls, launches wait here for the cap of their slice. */
#ifndef VGPU_GATE_GATE_H
#define VGPU_GATE_GATE_H

#include "process/process.h"

struct vgpu_gate_device;

/* One launch on its way. */
struct vgpu_pass {
	struct vgpu_gate_device *device; /* NULL: nothing is to be done at its end */
};

/* Whether root has the library hold the cap of any device of the step. Of an attached process. */
static inline bool vgpu_gate_is_armed(void)
{
	return (__atomic_load_n(&vgpu_pages.limits->flags, __ATOMIC_RELAXED) & VGPU_GATED) != 0;
}

/* Before and after the driver is called. */
void vgpu_gate_enter(struct vgpu_process *p, struct vgpu_pass *pass, CUstream stream);
void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_pass *pass, CUresult result);

#endif
