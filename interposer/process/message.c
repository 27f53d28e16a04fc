/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/message.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

/* One write, so that lines of several processes do not mix. */
#define SAY(...)                                                                               \
	do {                                                                                   \
		char line[256];                                                                \
		int said_errno = errno;                                                        \
		int length = snprintf(line, sizeof(line), __VA_ARGS__);                        \
		if (length > 0 && write(STDERR_FILENO, line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1) < 0) \
			errno = said_errno;                                                    \
		errno = said_errno;                                                            \
	} while (0)

static bool first(uint32_t *said)
{
	return __atomic_exchange_n(said, 1, __ATOMIC_RELAXED) == 0;
}

void vgpu_message_limit(struct vgpu_process *p, uint32_t device, uint64_t asked_bytes)
{
	const struct vgpu_limits *limits = vgpu_pages.limits;
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint64_t asked_mib = asked_bytes / MIB + (asked_bytes % MIB != 0);
	uint64_t limit = __atomic_load_n(&limits->device[device].step_mem_bytes, __ATOMIC_RELAXED);
	uint64_t used = __atomic_load_n(&ledger->step[p->step].used_bytes[device], __ATOMIC_RELAXED);
	const char *by = "step";

	if (!first(&p->said_limit))
		return;
	if (used > limit || asked_bytes <= limit - used) {
		by = "job";
		limit = __atomic_load_n(&limits->device[device].job_mem_bytes, __ATOMIC_RELAXED);
		used = __atomic_load_n(&ledger->used_bytes[device], __ATOMIC_RELAXED);
	}
	SAY("vgpu: GPU memory limit reached: %llu MiB asked for, %llu of %llu MiB in use by this %s (job "
	    "%.39s)\n",
	    (unsigned long long)asked_mib, (unsigned long long)(used / MIB),
	    (unsigned long long)(limit / MIB), by, limits->job_step);
}

void vgpu_message_not_granted(struct vgpu_process *p)
{
	if (first(&p->said_limit))
		SAY("vgpu: this GPU is not part of the slice (job %.39s)\n", vgpu_pages.limits->job_step);
}

void vgpu_message_refused(struct vgpu_process *p)
{
	static uint32_t said;

	if (first(p != NULL ? &p->said_refused : &said))
		SAY("vgpu: CUDA is not permitted here: %s\n",
		    p != NULL && p->refused_why != NULL ? p->refused_why : "no memory to keep account");
}
