/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ledger's lock. Any process of the job may be killed or stopped while it holds the lock, so none waits
 * for a holder for more than a second, and a holder can lose it. */
#ifndef VGPU_ACCOUNT_LOCK_H
#define VGPU_ACCOUNT_LOCK_H

#include "process/process.h"

#include <stdbool.h>

/* True when the lock was taken from a holder that did not give it back: the sums may be half done. */
bool vgpu_ledger_lock(struct vgpu_process *p);

/* False when another one has taken the lock from us meanwhile. */
bool vgpu_ledger_unlock(struct vgpu_process *p);

#endif
