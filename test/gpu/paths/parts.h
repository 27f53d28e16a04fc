/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The tables of paths, one per family, and what they share. */
#ifndef VGPU_TEST_PATHS_PARTS_H
#define VGPU_TEST_PATHS_PARTS_H

#include "api.h"
#include "search.h"

#define GRANULE (2 * MIB)

/* Ends with an entry without a name. */
extern struct path memory_paths[], pool_paths[], vmm_paths[], array_paths[], graph_paths[], context_paths[],
	shared_paths[], race_paths[];

/* Set before a path starts. */
extern CUdevice the_device;
extern const char *the_program; /* to run itself again */

#define NEEDS(name)                         \
	do {                                \
		if (cu.name == NULL)        \
			return PATH_ABSENT; \
	} while (0)

/* Fills the memory and reads its last byte back: 0 when it is what was written. */
int touch_bytes(CUdeviceptr pointer, uint64_t bytes);

/* What a second process does in shared.c and race.c: its exit status. */
int shared_importer(int fd);
int race_racer(unsigned int threads, unsigned int ms);
int race_starter(int fd);

#endif
