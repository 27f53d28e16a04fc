/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Telling processes apart, and the living from the dead. */
#ifndef VGPU_BASE_IDENTITY_H
#define VGPU_BASE_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

struct vgpu_identity {
	uint64_t start_ticks; /* 0: /proc could not tell */
	uint64_t image;	      /* changes with every exec; 0: /proc could not tell */
	bool dead;	      /* a zombie without threads */
};

/* False when /proc/PID/stat cannot be read. pid 0 is this process. */
bool vgpu_identity_read(int32_t pid, struct vgpu_identity *out);

/* The inode of this process's pid namespace, 0 when /proc cannot tell. */
uint64_t vgpu_identity_pidns(void);

/* Whether the process that was described so in this pid namespace still runs the same program.
 * When in doubt it does. */
bool vgpu_identity_alive(int32_t pid, uint64_t start_ticks, uint64_t image);

#endif
