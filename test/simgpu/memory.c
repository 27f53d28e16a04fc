/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a device's memory is used for: a sum for each process, and one over all of them. */
#include "sim.h"

#include <errno.h>

/* The driver takes what managed memory needs in big pieces, for all processes together: what is left of
 * the last one is taken and nobody's. */
static uint64_t taken(uint64_t held_bytes, uint64_t managed_bytes)
{
	return held_bytes - managed_bytes + sim_round_up(managed_bytes, SIM_MANAGED_PIECE_BYTES);
}

static bool fits(int device, uint64_t more, uint64_t more_managed)
{
	const struct sim_device_conf *conf = &sim_conf.device[device];
	const struct sim_gpu *gpu = &sim_state()->gpu[device];
	uint64_t room = conf->mem_bytes - conf->reserved_bytes;

	return more <= room && taken(gpu->used_bytes + more, gpu->managed_bytes + more_managed) <= room;
}

/* With the lock held. */
static bool take_locked(int device, uint64_t bytes, uint64_t managed)
{
	struct sim_gpu *gpu = &sim_state()->gpu[device];
	struct sim_proc_device *own = &sim_self()->device[device];

	if (!fits(device, bytes, managed) || !sim_limit_allows(device, bytes - managed)) {
		sim_sweep();
		if (!fits(device, bytes, managed) || !sim_limit_allows(device, bytes - managed))
			return false;
	}
	gpu->used_bytes += bytes;
	gpu->managed_bytes += managed;
	if (gpu->highest_bytes < gpu->used_bytes)
		gpu->highest_bytes = gpu->used_bytes;
	own->mem_bytes += bytes;
	own->managed_bytes += managed;
	return true;
}

static void give_locked(int device, uint64_t bytes, uint64_t managed)
{
	struct sim_gpu *gpu = &sim_state()->gpu[device];
	struct sim_proc_device *own = &sim_self()->device[device];

	if (bytes > own->mem_bytes)
		bytes = own->mem_bytes;
	gpu->used_bytes -= bytes;
	gpu->managed_bytes -= managed;
	own->mem_bytes -= bytes;
	own->managed_bytes -= managed;
}

static int take(int device, uint64_t bytes, uint64_t managed)
{
	bool ok;

	if (sim_self() == NULL || !sim_lock())
		return -EIO;
	ok = take_locked(device, bytes, managed);
	sim_unlock();
	return ok ? 0 : -ENOMEM;
}

static void give(int device, uint64_t bytes, uint64_t managed)
{
	if (sim_self() == NULL || !sim_lock())
		return;
	give_locked(device, bytes, managed);
	sim_unlock();
}

int sim_mem_take(int device, uint64_t bytes)
{
	return take(device, bytes, 0);
}

void sim_mem_give(int device, uint64_t bytes)
{
	give(device, bytes, 0);
}

int sim_managed_take(int device, uint64_t bytes)
{
	return take(device, bytes, bytes);
}

void sim_managed_give(int device, uint64_t bytes)
{
	give(device, bytes, bytes);
}

int sim_context_take(int device)
{
	int rc = 0;

	if (sim_self() == NULL || !sim_lock())
		return -EIO;
	if (!take_locked(device, sim_conf.device[device].context_bytes, 0))
		rc = -ENOMEM;
	else
		sim_self()->device[device].contexts++;
	sim_unlock();
	return rc;
}

void sim_context_give(int device)
{
	struct sim_proc_device *own;

	if (sim_self() == NULL || !sim_lock())
		return;
	own = &sim_self()->device[device];
	if (own->contexts != 0) {
		own->contexts--;
		give_locked(device, sim_conf.device[device].context_bytes, 0);
	}
	sim_unlock();
}

uint64_t sim_mem_highest(int device)
{
	struct sim_gpu *gpu = &sim_state()->gpu[device];
	uint64_t highest;

	if (!sim_lock())
		return 0;
	highest = gpu->highest_bytes;
	gpu->highest_bytes = gpu->used_bytes;
	sim_unlock();
	return highest;
}

uint64_t sim_mem_used(int device)
{
	const struct sim_gpu *gpu = &sim_state()->gpu[device];
	uint64_t used;

	if (!sim_lock())
		return 0;
	sim_sweep();
	used = taken(gpu->used_bytes, gpu->managed_bytes);
	sim_unlock();
	return used;
}

uint64_t sim_mem_held(int device)
{
	uint64_t held;

	if (!sim_lock())
		return 0;
	sim_sweep();
	held = sim_state()->gpu[device].used_bytes;
	sim_unlock();
	return held;
}
