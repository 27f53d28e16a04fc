/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the driver's control device, as its open kernel modules have them (nv_escape.h, nvos.h, headers
 * of classes and of control calls). */
#ifndef SIMGPU_ESCAPES_H
#define SIMGPU_ESCAPES_H

#include <stdint.h>
#include <sys/ioctl.h>

#define CLASS_CLIENT 0x41
#define CLASS_DEVICE 0x80
#define CLASS_SUBDEVICE 0x2080
#define CLASS_GROUP 0xA06C
#define CLASS_CHANNEL 0xC86F
#define CALL_GPUS 0x201
#define CALL_DISABLE 0x2080110B
#define CALL_SET_PREEMPTION 0x20801210
#define CALL_SET_SLICE 0xA06C0103
#define CALL_SLICE 0xA06C0104
#define ENGINE_COMPUTES 1 /* NV2080_ENGINE_TYPE_GR0 */
#define ENGINE_COPIES 9	  /* NV2080_ENGINE_TYPE_COPY0 */
#define DEVICE_PARAMS 14	  /* words of NV0080_ALLOC_PARAMETERS; the first is the GPU's instance */
#define GROUP_PARAMS 5		  /* words of NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS; the last but one is the engine */

struct escape_alloc { /* NVOS21_PARAMETERS */
	uint32_t client, parent, object, class;
	uint64_t params;
	uint32_t params_bytes, status;
};

struct escape_control { /* NVOS54_PARAMETERS */
	uint32_t client, object, command, flags;
	uint64_t params;
	uint32_t params_bytes, status;
};

struct escape_free { /* NVOS00_PARAMETERS */
	uint32_t client, parent, object, status;
};

struct disable_params { /* NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS */
	uint8_t disable, reserved[3];
	uint32_t count;
	uint8_t only_scheduling, rewind, reserved2[6];
	uint64_t event;
	uint32_t clients[64], channels[64];
};

_Static_assert(sizeof(struct disable_params) == 536, "NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS");

#define ESCAPE_FREE _IOWR('F', 0x29, struct escape_free)
#define ESCAPE_CONTROL _IOWR('F', 0x2A, struct escape_control)
#define ESCAPE_ALLOC _IOWR('F', 0x2B, struct escape_alloc)

#endif
