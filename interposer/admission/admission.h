/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whether work may be given to the GPU now: it is this slice's turn, and its share covers it. */
#ifndef VGPU_ADMISSION_ADMISSION_H
#define VGPU_ADMISSION_ADMISSION_H

#include "process/process.h"

#include <stdbool.h>

enum vgpu_admission {
	VGPU_ADMITTED,
	VGPU_NOT_ITS_TURN,
	VGPU_NO_CREDIT,
};

/* Takes need_ns of busy time off the share. When the work may not begin now, *wait_ns is how long at most
 * before it is worth to ask again. */
enum vgpu_admission vgpu_admission_take(struct vgpu_process *p, uint32_t device, uint64_t need_ns, uint64_t *wait_ns);

/* Whether something that is in flight holds back what comes behind it: it takes much longer than
 * expected, or nobody knows how long it takes. Not for ever: it may be waiting for just that. *since_ns,
 * 0 at first, is the caller's to keep. */
bool vgpu_admission_stalled(struct vgpu_engine *engine, uint64_t *since_ns, uint64_t at_most_ns, uint64_t *wait_ns);

/* After that long the work goes without credit, if what stalls goes on: it is charged for as it runs, and might
 * never end otherwise. */
bool vgpu_admission_overdue(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t at_most_ns, uint64_t need_ns);

/* Another launch of the same unknown kernel is less likely what it waits for. */
#define VGPU_STALL_AT_MOST_NS 250000000u
#define VGPU_SAME_AT_MOST_NS 5000000000u
/* A look at the clock again after that long at most, whatever was promised. */
#define VGPU_WAIT_AT_MOST_NS 50000000u

#endif
