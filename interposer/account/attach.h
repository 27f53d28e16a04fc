/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How this process gets an account: it finds the step's folder, checks its pages, and takes a slot in the
 * ledger. */
#ifndef VGPU_ACCOUNT_ATTACH_H
#define VGPU_ACCOUNT_ATTACH_H

#include "process/process.h"

/* This process, attached if it can be: look at its stage, which is one of the last three.
 * NULL when not even the memory for it can be had, which means refused. */
struct vgpu_process *vgpu_attach_slowly(void);

static inline struct vgpu_process *vgpu_attach(void)
{
	struct vgpu_process *p = __atomic_load_n(&vgpu_this_process, __ATOMIC_ACQUIRE);

	return __builtin_expect(p != NULL && __atomic_load_n(&p->stage, __ATOMIC_ACQUIRE) == VGPU_ATTACHED, 1)
		       ? p
		       : vgpu_attach_slowly();
}

#endif
