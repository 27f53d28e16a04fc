/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/bell.h"

#include "base/atomics.h"
#include "base/futex.h"

void vgpu_poller_ring(struct vgpu_process *p)
{
	ADD(vgpu_streams(p)->poller_bell, 1);
	vgpu_futex_wake(&vgpu_streams(p)->poller_bell, 1, FUTEX_PRIVATE_FLAG);
}
