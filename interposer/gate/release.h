/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What both threads of ours let go (poller.h, watchdog.h): launches, turns and samples whose time has
 * come. */
#ifndef VGPU_GATE_RELEASE_H
#define VGPU_GATE_RELEASE_H

#include "process/process.h"

#include <stdbool.h>

/* Sleep until somebody rings there instead of here. */
struct vgpu_elsewhere {
	uint32_t *bell;
	uint32_t rung;
};

/* Lets go what may be on one device, without a call of the driver. changed: those who wait on the host look
 * again, too. Returns how soon to do it again: 0, nobody knows of anything. *batch_ns: the same for what is
 * held back alone. */
uint64_t vgpu_release_device(struct vgpu_process *p, uint32_t device, bool changed,
			     struct vgpu_elsewhere *elsewhere, uint64_t *batch_ns);

#endif
