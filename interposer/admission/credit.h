/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The job's account of GPU time: what step and job have used of their shares, in the ledger. */
#ifndef VGPU_ADMISSION_CREDIT_H
#define VGPU_ADMISSION_CREDIT_H

#include "process/process.h"
#include "time/meter.h"

#include <stdbool.h>

/* Whether the step or its whole job has a share of the device to keep. */
bool vgpu_time_is_capped(uint32_t device);

/* As vgpu_share_take, _settle and _credit, for step and job together. */
uint64_t vgpu_time_take(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint64_t need_ns,
			uint64_t want_ns, uint64_t *from_ns);
void vgpu_time_settle(struct vgpu_process *p, uint32_t device, uint64_t now_ns, int64_t more_ns);
/* The step alone has used more, if it has a share of its own. */
void vgpu_time_settle_step(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint64_t more_ns);
int64_t vgpu_time_credit(struct vgpu_process *p, uint32_t device, uint64_t now_ns);
/* How long it takes to earn so much. */
uint64_t vgpu_time_to_earn(struct vgpu_process *p, uint32_t device, uint64_t busy_ns);
/* For how long there has been credit; 0: there is none. */
uint64_t vgpu_time_credit_age(struct vgpu_process *p, uint32_t device, uint64_t now_ns);

/* Counts what is new of it. Returns how much of that no other process of the job had counted. */
uint64_t vgpu_time_used(struct vgpu_process *p, uint32_t device, const struct vgpu_busy *busy);

/* A thread was held back for so long. */
void vgpu_time_waited(struct vgpu_process *p, uint32_t device, uint64_t ns);

#endif
