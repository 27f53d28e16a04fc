/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A path by which a program gets device memory, and the search for where it ends: the largest amount
 * that works and the smallest that fails. */
#ifndef VGPU_TEST_PATHS_SEARCH_H
#define VGPU_TEST_PATHS_SEARCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MIB (1ull << 20)

/* What take() and start() return besides the driver's or the runtime's errors. */
#define PATH_ABSENT (-1)  /* the driver or the machine does not have it */
#define PATH_BROKEN (-2)  /* something that is not the allocation went wrong */

enum path_flag {
	PATH_FILL = 1,	  /* no search: blocks of one granule until one is refused */
	PATH_MANAGED = 2, /* never beyond what the device has free: that can hang it */
	PATH_HOST = 4,	  /* host memory: one try above the limit, which must work */
	PATH_NO_CONTEXT = 8, /* makes its contexts itself */
	PATH_SHARED = 16, /* what all its processes hold counts */
};

struct path {
	const char *name;
	uint64_t granule; /* bytes: the step of the search */
	unsigned int flags;
	uint64_t most;	  /* what the function can take at all, 0: anything */
	int (*start)(void);
	/* 0, or an error and then nothing is held. */
	int (*take)(uint64_t bytes);
	void (*give)(void);
	/* For FILL, bytes per block; else what take() has taken is usable: 0, or an error. */
	int (*touch)(void);
	char *note; /* whatever is worth saying, may be NULL */
};

struct path_driver {
	int (*mem_info)(size_t *free_bytes, size_t *total_bytes);
	const char *uuid; /* of the device, "GPU-…" */
};

/* Tries up to cap_mib (0: what the device has) and prints one row; see path_header(). */
int path_search(const struct path *path, const struct path_driver *driver, uint64_t cap_mib);

/* One row, tab-separated, for a path that could not be tried. */
void path_absent(const char *name, int error, const char *why);

void path_header(void);

#ifdef __cplusplus
}
#endif
#endif
