/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/gate.h"

void vgpu_gate_enter(struct vgpu_process *p, struct vgpu_pass *pass, CUstream stream)
{
	(void)p;
	(void)stream;
	pass->device = NULL;
}

void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_pass *pass, CUresult result)
{
	(void)p;
	(void)pass;
	(void)result;
}
