/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who is asked for room before a charge is refused (account/reclaim.h), in this order. */
#include "account/reclaim.h"
#include "context/overhead.h"
#include "memory/holders.h"
#include "pools/table.h"

static void closed_descriptors(struct vgpu_process *p, uint32_t device)
{
	(void)device;
	vgpu_holders_drop_closed(p, 0);
}

static void unused_pools(struct vgpu_process *p, uint32_t device)
{
	vgpu_pools_reclaim(p, (int)device);
}

vgpu_reclaimer *const vgpu_reclaimers[] = {vgpu_overhead_await, closed_descriptors, unused_pools, NULL};
