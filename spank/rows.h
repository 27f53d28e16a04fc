/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The table of options, which the plugin's C and its Go read. */
#ifndef VGPU_ROWS_H
#define VGPU_ROWS_H

#include <stddef.h>

#include "plan.h"

/* In the order of request.Options (a Go test compares them). Every option takes an argument: those without
 * one had faults in Slurm until 25.11. Name and metavar together stay within 20 characters, so that
 * srun --help keeps them on one line. */
static const struct vgpu_row {
	const char *name, *metavar, *usage, *variable;
} vgpu_rows[VGPU_OPTION_COUNT] = {
	{"vgpu-mem", "SIZE",
	 "[vgpu] device memory of each slice: MiB (3000), GiB (8G) or a share of the GPU (25%)",
	 "VGPU_MEM"},
	{"vgpu-cores", "PERCENT",
	 "[vgpu] at most this percentage of each GPU's time; 0 is no cap, 100 the GPU to itself",
	 "VGPU_CORES"},
	{"vgpu-place", "HOW",
	 "[vgpu] pack: the fullest GPU that fits; spread: the emptiest", "VGPU_PLACE"},
	{"vgpu-policy", "HOW",
	 "[vgpu] cap: never above the share; elastic: also GPU time that nobody else wants",
	 "VGPU_POLICY"},
	{"vgpu-priority", "HOW",
	 "[vgpu] latency: work goes before others' on the GPU; normal; batch: may be cut short",
	 "VGPU_PRIORITY"},
	{"vgpu-gpu", "TYPE,...", "[vgpu] only on GPUs of these types; !TYPE excludes", "VGPU_GPU"},
	{"vgpu-uuid", "UUID,...", "[vgpu] only on these GPUs; !UUID excludes", "VGPU_UUID"},
	{"vgpu-bind", "HOW",
	 "[vgpu] none: a task sees all of its step's slices; task: one of them, in turn", "VGPU_BIND"},
};

/* vgpu_option_name is the option's name without dashes, in table order; NULL past the end. */
static inline const char *vgpu_option_name(int index)
{
	return index >= 0 && index < VGPU_OPTION_COUNT ? vgpu_rows[index].name : NULL;
}

#endif
