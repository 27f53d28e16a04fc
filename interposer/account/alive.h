/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whether the process of a slot lives, for those who cannot see it: containers have process ids of their
 * own. It has a lock of the ledger's file, at the slot's place, which the kernel takes away with the last
 * mapping of that opening of the file, and so with the process, whatever the program closes. */
#ifndef VGPU_ACCOUNT_ALIVE_H
#define VGPU_ACCOUNT_ALIVE_H

#include "process/process.h"

/* Takes the lock of this process's slot. Where it cannot, nobody is told that there is one. */
void vgpu_alive_begin(struct vgpu_process *p);

/* Whether the slot's process had a lock and has it no more. */
bool vgpu_alive_is_over(uint32_t slot);

#endif
