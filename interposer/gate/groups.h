/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches of a stream in groups that the GPU times. One group that is full and one that is open may be in
 * flight; what they took is charged when a thread next looks.
 *
 * Charged are also the pauses in a group that are shorter than it takes to launch, and what others did on
 * the GPU meanwhile, other processes of the job too: a slice may have less than its cap, not more. */
#ifndef VGPU_GATE_GROUPS_H
#define VGPU_GATE_GROUPS_H

#include "gate/own.h"

#include <stdbool.h>

/* Which stream. Made by vgpu_gate_key. */
struct vgpu_gate_key {
	CUcontext context;
	CUstream handle;
	const void *thread;
	uint32_t device;
};

struct vgpu_gate_key vgpu_gate_key(CUcontext context, CUstream handle, uint32_t device);

/* The result for a launch that wants to join a group. */
enum vgpu_gate_joined {
	VGPU_JOINED,
	VGPU_JOINS_LATER, /* there is enough in flight */
	VGPU_NO_PLACE,	  /* for one stream more */
	VGPU_NO_EVENT,	  /* the driver makes none */
};

/* Before a launch. anyway: joins what is in flight if nothing else is left. */
enum vgpu_gate_joined vgpu_gate_join(struct vgpu_process *p, const struct vgpu_gate_key *key, uint64_t now_ns,
				     bool anyway, struct vgpu_gate_group **group);
/* Behind it. */
void vgpu_gate_behind(struct vgpu_process *p, struct vgpu_gate_group *group, CUstream handle);

/* Charges for the groups of the stream that the GPU has done. */
void vgpu_gate_settle_stream(struct vgpu_process *p, const struct vgpu_gate_key *key);
/* And of all streams of the context. True: some are in flight still. */
bool vgpu_gate_settle_context(struct vgpu_process *p, CUcontext context);

/* The context (NULL: any) is no more, and its events neither: what was in flight is charged as what came
 * before took. */
void vgpu_gate_forget_context(struct vgpu_process *p, CUcontext context);

/* So long the GPU was busy on the device. */
void vgpu_gate_charge(struct vgpu_process *p, uint32_t device, uint64_t begun_ns, uint64_t busy_ns);

#endif
