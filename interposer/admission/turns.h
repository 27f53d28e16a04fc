/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The turns of the slices of one GPU: time/turn.h with the board, the claims and the clock.
 *
 * A tenant writes its own claims and nobody else's. What it claims is believed for some milliseconds
 * after it was last said, and each neighbour waits for it no longer than its share on the board
 * explains. So one that is stopped or killed is forgotten at once, and one that lies, or whose kernel
 * never ends, costs its neighbours what they would have left it anyway. */
#ifndef VGPU_ADMISSION_TURNS_H
#define VGPU_ADMISSION_TURNS_H

#include "admission/load.h"
#include "process/process.h"

#include <stdbool.h>

/* Whether so much more may be launched now. What would mostly lie behind the end of the turn waits for the
 * next one, but what is longer than a turn begins in its first half. */
static inline bool vgpu_turns_may_launch(struct vgpu_load *load, uint64_t now_ns, uint64_t need_ns)
{
	uint64_t until = __atomic_load_n(&load->turns.may_until_ns, __ATOMIC_RELAXED);
	uint64_t quantum = __atomic_load_n(&load->turns.quantum_ns, __ATOMIC_RELAXED);
	uint64_t ahead = __atomic_load_n(&load->expected_ns, __ATOMIC_RELAXED);

	if (until == UINT64_MAX || now_ns + ahead + (need_ns < quantum ? need_ns : quantum) / 2 < until)
		return true;
	if (until != 0)
		__atomic_store_n(&load->turns.full, 1, __ATOMIC_RELAXED);
	return false;
}

/* While nobody else wants the GPU no turn ends, but somebody may come back at any time, and would wait
 * for all that is in flight: so that is no more than this. */
#define VGPU_TURNS_AHEAD_NS 3000000u
/* For how long the next launch waits for that. */
static inline uint64_t vgpu_turns_ahead(const struct vgpu_load *load, uint64_t now_ns)
{
	uint64_t remaining;

	if (!__atomic_load_n(&load->turns.shared, __ATOMIC_RELAXED) ||
	    __atomic_load_n(&load->turns.may_until_ns, __ATOMIC_RELAXED) != UINT64_MAX)
		return 0;
	remaining = vgpu_load_remaining(load, now_ns);
	return remaining > VGPU_TURNS_AHEAD_NS ? remaining - VGPU_TURNS_AHEAD_NS : 0;
}

/* --vgpu-policy=elastic */
static inline bool vgpu_turns_elastic(void)
{
	return (__atomic_load_n(&vgpu_pages.limits->flags, __ATOMIC_RELAXED) & VGPU_ELASTIC) != 0;
}

/* Whether the GPU's time that nobody else wants is this slice's to use beyond its share. */
bool vgpu_turns_spare(struct vgpu_process *p, uint32_t device);

/* Takes, keeps or ends the turn; the poller calls it. Returns how long until the next look, 0: no
 * need. *bell is what to wait for meanwhile, if it is not NULL, and *rung how it stands. */
uint64_t vgpu_turns_look(struct vgpu_process *p, uint32_t device, uint64_t now_ns, uint32_t **bell,
			 uint32_t *rung);

/* Whether other processes of the job have work on the device. */
bool vgpu_turns_siblings_busy(struct vgpu_process *p, uint32_t device, uint64_t now_ns);

#endif
