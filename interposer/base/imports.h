/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where an image that the dynamic linker has loaded keeps the address of a function that it calls: by its
 * relocations. A relocation that leads out of the image's mappings is ignored. */
#ifndef VGPU_BASE_IMPORTS_H
#define VGPU_BASE_IMPORTS_H

#include "tuning.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct vgpu_imports {
	ElfW(Addr) base;
	const ElfW(Phdr) *segments;
	uint32_t segment_count;
	uint32_t count;
	bool all; /* false: there are, or may be, more */
	void **place[VGPU_IMPORT_PLACES];
};

/* header: where the image begins (dli_fbase). False when it is none that can be read. */
bool vgpu_imports_find(const struct link_map *map, const void *header, const char *name,
		       struct vgpu_imports *imports);

/* Whether the address lies in the image: that of a function of another one, before its first call. */
bool vgpu_imports_has(const struct vgpu_imports *imports, const void *address);

/* Puts another function into one of the places, which may be in a page that is read-only. By one thread at a
 * time. */
bool vgpu_imports_set(const struct vgpu_imports *imports, uint32_t index, void *function);

#endif
