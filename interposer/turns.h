/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The turns of the slices of one GPU. */
#ifndef VGPU_TURNS_H
#define VGPU_TURNS_H

#include "process.h"

#include <stdbool.h>

/* Whether other slices lie on the device, so that turns may have to be taken. */
bool vgpu_turns_shared(struct vgpu_process *p, uint32_t device);

/* Whether it is this slice's turn, or nobody takes turns. */
bool vgpu_turns_may_launch(struct vgpu_process *p, uint32_t device);

/* Takes, keeps or ends the turn. Returns how long until it should be looked at again, 0: no need. */
uint64_t vgpu_turns_look(struct vgpu_process *p, uint32_t device, uint64_t now_ns);

#endif
