/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "turns.h"

bool vgpu_turns_shared(struct vgpu_process *p, uint32_t device)
{
	(void)p;
	(void)device;
	return false;
}

bool vgpu_turns_may_launch(struct vgpu_process *p, uint32_t device)
{
	(void)p;
	(void)device;
	return true;
}

uint64_t vgpu_turns_look(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	(void)p;
	(void)device;
	(void)now_ns;
	return 0;
}
