/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whether what the process of a slot holds may be free. It has a lock of the ledger's file, at the slot's
 * place, which the kernel takes away with the last mapping of that opening of the file, whatever the program
 * closes. Children that it forked have that mapping as they have the driver's descriptors, and an exec leaves
 * both behind: the driver keeps the memory of a process that has ended as long as one of them lives. The lock
 * also tells of processes that cannot be seen: containers have process ids of their own. */
#ifndef VGPU_ACCOUNT_ALIVE_H
#define VGPU_ACCOUNT_ALIVE_H

#include "process/process.h"

/* Takes the lock of this process's slot. Where it cannot, the slot does not say that there is one. */
void vgpu_alive_begin(struct vgpu_process *p);

enum vgpu_alive {
	VGPU_ALIVE_UNKNOWN, /* it had no lock */
	VGPU_ALIVE_HELD,    /* as far as can be seen */
	VGPU_ALIVE_OVER,
};
enum vgpu_alive vgpu_alive_ask(uint32_t slot);

#endif
