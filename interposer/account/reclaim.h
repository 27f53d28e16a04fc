/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a charge does before it is refused: it clears the slots of dead processes, lets the rooms above give
 * back what they hold unused, and waits for what others are about to give back. */
#ifndef VGPU_ACCOUNT_RECLAIM_H
#define VGPU_ACCOUNT_RECLAIM_H

#include "process/process.h"

#include <stdbool.h>
#include <stdint.h>

/* Charges the bytes if neither the step's nor the job's limit is passed by it. The driver is called
 * between this and the end of what it allocates, so no race can go over a limit. */
bool vgpu_account_charge(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* Gives back the unused part of the device's memory that this process holds. The account calls no room above
 * it by name: the list is filled in where the library is linked (context/reclaimers.c); NULL ends it. */
typedef void vgpu_reclaimer(struct vgpu_process *p, uint32_t device);
extern vgpu_reclaimer *const vgpu_reclaimers[];

/* Whether a process of the job, but for that of one slot, makes a context of unknown cost on the device just
 * now. */
bool vgpu_reclaim_is_measured(uint32_t device, uint32_t but_slot);

#endif
