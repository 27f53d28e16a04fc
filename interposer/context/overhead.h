/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver's own memory on behalf of this process: contexts, modules, the stacks and
 * heaps of kernels. It is the part of NVML's figure for the process beyond what the process has
 * allocated. Without a figure of NVML nothing is charged.
 *
 * Asking takes 80 to 250 µs (H200, driver 580, one to four processes on the device), a program may load
 * thousands of modules at its start, and cuDNN asks for its kernels' functions before every launch. So after
 * a load the device's free memory is looked at, which takes 3 µs, and NVML is asked when it moved by more
 * than what this process allocated, when some of that was managed or is no more, or 100 ms after it was asked
 * last. Where nothing is loaded and nothing grows this is done ever more rarely, down to once a second, and
 * NVML is asked only when free memory has moved, or after 10 s: somebody else may have freed what was taken
 * here. Launches never look. */
#ifndef VGPU_CONTEXT_OVERHEAD_H
#define VGPU_CONTEXT_OVERHEAD_H

#include "base/futex.h"
#include "context/own.h"
#include "memory/own.h"

/* Asks the driver and settles the account. False when what it has grown by does not fit: it is then not
 * charged, and the caller undoes what caused it. */
bool vgpu_overhead_settle(struct vgpu_process *p, uint32_t device);

/* The same for the device of the current context. */
bool vgpu_overhead_settle_current(struct vgpu_process *p);

/* The same, or without a current context for all devices that have contexts, but only if it seems
 * worth asking; lightly: only when it is due, as below. */
bool vgpu_overhead_look(struct vgpu_process *p, bool lightly);

/* The same after something was loaded, the rest of which the driver may load at a launch. */
bool vgpu_overhead_loaded(struct vgpu_process *p, bool lightly);

void vgpu_overhead_ask(struct vgpu_process *p, uint64_t now_ns);

/* Memory that another process pays for is reported as this process's as soon as the other one has let go of
 * it. After a call that may have closed some (memory/holders.h). */
void vgpu_overhead_see_closed(struct vgpu_process *p);
static inline bool vgpu_overhead_has_closed(const struct vgpu_process *p)
{
	return __atomic_load_n(&vgpu_memory(p)->closed, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&p->overhead_closed, __ATOMIC_RELAXED);
}
static inline void vgpu_overhead_look_at_closed(struct vgpu_process *p)
{
	if (p != NULL && vgpu_overhead_has_closed(p))
		vgpu_overhead_see_closed(p);
}

/* The first launch after a load may be the first of a kernel that allocates or prints. Every launch looks
 * whether it is that, and says so when the driver has it: of the loads that there were before. */
static inline bool vgpu_overhead_awaits_launch(const struct vgpu_process *p)
{
	return __atomic_load_n(&p->loads, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&p->launched, __ATOMIC_RELAXED);
}
static inline uint32_t vgpu_overhead_loads(const struct vgpu_process *p)
{
	return __atomic_load_n(&p->loads, __ATOMIC_RELAXED);
}
static inline void vgpu_overhead_launched(struct vgpu_process *p, uint32_t loads)
{
	__atomic_store_n(&p->launched, loads, __ATOMIC_RELAXED);
}
static inline bool vgpu_overhead_has_launched(const struct vgpu_process *p)
{
	return __atomic_load_n(&p->launched, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&vgpu_overheads(p)->launched, __ATOMIC_RELAXED);
}

/* Before an allocation, at a synchronisation and at a question for free memory: what a launch has
 * made the driver take is charged, and what the owners of open memory have let go of, whatever the
 * limits say, because it is there and nothing can be undone; the limit then meets what comes next.
 * Other launches tell nothing, so once something was loaded or opened the driver is asked at the first of
 * these calls after a load and after the first launch that follows it, after 100 ms, and then half as often
 * each time that it has nothing new, but once a second. */
static inline void vgpu_overhead_catch_up(struct vgpu_process *p)
{
	uint64_t now_ns;

	/* Nothing was loaded, and what was opened was closed before the driver was asked last. */
	if (p == NULL || (__atomic_load_n(&p->overhead_pending, __ATOMIC_RELAXED) == 0 &&
			  __atomic_load_n(&p->opened, __ATOMIC_RELAXED) ==
				  __atomic_load_n(&p->overhead_closed, __ATOMIC_RELAXED)))
		return;
	now_ns = vgpu_coarse_ns();
	if (now_ns >= __atomic_load_n(&p->overhead_due_ns, __ATOMIC_RELAXED) ||
	    vgpu_overhead_has_launched(p) || vgpu_overhead_has_closed(p))
		vgpu_overhead_ask(p, now_ns);
}

/* The heap and the printf buffer of kernels are made at the first launch that needs them, and
 * launches never look: they are charged when their size is set. unpromise gives a part back; if it
 * was made all the same, the next settling charges it again. */
bool vgpu_overhead_promise(struct vgpu_process *p, uint32_t device, uint64_t bytes);
void vgpu_overhead_unpromise(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* A context is about to be made, and so many bytes were charged for it (cost.h): they are
 * not given back before it came or failed. */
void vgpu_overhead_coming(struct vgpu_process *p, uint32_t device, uint64_t bytes);
void vgpu_overhead_not_coming(struct vgpu_process *p, uint32_t device, uint64_t bytes);
/* It came: settles. cost_bytes: what it costs; UINT64_MAX when the driver does not say, or when another
 * context is being made as well. False as for vgpu_overhead_settle, but nothing is said. */
bool vgpu_overhead_came(struct vgpu_process *p, uint32_t device, uint64_t bytes, uint64_t *cost_bytes);

/* Before a refusal: a context whose cost could not be asked yet is charged with the most that one may cost.
 * Waits until NVML can be asked, but not for long, and settles. Where NVML cannot be started at all the
 * charge is given back. */
void vgpu_overhead_await(struct vgpu_process *p, uint32_t device);

/* The process has no context on the device any more. */
void vgpu_overhead_end(struct vgpu_process *p, uint32_t device);

#endif
