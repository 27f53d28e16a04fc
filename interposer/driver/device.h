/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One key for a device everywhere: its UUID. From it follows the index in vgpu_limits.device, which
 * is the index in all of the ledger. CUDA ordinals and NVML handles never leave this file's callers. */
#ifndef VGPU_DRIVER_DEVICE_H
#define VGPU_DRIVER_DEVICE_H

#include "driver/own.h"

#define VGPU_NOT_GRANTED (-1) /* the step has no slice of this device */
#define VGPU_NO_DEVICE (-2)   /* the driver does not know it */

int vgpu_device_of_ordinal(struct vgpu_process *p, CUdevice ordinal);

/* The device of the calling thread's current context. */
int vgpu_device_of_current(struct vgpu_process *p);

/* The ordinal of the device that a stream belongs to; the driver's default streams belong to the
 * current context's. */
bool vgpu_device_of_stream(struct vgpu_process *p, CUstream stream, CUdevice *ordinal);

int vgpu_device_of_nvml(nvmlDevice_t handle);

/* Whether CUDA shows this process more than one device. */
bool vgpu_device_ask_several(struct vgpu_process *p);

static inline bool vgpu_device_several(struct vgpu_process *p)
{
	uint8_t known = __atomic_load_n(&vgpu_driver(p)->several_devices, __ATOMIC_RELAXED);

	return known == 0 ? vgpu_device_ask_several(p) : known == 2;
}

#endif
