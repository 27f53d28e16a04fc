/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The cost of a context is known only when it is there. So it is charged before with the cost of an
 * earlier context of this job on this device: the ledger remembers it. The very first one is charged
 * VGPU_CONTEXT_DEFAULT_BYTES, or what is left if that is less. In the latter case contexts are made one at
 * a time: a process waits while another one's context is measured, so that processes that start together
 * do not pass the limit together. Afterwards the charge is put right (context/overhead.h).
 *
 * The ledger is the job's own. A figure there that is too large makes the job wait for room that it
 * has, and above VGPU_CONTEXT_MOST_BYTES it is ignored; one that is too small lets its contexts be
 * charged a moment late. */
#ifndef VGPU_ACCOUNT_CONTEXT_COST_H
#define VGPU_ACCOUNT_CONTEXT_COST_H

#include "process/process.h"
#include "tuning.h"

/* Charges a context that is about to be made. False when it does not fit: a line has been said then. */
bool vgpu_context_cost_charge(struct vgpu_process *p, uint32_t device, uint64_t *charged_bytes);

/* The context is there, at this cost, and charged that; or the driver did not make it, or the cost is not
 * known (VGPU_COST_UNKNOWN). */
#define VGPU_COST_UNKNOWN UINT64_MAX
void vgpu_context_cost_settled(struct vgpu_process *p, uint32_t device, uint64_t cost_bytes);

#endif
