/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The table of options, made of request.Options by make generate: change it there. */
#ifndef VGPU_ROWS_H
#define VGPU_ROWS_H

#define VGPU_OPTION_COUNT 8

/* In the order of request.Options, so that Go finds an option by its index. */
static const struct vgpu_row {
	const char *name, *metavar, *usage, *variable;
} vgpu_rows[VGPU_OPTION_COUNT] = {
	{"vgpu-mem", "SIZE",
	 "[vgpu] device memory of each slice: MiB (3000), GiB (8G, 1.5G) or a share of the GPU (25%)",
	 "VGPU_MEM"},
	{"vgpu-cores", "PERCENT",
	 "[vgpu] at most this percentage of each GPU's time; 0 is no cap, 100 the GPU to itself",
	 "VGPU_CORES"},
	{"vgpu-place", "HOW",
	 "[vgpu] pack: the fullest GPU that fits; spread: the emptiest",
	 "VGPU_PLACE"},
	{"vgpu-policy", "HOW",
	 "[vgpu] cap: never above the share; elastic: also GPU time that no other slice wants",
	 "VGPU_POLICY"},
	{"vgpu-priority", "HOW",
	 "[vgpu] latency: work goes before others' on the GPU; normal; batch: may be cut short",
	 "VGPU_PRIORITY"},
	{"vgpu-gpu", "TYPE,...",
	 "[vgpu] only on GPUs of these types; !TYPE excludes",
	 "VGPU_GPU"},
	{"vgpu-uuid", "UUID,...",
	 "[vgpu] only on these GPUs; !UUID excludes",
	 "VGPU_UUID"},
	{"vgpu-bind", "HOW",
	 "[vgpu] none: a task sees all of its step's slices; task: one of them, in turn",
	 "VGPU_BIND"},
};

#endif
