/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_DRIVER_OWN_H
#define VGPU_DRIVER_OWN_H

#include "api/nvml_types.h"
#include "driver/contexts.h"
#include "process/process.h"
#include "tuning.h"

/* The driver's last answer about a device's memory; see driver/free_memory.h. */
struct vgpu_free_memory {
	uint32_t sequence;
	int32_t device; /* index in vgpu_limits.device */
	CUcontext context; /* NULL: nothing is known */
	uint64_t asked_ns;
	uint64_t free_bytes, total_bytes;
	uint64_t held_bytes; /* what this process was charged then */
};

/* The value of CUDA_VISIBLE_DEVICES while the driver starts; see driver/visible.h. */
struct vgpu_visible {
	uint32_t lock;
	uint32_t starting; /* threads in cuInit */
	uint32_t started;
	char *before; /* the program's entry; NULL: it has none */
	char *shown;  /* the driver's; NULL: the same */
	char *kept;   /* memory for that */
};

struct vgpu_driver {
	/* CUDA ordinal → 1 + index in vgpu_limits.device, 255 not granted, 0 not asked yet. */
	uint8_t device_of[VGPU_CACHED_DEVICES];

	uint8_t several_devices; /* 0 not asked yet, 1 no, 2 yes */

	struct vgpu_free_memory free_memory;

	struct vgpu_visible visible;

	uint32_t context_mutex;
	struct vgpu_context context[VGPU_NOTED_CONTEXTS];

	uint32_t nvml_ready; /* driver/report.c */
	nvmlDevice_t nvml_device[VGPU_MAX_DEVICES]; /* NULL: not looked up yet */
};
_Static_assert(sizeof(struct vgpu_driver) <= VGPU_ACCOUNT_AT - VGPU_DRIVER_AT, "it has room");

static inline struct vgpu_driver *vgpu_driver(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_DRIVER_AT);
}

#endif
