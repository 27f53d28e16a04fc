/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Whether work may be given to the GPU now: it is this slice's turn, and its share covers it. */
#ifndef VGPU_ADMISSION_ADMISSION_H
#define VGPU_ADMISSION_ADMISSION_H

#include "process/process.h"

#include <stdbool.h>

/* What waits for admission: since when that is so for either reason; 0: it is not. */
struct vgpu_waiting {
	uint64_t stalled_ns; /* something in flight stalls */
	uint64_t credit_ns; /* there is no credit */
};

enum vgpu_admission {
	VGPU_ADMITTED,
	VGPU_STALLED, /* something in flight takes longer than expected, or nobody knows how long it takes */
	VGPU_NOT_ITS_TURN,
	VGPU_NO_CREDIT,
};

/* Takes need_ns of busy time off the share. When the work may not begin now, *wait_ns is how long at most
 * before it is worth to ask again. What stalls holds back what comes behind it, but not for ever: it may be
 * waiting for just that. So after stalled_at_most_ns the work goes, without credit as well: it is charged for
 * as it runs. */
enum vgpu_admission vgpu_admission_try(struct vgpu_process *p, uint32_t device, uint64_t need_ns,
				       uint64_t stalled_at_most_ns, struct vgpu_waiting *waiting,
				       uint64_t *wait_ns);

/* For who had no credit for wait_ns and waits on: its place in the job's queue. Returns when to ask again. */
uint64_t vgpu_admission_queue(struct vgpu_process *p, uint32_t device, struct vgpu_waiting *waiting,
			      uint64_t wait_ns, uint64_t now_ns);

/* It waits no more, without having been admitted. */
void vgpu_admission_leave(struct vgpu_process *p, uint32_t device, struct vgpu_waiting *waiting);

/* Another launch of the same unknown kernel is less likely what it waits for. */
#define VGPU_STALL_AT_MOST_NS 250000000u
#define VGPU_SAME_AT_MOST_NS 5000000000u
/* A look at the clock again after that long at most, whatever was promised. */
#define VGPU_WAIT_AT_MOST_NS 50000000u

#endif
